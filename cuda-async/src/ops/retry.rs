//! `retry`: an operation that is made again when it fails.

use std::{
    task::{Context, Poll, ready},
    time::Duration,
};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit},
    ops::settled::Settled,
    wake::timer::Sleep,
};

/// How often and how soon to try again, and after which errors; `P` is a `FnMut(&Error) -> bool`.
///
/// ```
/// use std::time::Duration;
/// use cuda_async::Retry;
/// let often = Retry::times(10).backoff(Duration::from_millis(1), 2.0, Duration::from_millis(100));
/// let also_when_late = often.when(|error| matches!(error, cuda_async::Error::TimedOut { .. }));
/// # let _ = also_when_late;
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Retry<P = fn(&Error) -> bool> {
    left: u32,
    pause: Duration,
    factor: f64,
    longest: Duration,
    when: P,
}

impl Retry {
    /// At most this many times after the first, for errors that are [retryable](Error::is_retryable); with a
    /// pause of 10 ms, then 20, 40 and so on, at most a second.
    pub const fn times(times: u32) -> Self {
        Self {
            left: times,
            pause: Duration::from_millis(10),
            factor: 2.0,
            longest: Duration::from_secs(1),
            when: Error::is_retryable,
        }
    }
}

impl<P> Retry<P> {
    /// A pause of `first` before the second try; each further one is `factor` times as long, and none longer
    /// than `longest`. Factors below one, and such as are no numbers, count as one.
    pub const fn backoff(mut self, first: Duration, factor: f64, longest: Duration) -> Self {
        self.pause = first;
        self.factor = if factor > 1.0 { factor } else { 1.0 };
        self.longest = longest;
        self
    }

    /// After errors for which `when` says so, and no others.
    pub fn when<Q: FnMut(&Error) -> bool>(self, when: Q) -> Retry<Q> {
        let Self { left, pause, factor, longest, .. } = self;
        Retry { left, pause, factor, longest, when }
    }

    /// The pause before the next try.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause.min(self.longest);
        let next = Duration::try_from_secs_f64(pause.as_secs_f64() * self.factor);
        self.pause = next.unwrap_or(self.longest);
        pause
    }
}

/// Steps of [`retry`].
pub struct Retrying<P, F, S: Submit> {
    retry: Retry<P>,
    make: F,
    turn: Turn<S>,
}

enum Turn<S: Submit> {
    Next,
    Runs(Settled<S>),
    Pauses(Sleep),
    Ended,
}

/// Runs the operation that `make` makes. Where it fails, also on the device, runs another one, after a pause
/// that holds no thread.
///
/// Every try is [`settled`](crate::ops::DeviceOp::settled).
///
/// ```
/// use cuda_async::{Retry, prelude::*, retry};
/// let batch = vec![1u8; 100];
/// let op = retry(Retry::times(3), || h2d(&batch).then(to_host)); // out of memory? try again
/// assert_eq!(op.sync()?, batch);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The last one.
pub fn retry<P, F, O>(retry: Retry<P>, make: F) -> Op<Retrying<P, F, O::Steps>>
where
    P: FnMut(&Error) -> bool + Send,
    F: FnMut() -> O + Send,
    O: IntoDeviceOp,
{
    Op::new(Retrying { retry, make, turn: Turn::Next })
}

impl<P, F, O, S> Submit for Retrying<P, F, S>
where
    P: FnMut(&Error) -> bool + Send,
    F: FnMut() -> O + Send,
    O: IntoDeviceOp<Output = S::Output, Steps = S>,
    S: Submit,
{
    type Output = S::Output;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<S::Output>> {
        loop {
            match &mut self.turn {
                Turn::Next => {
                    self.turn = Turn::Ended;
                    let steps = (self.make)().into_op().into_steps();
                    self.turn = Turn::Runs(Settled::new(steps));
                }
                Turn::Runs(steps) => {
                    let settled = ready!(steps.poll_submit(task, cx));
                    self.turn = Turn::Ended;
                    match settled {
                        Err(error) if self.again_after(&error) => self.pause(task, cx)?,
                        settled => return Poll::Ready(settled),
                    }
                }
                Turn::Pauses(sleep) => {
                    let slept = ready!(sleep.poll(task));
                    self.turn = Turn::Ended;
                    slept?;
                    self.turn = Turn::Next;
                }
                Turn::Ended => return Poll::Ready(Err(Error::AlreadyEnded)),
            }
        }
    }
}

impl<P: FnMut(&Error) -> bool, F, S: Submit> Retrying<P, F, S> {
    fn again_after(&mut self, error: &Error) -> bool {
        if self.retry.left == 0 || !(self.retry.when)(error) {
            return false;
        }
        self.retry.left -= 1;
        true
    }

    fn pause(&mut self, task: &Context<'_>, cx: &ExecutionContext) -> Result<()> {
        cx.wait_by_wakers(task)?;
        self.turn = Turn::Pauses(Sleep::new(self.retry.next_pause()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_longest() {
        let millis = Duration::from_millis;
        let mut retry = Retry::times(9).backoff(millis(10), 3.0, millis(100));
        let pauses: Vec<_> = (0..5).map(|_| retry.next_pause()).collect();
        assert_eq!(pauses, [millis(10), millis(30), millis(90), millis(100), millis(100)]);
        let mut constant = Retry::times(9).backoff(millis(5), f64::NAN, Duration::MAX);
        assert!((0..5).all(|_| constant.next_pause() == millis(5)));
        let mut endless = Retry::times(9).backoff(Duration::MAX, f64::INFINITY, Duration::MAX);
        assert!((0..5).all(|_| endless.next_pause() == Duration::MAX));
    }
}
