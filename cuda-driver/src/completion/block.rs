//! Blocks a caller's thread until a report covers a number.

use std::time::Duration;

use cuda_core::{
    internals::sync::{self, spin_loop},
    protocol::Result,
};

use super::wait_budget::{Step, Wakeup, next_step};

/// The time that a caller's thread spins before it sleeps between checks.
const SPIN: Duration = Duration::from_micros(50);

/// Blocks until `passed` returns true. The completion thread must be watching a checkpoint for that. Calls `query` every
/// 50 ms, and once at the end, so that a fault is found.
///
/// # Errors
/// The errors of `passed` and `query`.
pub(crate) fn block_on_report(
    mut passed: impl FnMut() -> Result<bool>,
    mut query: impl FnMut() -> Result<()>,
) -> Result<()> {
    let start = sync::now();
    let mut queried = start;
    while !passed()? {
        let now = sync::now();
        match next_step(Wakeup::Polled(SPIN), false, now - start, now - queried) {
            Step::Spin | Step::Park => spin_loop(),
            Step::Sleep(time) => std::thread::sleep(time),
            Step::Query => {
                query()?;
                queried = sync::now();
            }
        }
    }
    query()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use cuda_core::protocol::Error;

    use crate::streams::Passed;

    #[test]
    fn returns_when_the_stream_has_passed_the_number() {
        let passed = Passed::default();
        let thread = passed.clone();
        let device = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            thread.raise(4);
        });
        assert_eq!(block_on_report(|| Ok(passed.load() >= 3), || Ok(())), Ok(()));
        device.join().unwrap();
    }

    #[test]
    fn error_of_the_query_ends_the_wait() {
        let passed = || Ok(false);
        assert_eq!(block_on_report(passed, || Err(Error::AlreadyEnded)), Err(Error::AlreadyEnded));
    }
}
