//! `OpStreamExt`: runs the operations of a `futures` stream with a limit on those in flight.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};
use futures_core::{FusedStream, Stream};
use futures_util::stream::{Fuse, FuturesUnordered, StreamExt};
use pin_project::pin_project;

use crate::{
    op::{IntoDeviceOp, Op},
    policy::SchedulingPolicy,
    run::future::DeviceFuture,
};

/// Runs the operations of a [`futures` stream](Stream) with a limit on those in flight.
///
/// All forms take an operation from the source only while fewer than `limit` operations are in flight. An operation is
/// in flight until its result is yielded, so at most `limit` results are stored. A limit of 0 counts as 1, because a
/// stream without operations in flight would never make progress.
///
/// | | results in order | results as they end |
/// |---|---|---|
/// | default policy | [`run_buffered`](OpStreamExt::run_buffered) | [`run_buffer_unordered`](OpStreamExt::run_buffer_unordered) |
/// | given policy | [`schedule_buffered`](OpStreamExt::schedule_buffered) | [`schedule_buffer_unordered`](OpStreamExt::schedule_buffer_unordered) |
///
/// The stream works only while it is polled: it takes, starts and continues operations in `poll_next`. Dropping it
/// never blocks. Work that is in flight on the device then runs to its end or is skipped, as for a dropped
/// [`DeviceFuture`](crate::DeviceFuture). The other operations are dropped before they start.
///
/// # Errors
/// The error of an operation is an item, and the stream continues with the next operation. To stop at the first
/// error, use `futures::TryStreamExt::try_next` or `try_collect`, and drop the stream.
///
/// # Panics
/// None of its own. A panic in a closure of an operation passes through `poll_next`. If the stream is polled again, the
/// result of that operation is [`Error::Panicked`](cuda_core::Error::Panicked).
///
/// ```
/// use cuda_async::prelude::*;
/// use futures::{TryStreamExt, executor::block_on, stream};
///
/// // A thousand uploads; the memory of at most four exists at any time.
/// let ops = (0..1000u32).map(|n| h2d(vec![n; 100]).then(to_host).map(|v| v[99]));
/// let values: Vec<u32> = block_on(stream::iter(ops).run_buffered(4).try_collect())?;
/// assert_eq!(values, (0..1000).collect::<Vec<_>>());
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub trait OpStreamExt: Stream<Item: IntoDeviceOp> + Sized {
    /// Runs at most `limit` operations at a time, on the default policy, and yields their results in the order of the
    /// operations.
    fn run_buffered(self, limit: usize) -> RunBuffered<Self> {
        RunBuffered::new(self, FutureQueue::in_order(), limit, None)
    }

    /// Runs at most `limit` operations at a time, on the default policy, and yields their results as they end.
    fn run_buffer_unordered(self, limit: usize) -> RunBuffered<Self> {
        RunBuffered::new(self, FutureQueue::as_they_end(), limit, None)
    }

    /// Runs at most `limit` operations at a time, on streams that `policy` chooses, and yields their results in the
    /// order of the operations. The policy is owned: pass a reference or an `Arc` to keep it.
    fn schedule_buffered<P>(self, policy: P, limit: usize) -> RunBuffered<Self, P>
    where
        P: SchedulingPolicy,
    {
        RunBuffered::new(self, FutureQueue::in_order(), limit, Some(policy))
    }

    /// Runs at most `limit` operations at a time, on streams that `policy` chooses, and yields their results as they
    /// end. The policy is owned: pass a reference or an `Arc` to keep it.
    ///
    /// ```
    /// use cuda_async::{default_device, policy::LeastLoaded, prelude::*};
    /// use futures::{TryStreamExt, executor::block_on, stream};
    ///
    /// let policy = LeastLoaded::new(&default_device()?)?;
    /// let ops = stream::iter((0..50u32).map(|n| h2d([n]).then(to_host).map(|v| v[0])));
    /// let mut values: Vec<u32> = block_on(ops.schedule_buffer_unordered(&policy, 4).try_collect())?;
    /// values.sort();
    /// assert_eq!(values, (0..50).collect::<Vec<_>>());
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    fn schedule_buffer_unordered<P>(self, policy: P, limit: usize) -> RunBuffered<Self, P>
    where
        P: SchedulingPolicy,
    {
        RunBuffered::new(self, FutureQueue::as_they_end(), limit, Some(policy))
    }
}

impl<St: Stream<Item: IntoDeviceOp>> OpStreamExt for St {}

type Steps<St> = <<St as Stream>::Item as IntoDeviceOp>::Steps;
type Output<St> = <<St as Stream>::Item as IntoDeviceOp>::Output;

/// The stream that the methods of [`OpStreamExt`] return.
#[must_use = "a stream does nothing until it is polled"]
#[pin_project]
pub struct RunBuffered<St, P = Arc<dyn SchedulingPolicy>>
where
    St: Stream<Item: IntoDeviceOp>,
{
    #[pin]
    ops: Fuse<St>,
    in_flight: FutureQueue<DeviceFuture<Steps<St>>>,
    limit: usize,
    /// `None` is the default policy.
    policy: Option<P>,
}

