//! `retry`: makes and runs an operation again when it fails.

use std::{task::Context, time::Duration};

use cuda_core::{Error, Result};

use crate::{
    context::ExecutionContext,
    op::{IntoDeviceOp, Op, Submit, Submitted},
    ops::settled::Settled,
    wake::timer::Sleep,
};

/// The settings of [`retry`]: further attempts, the pauses between them, and the errors that allow them. `P` is a
/// `FnMut(&Error) -> bool`.
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
    /// Allows this many attempts after the first, for errors that are [retryable](Error::is_retryable). The pauses are
    /// 10 ms, 20 ms, 40 ms and so on, at most one second.
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
    /// Sets the pauses: `first` before the second attempt. Each further pause is `factor` times as long, and at most
    /// `longest`. A factor that is below one or is not a number counts as one. Without a pause, the operation yields to
    /// its executor and tries again immediately.
    pub const fn backoff(mut self, first: Duration, factor: f64, longest: Duration) -> Self {
        self.pause = first;
        self.factor = if factor > 1.0 { factor } else { 1.0 };
        self.longest = longest;
        self
    }

    /// Retries only after errors for which `when` returns true.
    pub fn when<Q: FnMut(&Error) -> bool>(self, when: Q) -> Retry<Q> {
        let Self { left, pause, factor, longest, .. } = self;
        Retry { left, pause, factor, longest, when }
    }

    /// Returns the pause before the next attempt.
    fn next_pause(&mut self) -> Duration {
        let pause = self.pause.min(self.longest);
        let next = Duration::try_from_secs_f64(pause.as_secs_f64() * self.factor);
        self.pause = next.unwrap_or(self.longest);
        pause
    }
}

/// The steps of [`retry`].
pub struct Retrying<P, F, S: Submit> {
    retry: Retry<P>,
    make: F,
    attempt: Attempt<S>,
}

enum Attempt<S: Submit> {
    Next,
    Running(Settled<S>),
    Pausing(Sleep),
}

/// Runs an operation from `make`, and tries again with a new one if it fails. Failures on the host and on the device
/// both count. The pause before each further attempt blocks no thread.
///
/// Every attempt is [`settled`](crate::ops::DeviceOp::settled).
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
/// The error of the last attempt. [`Error::NeedsHostData`] in [`async_on`](crate::DeviceOp::async_on), where steps may
/// not wait.
pub fn retry<P, F, O>(retry: Retry<P>, make: F) -> Op<Retrying<P, F, O::Steps>>
where
    P: FnMut(&Error) -> bool + Send,
    F: FnMut() -> O + Send,
    O: IntoDeviceOp,
{
    Op::new(Retrying { retry, make, attempt: Attempt::Next })
}

impl<P, F, O, S> Submit for Retrying<P, F, S>
where
    P: FnMut(&Error) -> bool + Send,
    F: FnMut() -> O + Send,
    O: IntoDeviceOp<Output = S::Output, Steps = S>,
    S: Submit,
{
    type Output = S::Output;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { mut retry, mut make, mut attempt } = self;
        loop {
            attempt = match attempt {
                Attempt::Next => {
                    cx.waits().may_wait("retry")?;
                    Attempt::Running(Settled::new(make().into_op().into_steps()))
                }
                Attempt::Running(steps) => match steps.submit(task, cx) {
                    Ok(Submitted::Ready(output)) => return Ok(Submitted::Ready(output)),
                    Ok(Submitted::Pending(steps)) => {
                        let attempt = Attempt::Running(steps);
                        return Ok(Submitted::Pending(Self { retry, make, attempt }));
                    }
                    Err(error) if retry.again_after(&error) => {
                        cx.waits().wait_by_wakers("retry", task)?;
                        let pause = retry.next_pause();
                        if pause.is_zero() {
                            // Yields, so that a timeout can end the operation.
                            task.waker().wake_by_ref();
                            let attempt = Attempt::Next;
                            return Ok(Submitted::Pending(Self { retry, make, attempt }));
                        }
                        Attempt::Pausing(Sleep::new(pause))
                    }
                    Err(error) => return Err(error),
                },
                Attempt::Pausing(mut sleep) => {
                    if sleep.poll(task)?.is_pending() {
                        let attempt = Attempt::Pausing(sleep);
                        return Ok(Submitted::Pending(Self { retry, make, attempt }));
                    }
                    Attempt::Next
                }
            };
        }
    }
}

impl<P: FnMut(&Error) -> bool> Retry<P> {
    /// Counts an attempt after an error. Returns false if there is none left, or none for this error.
    fn again_after(&mut self, error: &Error) -> bool {
        if self.left == 0 || !(self.when)(error) {
            return false;
        }
        self.left -= 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_limit() {
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
