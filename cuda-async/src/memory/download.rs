//! `to_host`, `to_host_into`, `to_pinned`: download device memory to the host.

use std::{
    collections::VecDeque,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{
    DeviceBuffer, Download, Element, PinnedBuffer, Pinning, Result, SharedSlice, Slice, SliceMut,
    Stream, Waiter,
};

use crate::{
    context::{CreditWait, ExecutionContext},
    memory::{
        host_copy::{self, COPY_BYTES, Copier, LargeCopy},
        scalar::{DeviceScalar, ScalarMut},
    },
    op::{Op, Submit, Submitted},
};

/// Device memory that can be read: a buffer, an `Arc` or a borrow of one, or a slice.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not device memory to read",
    label = "not device memory",
    note = "an operation runs first and passes its output on: `h2d(v).then(to_host)`, not `to_host(h2d(v))`",
    note = "`DeviceBuffer<T>`, `&DeviceBuffer<T>`, `&mut DeviceBuffer<T>`, `Arc<DeviceBuffer<T>>`, `&Arc<DeviceBuffer<T>>`, `Slice<T>`, `SharedSlice<T>`, `SliceMut<T>` and `DeviceScalar<T>` are",
    note = "for a tensor: `x.to_host_vec()` downloads its elements, and `cuda_launch!` takes it as `&x` or `&mut x`"
)]
pub trait BufferSource: Send {
    /// The element type.
    type Element: Element;

    /// Returns a slice of all elements.
    fn as_slice(&self) -> Slice<'_, Self::Element>;

    /// Downloads all elements into ordinary host memory. Waits, without blocking an executor thread, until the bytes
    /// have arrived, so later steps see complete data.
    ///
    /// Takes the buffer by value, so `buffer.to_host_vec()` consumes the buffer. To keep it, use
    /// [`read_back`](crate::memory::read_back), `to_host(&buffer)`, or clone an `Arc` of it.
    ///
    /// # Errors
    /// The errors of [`to_host`].
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
    &Arc<DeviceBuffer<T>>: self => (***self).as_slice();
    &DeviceBuffer<T>: self => (**self).as_slice();
    &mut DeviceBuffer<T>: self => (**self).as_slice();
    Slice<'_, T>: self => *self;
    SliceMut<'_, T>: self => self.as_slice();
    DeviceScalar<T>: self => DeviceScalar::as_slice(self);
    &DeviceScalar<T>: self => DeviceScalar::as_slice(self);
    ScalarMut<T>: self => self.scalar().as_slice();
    SharedSlice<T>: self => self.as_slice();
}

/// Downloads all elements of a buffer or slice; see [`BufferSource::to_host_vec`].
///
/// ```
/// use cuda_async::prelude::*;
/// let total = h2d(vec![1, 2, 3]).then(to_host).map(|v: Vec<i32>| v.iter().sum::<i32>());
/// assert_eq!(total.sync()?, 6);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::ContentsLost`](crate::Error::ContentsLost) if the memory has lost its contents,
/// [`Error::OutOfHostMemory`](crate::Error::OutOfHostMemory), [`Error::NeedsHostData`](crate::Error::NeedsHostData) in
/// [`async_on`](crate::DeviceOp::async_on), or an error of the device.
pub fn to_host<B: BufferSource>(buffer: B) -> Op<ToHost<B>> {
    to_host_into(buffer, Vec::new())
}

/// Downloads all elements of a buffer or slice into an existing vector, and gives the vector back. The new elements
/// replace the old ones. If the capacity of the vector is too small, it gets new memory.
///
/// Repeated downloads are faster into the same vector, because the system does not provide new memory each time.
///
/// ```
/// use cuda_async::{prelude::*, to_host_into};
/// let mut frame = Vec::new();
/// for round in 0..3u8 {
///     frame = h2d(vec![round; 4]).then(|buffer| to_host_into(buffer, frame)).sync()?;
///     assert_eq!(frame, [round; 4]);
/// }
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`to_host`]. The vector is then dropped.
pub fn to_host_into<B: BufferSource>(buffer: B, memory: Vec<B::Element>) -> Op<ToHost<B>> {
    Op::new(ToHost::new(buffer, memory))
}