impl<St, P> RunBuffered<St, P>
where
    St: Stream<Item: IntoDeviceOp>,
    P: SchedulingPolicy,
{
    fn new(
        ops: St,
        in_flight: FutureQueue<DeviceFuture<Steps<St>>>,
        limit: usize,
        policy: Option<P>,
    ) -> Self {
        Self { ops: ops.fuse(), in_flight, limit: limit.max(1), policy }
    }
}

fn start<O: IntoDeviceOp, P: SchedulingPolicy>(
    op: O,
    policy: Option<&P>,
) -> DeviceFuture<O::Steps> {
    let steps = Op::into_steps(op.into_op());
    match policy {
        Some(policy) => DeviceFuture::scheduled(steps, policy),
        None => DeviceFuture::idle(steps),
    }
}

impl<St, P> Stream for RunBuffered<St, P>
where
    St: Stream<Item: IntoDeviceOp>,
    P: SchedulingPolicy,
{
    type Item = Result<Output<St>>;

    fn poll_next(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        while this.in_flight.len() < *this.limit {
            match this.ops.as_mut().poll_next(task) {
                Poll::Ready(Some(op)) => this.in_flight.push(start(op, this.policy.as_ref())),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        match ready!(this.in_flight.poll_next(task)) {
            Some(result) => Poll::Ready(Some(result)),
            None if this.ops.is_done() => Poll::Ready(None),
            // The source is pending and wakes the task.
            None => Poll::Pending,
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.ops.size_hint();
        let in_flight = self.in_flight.len();
        (least.saturating_add(in_flight), most.and_then(|most| most.checked_add(in_flight)))
    }
}

impl<St, P> FusedStream for RunBuffered<St, P>
where
    St: Stream<Item: IntoDeviceOp>,
    P: SchedulingPolicy,
{
    fn is_terminated(&self) -> bool {
        self.ops.is_done() && self.in_flight.len() == 0
    }
}

impl<St, P> std::fmt::Debug for RunBuffered<St, P>
where
    St: Stream<Item: IntoDeviceOp>,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RunBuffered({} of {} in flight)", self.in_flight.len(), self.limit)
    }
}

/// Futures that run concurrently. The queue of the `futures` crate wakes the task, and polls only those that were
/// woken.
///
/// A future that panics is lost to that queue. Its result is then [`Error::Panicked`], so that every future gives one
/// result and a stream in order does not wait for it.
pub(super) struct FutureQueue<F: Future> {
    running: FuturesUnordered<Numbered<F>>,
    /// The number of futures without a yielded result.
    len: usize,
    order: Order<F::Output>,
}

enum Order<T> {
    AsTheyEnd,
    /// A place for each future without a yielded result, filled when it ends. The first place belongs to the future of
    /// this number.
    InOrder {
        first: u64,
        results: VecDeque<Option<T>>,
    },
}

impl<T, F: Future<Output = Result<T>> + Unpin> FutureQueue<F> {
    pub(super) fn as_they_end() -> Self {
        Self { running: FuturesUnordered::new(), len: 0, order: Order::AsTheyEnd }
    }

    pub(super) fn in_order() -> Self {
        let order = Order::InOrder { first: 0, results: VecDeque::new() };
        Self { running: FuturesUnordered::new(), len: 0, order }
    }

    pub(super) fn push(&mut self, future: F) {
        let number = match &mut self.order {
            Order::AsTheyEnd => 0,
            Order::InOrder { first, results } => {
                results.push_back(None);
                *first + results.len() as u64 - 1
            }
        };
        self.running.push(Numbered { number, future });
        self.len += 1;
    }

    /// The next result; `None` if there are no futures.
    pub(super) fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<T>>> {
        if self.len == 0 {
            return Poll::Ready(None);
        }
        let result = match &mut self.order {
            Order::AsTheyEnd => ready!(poll(&mut self.running, task)).map(|(_, result)| result),
            Order::InOrder { first, results } => {
                ready!(poll_in_order(&mut self.running, *first, results, task));
                *first += 1;
                results.pop_front().flatten()
            }
        };
        self.len -= 1;
        Poll::Ready(Some(result.unwrap_or_else(|| Err(panicked()))))
    }
}

impl<F: Future> FutureQueue<F> {
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cold]
fn panicked() -> Error {
    Error::Panicked { what: "an operation of the stream".into() }
}

type Running<F> = FuturesUnordered<Numbered<F>>;
type Ended<F> = (u64, <F as Future>::Output);

fn poll<F: Future + Unpin>(
    running: &mut Running<F>,
    task: &mut Context<'_>,
) -> Poll<Option<Ended<F>>> {
    Pin::new(running).poll_next(task)
}

/// Ready when the first place is filled, or when no future is left to fill it.
fn poll_in_order<F: Future + Unpin>(
    running: &mut Running<F>,
    first: u64,
    results: &mut VecDeque<Option<F::Output>>,
    task: &mut Context<'_>,
) -> Poll<()> {
    while let Some(None) = results.front() {
        let Some((number, result)) = ready!(poll(running, task)) else { break };
        if let Some(place) = results.get_mut((number - first) as usize) {
            *place = Some(result);
        }
    }
    Poll::Ready(())
}

struct Numbered<F> {
    number: u64,
    future: F,
}

impl<F: Future + Unpin> Future for Numbered<F> {
    type Output = Ended<F>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.future).poll(task));
        Poll::Ready((self.number, result))
    }
}
