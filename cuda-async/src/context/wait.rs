//! The waits of a context: for submissions on its stream, for credit, and for memory. A blocking run waits on its own
//! thread.
//!
//! # Spinning
//! A wake needs two threads: the completion thread sees the progress, and the executor polls the task. A query of the
//! stream takes 0.2 us, and a small kernel is complete about 9 us after its launch. So a future that is the only one in
//! flight queries for at most [`max_spin`] before it registers its waker. After a spin that found no result, the next
//! [`RETRY`] waits do not spin. With several futures in flight no future spins, because the executor has other tasks to
//! run. A forgotten future stays in flight.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use cuda_core::{
    Device, Download, Element, Error, MemoryWaiter, Misuse, PinnedBuffer, Pinning, Result, Stream,
    Ticket, Waiter,
    internals::{check_may_wait, check_not_lost, delivers_here, idle_pinned},
};

use crate::{
    context::{ExecutionContext, RunInFlight, RunMode},
    wake::timer::{Sleep, is_timer_thread},
};

/// The waits of the steps of a context.
pub(crate) struct Waits<'a>(&'a ExecutionContext);

impl ExecutionContext {
    /// Returns the waits of this context's steps.
    #[inline]
    pub(crate) fn waits(&self) -> Waits<'_> {
        Waits(self)
    }

    /// Polls for [credit](cuda_core::Credit) to submit more work to the stream. There is credit while fewer
    /// submissions, and fewer bytes of host memory, are in flight than the device allows. Always ready in
    /// [`async_on`](crate::DeviceOp::async_on), which checks the credit before the first step, and in recordings: steps
    /// may not wait there.
    #[inline]
    pub fn poll_credit(&self, credit: &mut CreditWait, task: &mut Context<'_>) -> Poll<Result<()>> {
        let stream = self.stream()?;
        if stream.credit().is_available() {
            return Poll::Ready(Ok(()));
        }
        match self.mode() {
            RunMode::Detached => Poll::Ready(Ok(())),
            // Blocks without a waker, because this thread may deliver the wakes.
            RunMode::Blocking => Poll::Ready(stream.credit().wait()),
            RunMode::Async => wait_for_credit(stream, credit, task),
        }
    }
}