/// The steps of [`to_host`] and [`to_host_into`].
pub struct ToHost<B: BufferSource> {
    source: B,
    /// The number of elements, once the copy has begun. A source that has fewer later is an error.
    len: Option<usize>,
    /// The number of elements whose download is submitted.
    requested: usize,
    in_flight: VecDeque<Download<B::Element>>,
    waiter: Option<Waiter>,
    credit: CreditWait,
    pinning: Option<Pinning<B::Element>>,
    /// The vector of the output. Empty while a copy has it.
    arrived: Vec<B::Element>,
    /// The number of elements of `arrived` that have their values.
    done: usize,
    /// The copy of arrived elements to `arrived`, if the helper thread makes it.
    copying: Option<LargeCopy<Vec<B::Element>>>,
}

impl<B: BufferSource> Submit for ToHost<B> {
    type Output = Vec<B::Element>;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(match self.poll_copy(task, cx)? {
            Poll::Ready(()) => Submitted::Ready(self.arrived),
            Poll::Pending => Submitted::Pending(self),
        })
    }
}

impl<B: BufferSource> ToHost<B> {
    fn new(buffer: B, memory: Vec<B::Element>) -> Self {
        let (in_flight, waiter, credit, pinning, copying) = Default::default();
        Self {
            source: buffer,
            len: None,
            requested: 0,
            in_flight,
            waiter,
            credit,
            pinning,
            arrived: memory,
            done: 0,
            copying,
        }
    }

    fn poll_copy(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<()>> {
        let all = match self.len {
            Some(len) => len,
            None => self.begin()?,
        };
        loop {
            // Arrived chunks are copied even while the next chunk waits for credit or for pinned memory.
            let submitted = self.poll_chunks(task, cx, all)?;
            if self.copying.is_some() {
                self.arrived = ready!(LargeCopy::poll(&mut self.copying, task, cx))?;
            }
            let Some(first) = self.in_flight.front_mut() else { return submitted.map(Ok) };
            let chunk = ready!(cx.waits().poll_download(first, &mut self.waiter, task))?;
            self.in_flight.pop_front();
            if self.take(chunk, cx)? == Copier::Poll
                && self.done < all
                && cx.waits().yield_now(task)
            {
                return Poll::Pending;
            }
        }
    }

    /// Makes room for the output. Returns the number of its elements.
    fn begin(&mut self) -> Result<usize> {
        let len = self.source.as_slice().len();
        let memory = std::mem::take(&mut self.arrived);
        self.arrived = match host_copy::is_large(len * size_of::<B::Element>()) {
            true => host_copy::writable(memory, len)?,
            false => host_copy::reserved(memory, len)?,
        };
        self.len = Some(len);
        Ok(len)
    }

    /// Copies arrived elements to their places.
    fn take(&mut self, chunk: PinnedBuffer<B::Element>, cx: &ExecutionContext) -> Result<Copier> {
        let copier = self.copier(cx);
        let places = self.done..self.done + chunk.len();
        self.done = places.end;
        match copier {
            Copier::Poll => self.arrived.extend_from_slice(&chunk),
            Copier::Threads => host_copy::copy(&chunk, &mut self.arrived[places]),
            Copier::Helper => {
                let mut arrived = std::mem::take(&mut self.arrived);
                self.copying = Some(LargeCopy::start(move || {
                    host_copy::copy(&chunk, &mut arrived[places]);
                    arrived
                })?);
            }
        }
        Ok(copier)
    }

    fn copier(&self, cx: &ExecutionContext) -> Copier {
        Copier::of(cx, self.len.unwrap_or(0) * size_of::<B::Element>(), true)
    }

    fn poll_chunks(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
        all: usize,
    ) -> Result<Poll<()>> {
        let copier = self.copier(cx);
        while self.requested < all {
            let chunk = copier.elements::<B::Element>().min(all - self.requested);
            let in_flight: usize = self.in_flight.iter().map(Download::len).sum();
            let bytes = (in_flight + chunk).saturating_mul(size_of::<B::Element>());
            if in_flight > 0 && bytes > COPY_BYTES {
                break;
            }
            if cx.poll_credit(&mut self.credit, task)?.is_pending() {
                return Ok(Poll::Pending);
            }
            let Poll::Ready(host) = cx.waits().poll_pinned(&mut self.pinning, chunk, task)? else {
                return Ok(Poll::Pending);
            };
            let part = self.source.as_slice().slice(self.requested..self.requested + chunk)?;
            self.in_flight.push_back(cx.enqueue(|stream| part.download(stream, host))?);
            self.requested += chunk;
            if copier != Copier::Poll {
                // The report is requested now, so it does not wait for later batches.
                cx.request_report()?;
            }
        }
        Ok(Poll::Ready(()))
    }
}

/// Downloads all elements and gives the device memory back. The output is the values and the device memory.
///
/// ```
/// use cuda_async::{memory::read_back, prelude::*};
/// let (values, buffer) = h2d([1u8, 2]).then(read_back).sync()?;
/// assert_eq!((values, buffer.len()), (vec![1, 2], 2));
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`to_host`].
pub fn read_back<B: BufferSource>(buffer: B) -> Op<ReadBack<B>> {
    Op::new(ReadBack(ToHost::new(buffer, Vec::new())))
}

