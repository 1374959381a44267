//! `to_host`, `to_pinned`: download device memory to the host.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{DeviceBuffer, Element, Error, Landing, PinnedBuffer, Result, Waiter};

use crate::{
    context::ExecutionContext,
    memory::upload::{COPY_WINDOW, chunk_elements},
    op::{Live, Op, Submit},
};

/// A holder of a device buffer that can be read: the buffer, an `Arc` of it, or a borrow.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a device buffer to read",
    note = "`DeviceBuffer<T>`, `&DeviceBuffer<T>` and `Arc<DeviceBuffer<T>>` are; where an `Arc` is borrowed, clone it"
)]
pub trait BufferSource: Send {
    /// The element type.
    type Element: Element;

    /// The buffer.
    fn buffer(&self) -> &DeviceBuffer<Self::Element>;

    /// Downloads the whole buffer into ordinary host memory. Waits, without blocking an executor thread, until the
    /// bytes have arrived, so later steps see complete data.
    ///
    /// Takes the holder by value: `buffer.to_host_vec()` gives the buffer up. To keep it, use `to_host(&buffer)` or
    /// clone an `Arc` of it.
    fn to_host_vec(self) -> Op<ToHost<Self>>
    where
        Self: Sized,
    {
        to_host(self)
    }
}

impl<T: Element> BufferSource for DeviceBuffer<T> {
    type Element = T;

    fn buffer(&self) -> &DeviceBuffer<T> {
        self
    }
}

impl<T: Element> BufferSource for Arc<DeviceBuffer<T>> {
    type Element = T;

    fn buffer(&self) -> &DeviceBuffer<T> {
        self
    }
}

impl<T: Element> BufferSource for &DeviceBuffer<T> {
    type Element = T;

    fn buffer(&self) -> &DeviceBuffer<T> {
        self
    }
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
    Op::new(ToHost {
        source: Live::new(buffer),
        requested: 0,
        in_flight: VecDeque::new(),
        waiter: None,
        landed: Vec::new(),
    })
}

/// The steps of [`to_host`].
pub struct ToHost<B: BufferSource> {
    source: Live<B>,
    /// The number of elements whose download is submitted.
    requested: usize,
    in_flight: VecDeque<Landing<B::Element>>,
    waiter: Option<Waiter>,
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
    fn poll_copy(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<()>> {
        let len = self.source.get()?.buffer().len();
        self.reserve(len)?;
        loop {
            self.submit_chunks(cx, len)?;
            let Some(first) = self.in_flight.front_mut() else { return Poll::Ready(Ok(())) };
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

    fn submit_chunks(&mut self, cx: &ExecutionContext, len: usize) -> Result<()> {
        let source = self.source.get()?;
        while self.requested < len && self.in_flight.len() < COPY_WINDOW {
            let chunk = chunk_elements::<B::Element>().min(len - self.requested);
            let range = self.requested..self.requested + chunk;
            self.in_flight.push_back(download(cx, source.buffer(), range)?);
            self.requested += chunk;
        }
        Ok(())
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
    Op::new(ToPinned { source: Live::new(buffer), landing: None, waiter: None })
}

/// The steps of [`to_pinned`].
pub struct ToPinned<B: BufferSource> {
    source: Live<B>,
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
        if let Ok(source) = self.source.take() {
            let buffer = source.buffer();
            self.landing = Some(download(cx, buffer, 0..buffer.len())?);
        }
        let landing = self.landing.as_mut().ok_or(Error::AlreadyEnded)?;
        let landed = ready!(cx.poll_landing(landing, &mut self.waiter, task));
        self.landing = None;
        Poll::Ready(landed)
    }
}

fn download<T: Element>(
    cx: &ExecutionContext,
    buffer: &DeviceBuffer<T>,
    range: std::ops::Range<usize>,
) -> Result<Landing<T>> {
    let host = cx.device().landing_place(range.len())?;
    cx.enqueue(|stream| buffer.download(stream, range, host))
}