impl Waits<'_> {
    /// Ready when the bytes of a download have arrived.
    pub(crate) fn poll_download<T: Element>(
        &self,
        download: &mut Download<T>,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<PinnedBuffer<T>>> {
        if self.0.mode() == RunMode::Detached {
            return Poll::Ready(Err(Error::needs_host_data("to_host")));
        }
        ready!(self.poll_submission(download.ticket().number, waiter, task))?;
        Poll::Ready(download.try_take().unwrap_or(Err(Error::AlreadyEnded)))
    }

    /// Ready when submission `number` of this context's stream is complete. In a detached run, where steps may not
    /// wait, it is ready at once.
    pub(crate) fn poll_submission(
        &self,
        number: u64,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        self.poll_submission_on(self.0.stream()?, number, waiter, task)
    }

    /// As [`poll_submission`](Self::poll_submission), for a stream that is not this context's.
    pub(crate) fn poll_submission_on(
        &self,
        stream: &Stream,
        number: u64,
        waiter: &mut Option<Waiter>,
        task: &mut Context<'_>,
    ) -> Poll<Result<()>> {
        match self.0.mode() {
            RunMode::Detached => Poll::Ready(Ok(())),
            RunMode::Blocking => {
                if self.0.known_shared().is_none() {
                    // The run is one sequence of steps, so no other step could continue in the meantime.
                    return Poll::Ready(stream.synchronize_to(number));
                }
                let known = stream.outcome(number).or_else(|| self.take_failure(stream, number));
                known.map_or_else(|| self.block_on(stream, number), Poll::Ready)
            }
            RunMode::Async => poll_waiter(stream, number, waiter, task),
        }
    }

    /// Ready with a pinned buffer of `len` elements, which holds bytes of an earlier copy. If a new block has to be
    /// pinned, a helper thread does so in an async run on a GPU. In a blocking or detached run the calling thread pins
    /// it.
    pub(crate) fn poll_pinned<T: Element>(
        &self,
        pinning: &mut Option<Pinning<T>>,
        len: usize,
        task: &mut Context<'_>,
    ) -> Poll<Result<PinnedBuffer<T>>> {
        if pinning.is_none()
            && let Some(idle) = idle_pinned(self.0.device(), len)?
        {
            return Poll::Ready(Ok(idle));
        }
        let pending = pinning.get_or_insert_with(|| self.0.device().start_pinning(len));
        let polled = match self.0.mode_of_poll() {
            RunMode::Async => pending.poll(task),
            RunMode::Blocking | RunMode::Detached => Poll::Ready(pending.wait()),
        };
        if polled.is_ready() {
            *pinning = None;
        }
        polled
    }

    /// Yields to the executor during long host work. Returns whether the caller must return pending.
    pub(crate) fn yield_now(&self, task: &mut Context<'_>) -> bool {
        let yields = self.0.mode_of_poll() == RunMode::Async;
        if yields {
            task.waker().wake_by_ref();
        }
        yields
    }

    /// Whether the stream is known to have credit.
    #[inline]
    pub(crate) fn has_credit(&self) -> bool {
        self.0.known_stream().is_some_and(|stream| stream.credit().is_available())
    }

    /// Enqueues an allocation. If this context waits for memory and the device has too little, the allocation is
    /// pending until it succeeds or the time is over.
    pub(crate) fn poll_allocation<R>(
        &self,
        wait: &mut MemoryWait,
        task: &Context<'_>,
        mut allocate: impl FnMut(&Stream) -> Result<R>,
    ) -> Poll<Result<R>> {
        loop {
            let error = match self.0.enqueue(&mut allocate) {
                Err(error) => error,
                Ok(allocated) => return Poll::Ready(Ok(allocated)),
            };
            let Some(max) = self.wait_for(&error) else { return Poll::Ready(Err(error)) };
            let first = wait.0.is_none();
            if first {
                self.wait_by_wakers("wait_for_memory", task)?;
            }
            let waits = wait.0.get_or_insert_with(|| Box::new(MemoryWaits::new(self.0, max)));
            if waits.is_over() {
                return Poll::Ready(Err(error));
            }
            waits.waiter.register(task);
            // After the first registration the loop tries again: memory may have been freed just before it.
            if !first {
                ready!(waits.poll(task))?;
            }
        }
    }

    /// The time for which to wait after this error; `None` if this context does not wait, or if waiting cannot help.
    fn wait_for(&self, error: &Error) -> Option<Duration> {
        match error {
            // A request larger than the device never succeeds.
            Error::OutOfMemory { requested, total, .. } if requested > total && *total > 0 => None,
            Error::OutOfMemory { .. } if self.0.mode() != RunMode::Detached => {
                self.0.allocation_rules().wait
            }
            _ => None,
        }
    }

    /// Checks that steps may wait in this run.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`] if they may not. It names `step`.
    pub(crate) fn may_wait(&self, step: &'static str) -> Result<()> {
        match self.0.mode() {
            RunMode::Detached => Err(Error::needs_host_data(step)),
            RunMode::Async | RunMode::Blocking => Ok(()),
        }
    }

    /// Checks that steps may wait in this run for a waker.
    ///
    /// # Errors
    /// [`Error::NeedsHostData`], which names `step`, if steps may not wait in this run. [`Error::Misuse`] inside the
    /// output function of the device, and inside a waker: the timer thread and the thread that delivers a device's
    /// notices could not wake themselves.
    pub(crate) fn may_wait_for_waker(&self, step: &'static str) -> Result<()> {
        self.may_wait(step)?;
        match self.0.mode() {
            RunMode::Blocking => check_may_park(Some(self.0.device())),
            RunMode::Async | RunMode::Detached => Ok(()),
        }
    }

    /// Makes all later waits of this run use wakers, also in a blocking run. A thread that blocks on one stream
    /// sees neither the progress of another stream nor the end of a timeout.
    ///
    /// # Errors
    /// The errors of [`may_wait_for_waker`](Self::may_wait_for_waker).
    pub(crate) fn wait_by_wakers(&self, step: &'static str, task: &Context<'_>) -> Result<()> {
        self.may_wait_for_waker(step)?;
        if self.0.mode() == RunMode::Blocking {
            self.0.shared().root_data().by_wakers.get_or_init(RunInFlight::new);
            // Steps that were polled before this have registered no waker.
            task.waker().wake_by_ref();
        }
        Ok(())
    }

    /// Stores the submission that the blocking thread waits for.
    pub(super) fn block_on<T>(&self, stream: &Stream, number: u64) -> Poll<Result<T>> {
        self.0.shared().root_data().blocked.lock().on = Some((stream.clone(), number));
        Poll::Pending
    }

    /// Blocks until submission `number` of this context is complete.
    #[inline]
    pub(crate) fn block_until(&self, number: u64) -> Result<()> {
        self.0.stream()?.synchronize_to(number)
    }

    /// Blocks for the submission that [`block_on`](Self::block_on) named. Returns false, without blocking, if there is
    /// none or if the run waits by wakers.
    ///
    /// If the wait fails, the step that waits gets the error and decides what follows.
    pub(crate) fn block(&self) -> bool {
        let Some(shared) = self.0.known_shared() else { return false };
        let root = shared.root_data();
        let blocked_on = root.blocked.lock().on.take();
        let Some((stream, number)) = blocked_on.filter(|_| self.0.mode() == RunMode::Blocking)
        else {
            return false;
        };
        if let Err(error) = stream.synchronize_to(number) {
            let ticket = Ticket { stream: stream.id(), number };
            root.blocked.lock().failed = Some((ticket, error));
        }
        true
    }

    /// Takes the error of a failed wait for this submission.
    pub(super) fn take_failure(&self, stream: &Stream, number: u64) -> Option<Result<()>> {
        let mut blocked = self.0.known_shared()?.root_data().blocked.lock();
        let ticket = Ticket { stream: stream.id(), number };
        let (_, error) = blocked.failed.take_if(|(failed, _)| *failed == ticket)?;
        Some(Err(error))
    }
}

