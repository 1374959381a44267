//! `h2d`: uploads host data to the device.

use std::task::{Context, Poll, ready};

use cuda_core::{DeviceBuffer, Result, Stream};

use crate::{
    context::{Credit, ExecutionContext, MemoryWait},
    memory::{copying::Copying, source::HostSource},
    op::{Op, Submit, Submitted},
};

/// The steps of [`h2d`].
pub struct Upload<S: HostSource>(State<S>);

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
    Op::new(Upload(State::Idle(source, Credit::new(), MemoryWait::new())))
}

impl<S: HostSource> Submit for Upload<S> {
    type Output = DeviceBuffer<S::Element>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let mut copying = match self.0 {
            State::Idle(source, mut credit, mut wait) => {
                let Poll::Ready(mut buffer) = allocate(&source, &mut credit, &mut wait, task, cx)?
                else {
                    return Ok(Submitted::Pending(Self(State::Idle(source, credit, wait))));
                };
                match source.into_pinned() {
                    Ok(pinned) => {
                        cx.enqueue(|stream| buffer.upload(stream, 0, pinned))?;
                        return Ok(Submitted::Ready(buffer));
                    }
                    Err(source) => Copying::new(source, buffer),
                }
            }
            State::Copying(copying) => copying,
        };
        Ok(match copying.poll(task, cx)? {
            Poll::Ready(()) => Submitted::Ready(copying.target),
            Poll::Pending => Submitted::Pending(Self(State::Copying(copying))),
        })
    }
}

fn allocate<S: HostSource>(
    source: &S,
    credit: &mut Credit,
    wait: &mut MemoryWait,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Poll<Result<DeviceBuffer<S::Element>>> {
    ready!(cx.poll_credit(credit, task))?;
    let len = source.elements()?.len();
    cx.poll_allocation(wait, task, |stream: &Stream| DeviceBuffer::uninitialized(stream, len))
}
