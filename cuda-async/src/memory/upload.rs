//! `h2d`: uploads host data to the device.

use std::task::{Context, Poll, ready};

use cuda_core::{DeviceBuffer, Error, Result, Stream};

use crate::{
    context::{Credit, ExecutionContext, MemoryWait},
    memory::{copying::Copying, source::HostSource},
    op::{Live, Op, Submit},
};

/// The steps of [`h2d`].
pub struct Upload<S: HostSource>(Live<State<S>>);

enum State<S: HostSource> {
    Idle(S, Credit, MemoryWait),
    Copying(Copying<S, DeviceBuffer<S::Element>>),
}

/// Uploads host data into a new device buffer.
///
/// The data is copied through pinned blocks, at most [`COPY_BYTES`](crate::memory::COPY_BYTES) at a time. Several
/// threads share a copy of 4 MiB or more. In async code these are helper threads if the operation owns the data, such
/// as a `Vec`; borrowed data is copied inside polls. A [`PinnedBuffer`](crate::PinnedBuffer) is uploaded directly.
///
/// ```
/// use cuda_async::prelude::*;
/// assert_eq!(h2d([1.5f32, 2.5]).then(to_host).sync()?, [1.5, 2.5]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`], [`Error::OutOfHostMemory`], or an error of the device.
pub fn h2d<S: HostSource>(source: S) -> Op<Upload<S>> {
    Op::new(Upload(Live::new(State::Idle(source, Credit::new(), MemoryWait::new()))))
}

impl<S: HostSource> Submit for Upload<S> {
    type Output = DeviceBuffer<S::Element>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        if let State::Idle(source, credit, wait) = self.0.get()? {
            ready!(cx.poll_credit(credit, task))?;
            let len = source.elements()?.len();
            let allocate = |stream: &Stream| DeviceBuffer::uninitialized(stream, len);
            let allocated = ready!(cx.poll_allocation(wait, task, allocate));
            let State::Idle(source, ..) = self.0.take()? else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            let mut buffer = allocated?;
            match source.into_pinned() {
                Ok(pinned) => {
                    let uploaded = cx.enqueue(|stream| buffer.upload(stream, 0, pinned));
                    return Poll::Ready(uploaded.map(|_| buffer));
                }
                Err(source) => self.0.set(State::Copying(Copying::new(source, buffer))),
            };
        }
        let State::Copying(copying) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let copied = ready!(copying.poll(task, cx));
        match self.0.take()? {
            State::Copying(copying) => Poll::Ready(copied.map(|()| copying.target)),
            State::Idle(..) => Poll::Ready(Err(Error::AlreadyEnded)),
        }
    }
}
