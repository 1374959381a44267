//! `to_host`, `to_pinned`: download device memory to the host.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{
    DeviceBuffer, Element, Error, Landing, PinnedBuffer, Pinning, Result, SharedSlice, Slice,
    SliceMut, Stream, Waiter,
};

use crate::{
    context::ExecutionContext,
    memory::chunk::{COPY_WINDOW, chunk_elements},
    op::{Live, Op, Submit},
};

/// Device memory that can be read: a buffer, an `Arc` or a borrow of one, or a slice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not device memory to read",
    note = "`DeviceBuffer<T>`, `&DeviceBuffer<T>`, `Arc<DeviceBuffer<T>>`, `Slice<T>`, `SharedSlice<T>` and `SliceMut<T>` are; where an `Arc` is borrowed, clone it"
)]
pub trait BufferSource: Send {
    /// The element type.
    type Element: Element;

    /// Its elements.
    fn as_slice(&self) -> Slice<'_, Self::Element>;

    /// Downloads all elements into ordinary host memory. Waits, without blocking an executor thread, until the bytes have
    /// arrived, so later steps see complete data.
    ///
    /// Takes the holder by value: `buffer.to_host_vec()` gives the buffer up. To keep it, use
    /// [`read_back`](crate::memory::read_back), `to_host(&buffer)`, or clone an `Arc` of it.
    fn to_host_vec(self) -> Op<ToHost<Self>>
    where
        Self: Sized,
    {
        to_host(self)
    }
}

macro_rules! sources {
    ($($source:ty: $self:ident => $slice:expr;)*) => {$(
        impl<T: Element> BufferSource for $source {
            type Element = T;

            fn as_slice(&$self) -> Slice<'_, T> {
                $slice
            }
        }
    )*};
}

sources! {
    DeviceBuffer<T>: self => self.as_slice();
    Arc<DeviceBuffer<T>>: self => (**self).as_slice();
    &DeviceBuffer<T>: self => (**self).as_slice();
    Slice<'_, T>: self => *self;
    SliceMut<'_, T>: self => self.as_slice();
    SharedSlice<T>: self => self.as_slice();
}

/// Downloads a whole device buffer; see [`BufferSource::to_host_vec`].
///
/// ```
/// use cuda_async::prelude::*;
/// let total = h2d(vec![1, 2, 3]).then(to_host).map(|v: Vec<i32>| v.iter().sum::<i32>());
/// assert_eq!(total.sync()?, 6);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn to_host<B: BufferSource>(buffer: B) -> Op<ToHost<B>> {
    Op::new(ToHost::new(buffer))
}

/// The steps of [`to_host`].
pub struct ToHost<B: BufferSource> {
    source: Live<B>,
    /// The number of elements whose download is submitted.
    requested: usize,
    in_flight: VecDeque<Landing<B::Element>>,
    waiter: Option<Waiter>,
    pinning: Option<Pinning<B::Element>>,
    landed: Vec<B::Element>,
}

impl<B: BufferSource> Submit for ToHost<B> {
    type Output = Vec<B::Element>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let outcome = ready!(self.poll_copy(task, cx));
        self.source.end();
        self.in_flight.clear();
        Poll::Ready(outcome.map(|()| std::mem::take(&mut self.landed)))
    }
}

impl<B: BufferSource> ToHost<B> {
    fn new(buffer: B) -> Self {
        let (in_flight, waiter, pinning, landed) = Default::default();
        Self { source: Live::new(buffer), requested: 0, in_flight, waiter, pinning, landed }
    }

    fn poll_copy(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<()>> {
        let len = self.source.get()?.as_slice().len();
        self.reserve(len)?;
        loop {
            // A chunk whose memory is not pinned yet does not hold up those that are in flight.
            let submitted = self.poll_chunks(task, cx, len)?;
            let Some(first) = self.in_flight.front_mut() else { return submitted.map(Ok) };
            let chunk = ready!(cx.poll_landing(first, &mut self.waiter, task))?;
            self.landed.extend_from_slice(&chunk);
            self.in_flight.pop_front();
            if self.landed.len() < len && cx.yield_now(task) {
                return Poll::Pending;
            }
        }
    }

    fn reserve(&mut self, len: usize) -> Result<()> {
        let bytes = (len as u64).saturating_mul(size_of::<B::Element>() as u64);
        let missing = len.saturating_sub(self.landed.len());
        self.landed
            .try_reserve_exact(missing)
            .map_err(|_| Error::OutOfHostMemory { requested: bytes })
    }

    fn poll_chunks(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
        len: usize,
    ) -> Result<Poll<()>> {
        let source = self.source.get()?;
        while self.requested < len && self.in_flight.len() < COPY_WINDOW {
            let chunk = chunk_elements::<B::Element>().min(len - self.requested);
            let range = self.requested..self.requested + chunk;
            let Poll::Ready(host) = cx.poll_pinned(&mut self.pinning, chunk, task)? else {
                return Ok(Poll::Pending);
            };
            let part = source.as_slice().slice(range)?;
            self.in_flight.push_back(cx.enqueue(|stream| part.download(stream, host))?);
            self.requested += chunk;
        }
        Ok(Poll::Ready(()))
    }
}

/// Downloads all elements, and gives the memory back beside them.
///
/// ```
/// use cuda_async::{memory::read_back, prelude::*};
/// let (values, buffer) = h2d([1u8, 2]).then(read_back).sync()?;
/// assert_eq!((values, buffer.len()), (vec![1, 2], 2));
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// An error of the device.
pub fn read_back<B: BufferSource>(buffer: B) -> Op<ReadBack<B>> {
    Op::new(ReadBack(ToHost::new(buffer)))
}

/// The steps of [`read_back`].
pub struct ReadBack<B: BufferSource>(ToHost<B>);

impl<B: BufferSource> Submit for ReadBack<B> {
    type Output = (Vec<B::Element>, B);

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let outcome = ready!(self.0.poll_copy(task, cx));
        self.0.in_flight.clear();
        let source = self.0.source.take()?;
        Poll::Ready(outcome.map(|()| (std::mem::take(&mut self.0.landed), source)))
    }
}

/// Downloads a whole device buffer into pinned memory with one copy.
///
/// ```
/// use cuda_async::{prelude::*, to_pinned};
/// assert_eq!(h2d([7u8, 8]).then(to_pinned).sync()?[..], [7, 8]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub fn to_pinned<B: BufferSource>(buffer: B) -> Op<ToPinned<B>> {
    Op::new(ToPinned { source: Live::new(buffer), pinning: None, landing: None, waiter: None })
}

/// The steps of [`to_pinned`].
pub struct ToPinned<B: BufferSource> {
    source: Live<B>,
    pinning: Option<Pinning<B::Element>>,
    landing: Option<Landing<B::Element>>,
    waiter: Option<Waiter>,
}

impl<B: BufferSource> Submit for ToPinned<B> {
    type Output = PinnedBuffer<B::Element>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        if let Ok(source) = self.source.get() {
            let len = source.as_slice().len();
            let host = ready!(cx.poll_pinned(&mut self.pinning, len, task))?;
            let source = self.source.take()?;
            let download = |stream: &Stream| source.as_slice().download(stream, host);
            self.landing = Some(cx.enqueue(download)?);
        }
        let landing = self.landing.as_mut().ok_or(Error::AlreadyEnded)?;
        let landed = ready!(cx.poll_landing(landing, &mut self.waiter, task));
        self.landing = None;
        Poll::Ready(landed)
    }
}
