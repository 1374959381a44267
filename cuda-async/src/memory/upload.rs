//! `h2d`: uploads host data to the device.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{DeviceBuffer, Element, Error, PinnedBuffer, Pinning, Result, Stream, Waiter};

use crate::{
    context::{Credit, ExecutionContext, MemoryWait, RunMode},
    memory::{
        chunk::{COPY_WINDOW, chunk_elements},
        target::BufferTarget,
    },
    op::{Live, Op, Submit},
};

/// Host data that can be uploaded: vectors, slices, arrays, `Arc`s of them, and pinned buffers. A pinned buffer is
/// not copied on the host.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be uploaded",
    note = "vectors, slices, arrays and `Arc`s of numbers can, and of structs that derive `bytemuck::Pod`; turn `bool` into `u8`"
)]
pub trait HostSource: Send {
    /// The element type.
    type Element: Element;

    /// All elements.
    fn elements(&self) -> &[Self::Element];

    /// Converts the data into a pinned buffer if it is one.
    ///
    /// # Errors
    /// Returns the data itself if it is not pinned.
    fn into_pinned(self) -> Result<PinnedBuffer<Self::Element>, Self>
    where
        Self: Sized,
    {
        Err(self)
    }
}

macro_rules! slices {
    ($([$($generics:tt)*] $source:ty;)*) => {$(
        impl<$($generics)*> HostSource for $source {
            type Element = T;

            fn elements(&self) -> &[T] {
                &self[..]
            }
        }
    )*};
}

slices! {
    [T: Element] Vec<T>;
    [T: Element] Box<[T]>;
    [T: Element] Arc<[T]>;
    [T: Element] Arc<Vec<T>>;
    [T: Element] &[T];
    [T: Element] &Vec<T>;
    [T: Element, const N: usize] [T; N];
    [T: Element, const N: usize] &[T; N];
}

impl<T: Element> HostSource for PinnedBuffer<T> {
    type Element = T;

    fn elements(&self) -> &[T] {
        self
    }

    fn into_pinned(self) -> Result<PinnedBuffer<T>, Self> {
        Ok(self)
    }
}

/// The steps of [`h2d`].
pub struct Upload<S: HostSource>(Live<State<S>>);

enum State<S: HostSource> {
    Idle(S, Credit, MemoryWait),
    Copying(Copying<S, DeviceBuffer<S::Element>>),
}

/// A copy in chunks from ordinary host memory to device memory.
pub(super) struct Copying<S: HostSource, B> {
    source: S,
    pub(super) target: B,
    done: usize,
    /// The submissions of the chunks in flight.
    in_flight: VecDeque<u64>,
    waiter: Option<Waiter>,
    pinning: Option<Pinning<S::Element>>,
}

/// Uploads host data into a new device buffer.
///
/// The data is copied through pinned blocks of [`COPY_CHUNK`](crate::memory::COPY_CHUNK) bytes, at most [`COPY_WINDOW`](crate::memory::COPY_WINDOW) of them at a time. A
/// [`PinnedBuffer`] is uploaded directly.
///
/// ```
/// use cuda_async::prelude::*;
/// assert_eq!(h2d([1.5f32, 2.5]).then(to_host).sync()?, [1.5, 2.5]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
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
            let len = source.elements().len();
            let allocate = |stream: &Stream| DeviceBuffer::uninitialised(stream, len);
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

impl<S: HostSource, B: BufferTarget<Element = S::Element>> Copying<S, B> {
    pub(super) fn new(source: S, target: B) -> Self {
        let (in_flight, waiter, pinning) = Default::default();
        Self { source, target, done: 0, in_flight, waiter, pinning }
    }

    pub(super) fn poll(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<()>> {
        while self.done < self.source.elements().len() {
            if self.in_flight.len() == COPY_WINDOW {
                // A run that only submits never polls again, so it takes as many blocks as it needs.
                if cx.mode_of_poll() != RunMode::Detached {
                    ready!(cx.poll_submission(self.in_flight[0], &mut self.waiter, task))?;
                }
                self.in_flight.pop_front();
            }
            ready!(self.poll_chunk(task, cx))?;
            if self.done < self.source.elements().len() && cx.yield_now(task) {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn poll_chunk(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<()>> {
        let rest = self.source.elements().get(self.done..).unwrap_or_default();
        let chunk = &rest[..chunk_elements::<S::Element>().min(rest.len())];
        let mut pinned = ready!(cx.poll_pinned(&mut self.pinning, chunk.len(), task))?;
        pinned.copy_from_slice(chunk);
        let mut target = self.target.as_slice_mut();
        let ticket = cx.enqueue(|stream| target.upload(stream, self.done, pinned))?;
        self.done += chunk.len();
        self.in_flight.push_back(ticket.number);
        Poll::Ready(Ok(()))
    }
}