/// Checks that another thread calls the wakers that this thread parks for. `device` is that of the run, if it has begun.
///
/// # Errors
/// [`Error::Misuse`] inside the output function of the device, on the timer thread, and on a thread that delivers the
/// device's notices.
pub(crate) fn check_may_park(device: Option<&Device>) -> Result<()> {
    device.map_or(Ok(()), check_may_wait)?;
    let is_own = is_timer_thread() || device.is_some_and(delivers_here);
    if is_own { Err(Misuse::BlockingWaker.into()) } else { Ok(()) }
}

/// Spins for a short time if that is worth it, and then registers a waker.
fn poll_waiter(
    stream: &Stream,
    number: u64,
    waiter: &mut Option<Waiter>,
    task: &mut Context<'_>,
) -> Poll<Result<()>> {
    if waiter.is_none() {
        if let Some(outcome) = outcome_after_spin(stream, number) {
            return Poll::Ready(outcome);
        }
        *waiter = Some(stream.waiter(number)?);
    }
    let polled = waiter.as_mut().map_or(Poll::Ready(Ok(())), |waiter| waiter.poll(task));
    if polled.is_ready() {
        *waiter = None;
        // The waiter reports one submission. The handle also reports failures of its earlier ones.
        if let Some(outcome) = stream.outcome(number) {
            return Poll::Ready(outcome);
        }
    }
    polled
}

/// A step's wait for credit, used by [`ExecutionContext::poll_credit`]. Each step owns one, because several waiting
/// steps may share a context. A clone starts without a wait.
#[derive(Default)]
pub struct CreditWait(Option<Box<Waiter>>);

impl CreditWait {
    /// Creates a wait that has not started.
    #[inline]
    pub const fn new() -> Self {
        Self(None)
    }

    /// Ready when at most half of each limit of the stream is in flight. Work that is submitted after the first poll
    /// does not count.
    fn poll(&mut self, stream: &Stream, task: &mut Context<'_>) -> Poll<Result<()>> {
        let mut waiter = match self.0.take() {
            Some(waiter) => waiter,
            None => Box::new(stream.credit().waiter()?),
        };
        if waiter.poll(task).is_pending() {
            self.0 = Some(waiter);
            return Poll::Pending;
        }
        // The outcome is that of one submission, which may belong to another operation.
        Poll::Ready(check_not_lost(stream))
    }
}

impl Drop for CreditWait {
    /// Drops the waiter if there is one. That code is not inlined, so a step without a waiter only makes the check.
    #[inline]
    fn drop(&mut self) {
        if let Some(waiter) = self.0.take() {
            drop_waiter(waiter);
        }
    }
}

#[cold]
#[inline(never)]
fn drop_waiter(waiter: Box<Waiter>) {
    drop(waiter);
}

impl Clone for CreditWait {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for CreditWait {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CreditWait({})", if self.0.is_some() { "waiting" } else { "not waiting" })
    }
}

