//! Which notices a stream has been asked for: few at a time, however many wait.
//!
//! # Who may touch what
//! `asking` is held while a `Notify` is enqueued, so tokens reach the backend in order. Nobody waits for it: who
//! finds it held has left word in `wanted`, and who lets go of it looks there again. A token is the stream's
//! published count, read before the `Notify` is enqueued: everything up to it is in front, perhaps with more
//! behind it.

use crate::{
    Result,
    sync::{
        Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering, fence},
        limit,
    },
};

/// Notices that a stream is asked for at once: asking costs half a launch. Whoever waits for more is told together
/// with others, and then also waits for what was submitted behind it by the time one of these has come.
pub(crate) const MAX_NOTICES: u32 = limit(4, 1) as u32;

#[derive(Default)]
pub(crate) struct Notices {
    asking: Mutex<()>,
    /// The largest number that somebody waits for.
    wanted: AtomicU64,
    /// The last token that was asked for. Stored by who holds `asking`.
    last: AtomicU64,
    /// How many are on their way.
    flying: AtomicU32,
}

impl Notices {
    /// The last token that was asked for.
    #[inline]
    pub(crate) fn last(&self) -> u64 {
        self.last.load(Ordering::Acquire)
    }

    /// Makes sure that a notice comes once `number` has run: now by `enqueue`, which is given the stream's
    /// `published` count as the token, or when one of those that are on their way has come.
    pub(crate) fn want(
        &self,
        number: u64,
        published: &AtomicU64,
        enqueue: impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        self.wanted.fetch_max(number, Ordering::SeqCst);
        self.ask(published, enqueue)
    }

    /// A notice has come: asks for the next one if somebody waits for more.
    pub(crate) fn came(
        &self,
        published: &AtomicU64,
        enqueue: impl Fn(u64) -> Result<()>,
    ) -> Result<()> {
        self.flying.fetch_sub(1, Ordering::SeqCst);
        self.ask(published, enqueue)
    }

    /// Asks for one notice if somebody waits for more than the last covers and few are on their way.
    fn ask(&self, published: &AtomicU64, enqueue: impl Fn(u64) -> Result<()>) -> Result<()> {
        while self.is_due() {
            let Some(asking) = self.asking.try_lock() else { return Ok(()) };
            if self.is_due() {
                let token = published.load(Ordering::Acquire);
                // Before it is asked for, since it may come at once.
                self.flying.fetch_add(1, Ordering::SeqCst);
                if let Err(error) = enqueue(token) {
                    self.flying.fetch_sub(1, Ordering::SeqCst);
                    return Err(error);
                }
                self.last.store(token, Ordering::Release);
            }
            drop(asking);
            // Orders letting go before the next look: of two threads one sees what the other left.
            fence(Ordering::SeqCst);
        }
        Ok(())
    }

    fn is_due(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > self.last()
            && self.flying.load(Ordering::SeqCst) < MAX_NOTICES
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;
    use crate::Error;

    /// Keeps the tokens that were asked for.
    #[derive(Default)]
    struct Asked(RefCell<Vec<u64>>);

    impl Asked {
        fn enqueue(&self) -> impl Fn(u64) -> Result<()> + '_ {
            |token| {
                self.0.borrow_mut().push(token);
                Ok(())
            }
        }
    }

    fn published(number: u64) -> AtomicU64 {
        AtomicU64::new(number)
    }

    #[test]
    fn one_notice_covers_everything_published() -> Result<()> {
        let (notices, asked) = (Notices::default(), Asked::default());
        notices.want(2, &published(5), asked.enqueue())?;
        notices.want(5, &published(6), asked.enqueue())?;
        notices.want(6, &published(6), asked.enqueue())?;
        assert_eq!(*asked.0.borrow(), [5, 6]);
        assert_eq!(notices.last(), 6);
        Ok(())
    }

    #[test]
    fn beyond_the_limit_the_next_that_comes_asks_for_all() -> Result<()> {
        let (notices, asked) = (Notices::default(), Asked::default());
        for number in 1..=10 {
            notices.want(number, &published(number), asked.enqueue())?;
        }
        assert_eq!(*asked.0.borrow(), [1, 2, 3, 4]);
        notices.came(&published(10), asked.enqueue())?;
        notices.came(&published(12), asked.enqueue())?;
        assert_eq!(*asked.0.borrow(), [1, 2, 3, 4, 10]);
        Ok(())
    }

    #[test]
    fn what_was_refused_is_asked_for_again() -> Result<()> {
        let (notices, asked) = (Notices::default(), Asked::default());
        let refused = notices.want(1, &published(1), |_| Err(Error::AlreadyEnded));
        assert_eq!(refused, Err(Error::AlreadyEnded));
        notices.want(1, &published(1), asked.enqueue())?;
        assert_eq!(*asked.0.borrow(), [1]);
        Ok(())
    }
}
