//! `h2d`: uploads host data to the device. Ordinary host memory goes through pinned blocks ([`Copying`]).

use std::{
    collections::VecDeque,
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{
    DeviceBuffer, Error, Limit, PinnedBuffer, Pinning, Quantity, Result, Stream, Waiter,
};

use crate::{
    context::{CreditWait, ExecutionContext, MemoryWait, RunMode},
    memory::{
        host_copy::{self, COPY_BYTES, Copier, LargeCopy},
        source::{BufferTarget, HostSource},
    },
    op::{Op, Submit, Submitted},
};

/// The steps of [`h2d`].
pub struct Upload<S: HostSource>(State<S>);

enum State<S: HostSource> {
    Idle(S, CreditWait, MemoryWait),
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
/// [`Error::OutOfMemory`], [`Error::OutOfHostMemory`], or an error of the device. [`Error::OutOfRange`] if a
/// [`HostSource`] of your own changes its length.
pub fn h2d<S: HostSource>(source: S) -> Op<Upload<S>> {
    Op::new(Upload(State::Idle(source, CreditWait::new(), MemoryWait::new())))
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
                        check_lengths(buffer.len(), pinned.len())?;
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
    credit: &mut CreditWait,
    wait: &mut MemoryWait,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Poll<Result<DeviceBuffer<S::Element>>> {
    ready!(cx.poll_credit(credit, task))?;
    let len = source.elements()?.len();
    cx.waits()
        .poll_allocation(wait, task, |stream: &Stream| DeviceBuffer::uninitialized(stream, len))
}

/// A copy that has begun.
pub(super) struct Copying<S: HostSource, B> {
    source: Source<S>,
    pub(super) target: B,
    /// The number of elements of the target. A source that has fewer later is an error.
    len: usize,
    /// The number of elements whose upload is submitted.
    done: usize,
    in_flight: BlocksInFlight,
    waiter: Option<Waiter>,
    credit: CreditWait,
    pinning: Option<Pinning<S::Element>>,
    /// The copy of the next elements to pinned memory, if the helper thread makes it.
    copying: Option<LargeCopy<Result<PinnedBuffer<S::Element>>>>,
}

enum Source<S: HostSource> {
    Own(S),
    Shared(Arc<dyn HostSource<Element = S::Element> + Sync>),
}

/// The submissions whose blocks are not free yet, and the bytes of each.
#[derive(Default)]
struct BlocksInFlight {
    submissions: VecDeque<(u64, usize)>,
    bytes: usize,
}

impl BlocksInFlight {
    fn push(&mut self, number: u64, bytes: usize) {
        self.submissions.push_back((number, bytes));
        self.bytes += bytes;
    }

    fn pop(&mut self) {
        self.bytes -= self.submissions.pop_front().map_or(0, |(_, bytes)| bytes);
    }

    /// The submission to wait for before `bytes` more are copied.
    fn before(&self, bytes: usize) -> Option<u64> {
        let (first, _) = *self.submissions.front()?;
        (self.bytes + bytes > COPY_BYTES).then_some(first)
    }
}

impl<S: HostSource> Source<S> {
    fn new(source: S) -> Self {
        if !source.elements().is_ok_and(|elements| host_copy::is_large(size_of_val(elements))) {
            return Self::Own(source);
        }
        match source.into_shared() {
            Ok(shared) => Self::Shared(shared),
            Err(own) => Self::Own(own),
        }
    }

    fn elements(&self) -> Result<&[S::Element]> {
        match self {
            Self::Own(own) => own.elements(),
            Self::Shared(shared) => shared.elements(),
        }
    }
}

impl<S: HostSource, B: BufferTarget<Element = S::Element>> Copying<S, B> {
    /// The source has as many elements as the target.
    pub(super) fn new(source: S, mut target: B) -> Self {
        let (in_flight, waiter, credit, pinning, copying) = Default::default();
        let len = target.as_slice_mut().len();
        let source = Source::new(source);
        Self { source, target, len, done: 0, in_flight, waiter, credit, pinning, copying }
    }

    pub(super) fn poll(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<()>> {
        while self.done < self.len {
            let copier = self.copier(cx);
            let end = self.done.saturating_add(copier.elements::<S::Element>());
            let range = self.done..end.min(self.len);
            ready!(self.poll_window(range.len() * size_of::<S::Element>(), task, cx))?;
            ready!(cx.poll_credit(&mut self.credit, task))?;
            let pinned = ready!(self.poll_pinned(copier, range, task, cx))?;
            self.submit(pinned, copier, cx)?;
            if copier == Copier::Poll && self.done < self.len && cx.waits().yield_now(task) {
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }

    fn copier(&self, cx: &ExecutionContext) -> Copier {
        if self.copying.is_some() {
            return Copier::Helper;
        }
        let movable = matches!(self.source, Source::Shared(_));
        Copier::of(cx, self.len * size_of::<S::Element>(), movable)
    }

    /// Ready when few enough blocks are in flight. A detached run never polls again, so it takes as many as it needs.
    fn poll_window(
        &mut self,
        bytes: usize,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<()>> {
        while let Some(first) = self.in_flight.before(bytes) {
            if cx.mode_of_poll() != RunMode::Detached {
                ready!(cx.waits().poll_submission(first, &mut self.waiter, task))?;
            }
            self.in_flight.pop();
        }
        Poll::Ready(Ok(()))
    }

    /// Ready with the elements of `range` in pinned memory.
    fn poll_pinned(
        &mut self,
        copier: Copier,
        range: Range<usize>,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<PinnedBuffer<S::Element>>> {
        if self.copying.is_none() {
            let mut pinned = ready!(cx.waits().poll_pinned(&mut self.pinning, range.len(), task))?;
            // An earlier poll by another run may have requested a smaller block.
            let range = range.start..range.start + pinned.len();
            match (&self.source, copier) {
                (Source::Shared(source), Copier::Helper) => {
                    let source = source.clone();
                    self.copying = Some(LargeCopy::start(move || {
                        host_copy::copy(part(source.elements()?, range)?, &mut pinned);
                        Ok(pinned)
                    })?);
                }
                (source, Copier::Threads | Copier::Helper) => {
                    host_copy::copy(part(source.elements()?, range)?, &mut pinned);
                    return Poll::Ready(Ok(pinned));
                }
                (source, Copier::Poll) => {
                    pinned.copy_from_slice(part(source.elements()?, range)?);
                    return Poll::Ready(Ok(pinned));
                }
            }
        }
        LargeCopy::poll(&mut self.copying, task, cx).map(Result::flatten)
    }

    fn submit(
        &mut self,
        pinned: PinnedBuffer<S::Element>,
        copier: Copier,
        cx: &ExecutionContext,
    ) -> Result<()> {
        let (start, len) = (self.done, pinned.len());
        let mut target = self.target.as_slice_mut();
        let ticket = cx.enqueue(|stream| target.upload(stream, start, pinned))?;
        self.done += len;
        self.in_flight.push(ticket.number, len * size_of::<S::Element>());
        if copier != Copier::Poll {
            // The report is requested now, so it does not wait for later batches.
            cx.request_report()?;
        }
        Ok(())
    }
}

/// Some elements of a source.
fn part<T>(elements: &[T], range: Range<usize>) -> Result<&[T]> {
    let len = elements.len();
    elements.get(range.clone()).ok_or_else(|| {
        let limit = Limit::AtLeast(range.end as u64);
        let source = "a `HostSource` that changed during its upload";
        Error::out_of_range(source, Quantity::Elements, len as u64, limit)
    })
}

/// Checks that a source has as many elements as its target, of which a part would otherwise stay as it is.
pub(super) fn check_lengths(target: usize, source: usize) -> Result<()> {
    Limit::Exactly(target as u64).check("an upload", Quantity::Elements, source as u64)
}
