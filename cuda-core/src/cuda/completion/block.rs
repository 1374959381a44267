//! Blocks a caller's thread until a stream's word shows a number.

use std::time::Duration;

use super::wait_budget::{Step, Wakeup, next_step};
use crate::{
    cuda::context::Word,
    protocol::Result,
    sync::{self, spin_loop},
};

/// The time that a caller's thread spins before it sleeps between looks.
const SPIN: Duration = Duration::from_micros(50);

/// Blocks until the word shows `number` or more. The caller has seen that a write of such a value is enqueued. Calls
/// `query` from time to time, and once after the word shows the number.
///
/// # Errors
/// The error of `query`.
pub(crate) fn block_on_word(
    word: Word,
    number: u64,
    mut query: impl FnMut() -> Result<()>,
) -> Result<()> {
    let start = sync::now();
    let mut queried = start;
    while word.load() < number {
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
    use crate::protocol::Error;

    #[test]
    fn returns_when_the_word_shows_the_number() {
        let word = Word::on_the_heap();
        let device = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(1));
            word.store(4);
        });
        assert_eq!(block_on_word(word, 3, || Ok(())), Ok(()));
        device.join().unwrap();
    }

    #[test]
    fn error_of_the_query_ends_the_wait() {
        let word = Word::on_the_heap();
        assert_eq!(block_on_word(word, 1, || Err(Error::AlreadyEnded)), Err(Error::AlreadyEnded));
    }
}
