//! `FutureQueue`: the futures of a stream adapter, and the results that it has not yielded.

use std::{
    collections::VecDeque,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Result};
use futures_core::Stream;
use futures_util::stream::FuturesUnordered;

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