/// The steps of [`read_back`].
pub struct ReadBack<B: BufferSource>(ToHost<B>);

impl<B: BufferSource> Submit for ReadBack<B> {
    type Output = (Vec<B::Element>, B);

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let copied = self.0.poll_copy(task, cx).map_err(|error| error.of_step("read_back"))?;
        Ok(match copied {
            Poll::Ready(()) => Submitted::Ready((self.0.arrived, self.0.source)),
            Poll::Pending => Submitted::Pending(self),
        })
    }
}

/// Downloads all elements of a buffer or slice into pinned memory with one copy.
///
/// ```
/// use cuda_async::{prelude::*, to_pinned};
/// assert_eq!(h2d([7u8, 8]).then(to_pinned).sync()?[..], [7, 8]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`to_host`].
pub fn to_pinned<B: BufferSource>(buffer: B) -> Op<ToPinned<B>> {
    let (credit, pinning, download, waiter) = Default::default();
    Op::new(ToPinned { source: buffer, credit, pinning, download, waiter })
}

/// The steps of [`to_pinned`].
pub struct ToPinned<B: BufferSource> {
    source: B,
    credit: CreditWait,
    pinning: Option<Pinning<B::Element>>,
    download: Option<Download<B::Element>>,
    waiter: Option<Waiter>,
}

impl<B: BufferSource> Submit for ToPinned<B> {
    type Output = PinnedBuffer<B::Element>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Submitted::poll(self, |steps| {
            steps.poll(task, cx).map_err(|error| error.of_step("to_pinned"))
        })
    }
}

impl<B: BufferSource> ToPinned<B> {
    fn poll(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<PinnedBuffer<B::Element>>> {
        let download = match &mut self.download {
            Some(download) => download,
            None => {
                let source = self.source.as_slice();
                ready!(cx.poll_credit(&mut self.credit, task))?;
                let host = ready!(cx.waits().poll_pinned(&mut self.pinning, source.len(), task))?;
                let download = cx.enqueue(|stream: &Stream| source.download(stream, host))?;
                self.download.insert(download)
            }
        };
        cx.waits().poll_download(download, &mut self.waiter, task)
    }
}