/// Checks again after each wait, because another step may have taken the credit.
#[cold]
fn wait_for_credit(
    stream: &Stream,
    credit: &mut CreditWait,
    task: &mut Context<'_>,
) -> Poll<Result<()>> {
    while !stream.credit().is_available() {
        ready!(credit.poll(stream, task))?;
    }
    Poll::Ready(Ok(()))
}

/// The first pause between two tries of an allocation, if no wake comes earlier. Each further pause is twice as long,
/// and at most [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// The wait of one step for memory. It allocates only when the step has to wait.
#[derive(Default)]
pub(crate) struct MemoryWait(Option<Box<MemoryWaits>>);

impl MemoryWait {
    pub(crate) const fn new() -> Self {
        Self(None)
    }
}

struct MemoryWaits {
    until: Option<Instant>,
    waiter: MemoryWaiter,
    sleep: Sleep,
    pause: Duration,
}

impl MemoryWaits {
    fn new(cx: &ExecutionContext, max: Duration) -> Self {
        Self {
            until: Instant::now().checked_add(max),
            waiter: cx.device().memory_waiter(),
            sleep: Sleep::new(Duration::ZERO),
            pause: FIRST_PAUSE,
        }
    }

    fn is_over(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Ready when the allocation should be tried again.
    fn poll(&mut self, task: &Context<'_>) -> Poll<Result<()>> {
        let left = self.until.map(|until| until.saturating_duration_since(Instant::now()));
        self.sleep = Sleep::new(self.pause.min(left.unwrap_or(self.pause)));
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        self.sleep.poll(task)
    }
}

/// The number of waits that do not spin after an unsuccessful spin.
pub const RETRY: u32 = 16;

/// The longest time that [`set_max_spin`] accepts. A spin blocks its executor thread for no longer than this.
pub const MAX_SPIN_LIMIT: Duration = Duration::from_millis(1);

static MAX_SPIN_NANOS: AtomicU64 = AtomicU64::new(20_000);
/// The number of coming waits that do not spin.
static SKIP: AtomicU32 = AtomicU32::new(0);

/// Returns the longest time for which a poll may spin; 20 us unless it was set.
pub fn max_spin() -> Duration {
    Duration::from_nanos(MAX_SPIN_NANOS.load(Ordering::Relaxed))
}

/// Sets the longest time for which a poll may spin, for the whole process. Zero turns spinning off. Times above
/// [`MAX_SPIN_LIMIT`] are reduced to it.
pub fn set_max_spin(spin: Duration) {
    let nanos = spin.min(MAX_SPIN_LIMIT).as_nanos() as u64;
    MAX_SPIN_NANOS.store(nanos, Ordering::Relaxed);
}

/// Returns the outcome of submission `number`, if it is known or a short spin finds it.
#[inline]
pub(crate) fn outcome_after_spin(stream: &Stream, number: u64) -> Option<Result<()>> {
    let known = stream.outcome(number);
    if known.is_some() || !RunInFlight::is_only_one() {
        return known;
    }
    spin(stream, number)
}

fn spin(stream: &Stream, number: u64) -> Option<Result<()>> {
    let limit = max_spin();
    if limit.is_zero() || take_skip() {
        return None;
    }
    // Reading the clock costs as much as several queries of an idle stream, so the first query comes before it.
    let known = query(stream, number);
    if known.is_some() {
        return known;
    }
    let start = Instant::now();
    while start.elapsed() < limit {
        std::hint::spin_loop();
        let known = query(stream, number);
        if known.is_some() {
            return known;
        }
    }
    SKIP.store(RETRY, Ordering::Relaxed);
    None
}

#[inline]
fn query(stream: &Stream, number: u64) -> Option<Result<()>> {
    match stream.query() {
        Ok(_) => stream.outcome(number),
        Err(error) => Some(Err(error)),
    }
}

/// Returns whether this wait must not spin, and counts it.
fn take_skip() -> bool {
    let skip = SKIP.load(Ordering::Relaxed);
    if skip > 0 {
        // A race between threads may count two waits as one, which does no harm.
        SKIP.store(skip - 1, Ordering::Relaxed);
    }
    skip > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_max_spin_has_an_upper_limit() {
        let before = max_spin();
        set_max_spin(Duration::from_secs(60));
        assert_eq!(max_spin(), MAX_SPIN_LIMIT);
        set_max_spin(before);
    }
}
