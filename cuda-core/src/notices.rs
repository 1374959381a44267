//! Which notices a stream has been asked for: few at a time, however many wait.
//!
//! # Who may touch what
//! The lock is held while a `Notify` is enqueued, so tokens reach the backend in order. Whoever submits takes it
//! under the stream's `order`, the thread that learns how far the stream is without; neither waits for the other in
//! there, and enqueueing a `Notify` waits for nobody. A token is the stream's published count, read
//! before the `Notify` is enqueued: everything up to it is in front, perhaps with more behind it.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::Result;

/// Notices that a stream is asked for at once. Whoever waits for more is told together with others: asking
/// costs half a launch.
pub(crate) const MAX_NOTICES: u32 = 4;

#[derive(Default)]
pub(crate) struct Notices {
    asked: Mutex<Asked>,
    /// `asked.last`, for a look that need not lock.
    last: AtomicU64,
}

#[derive(Default)]
struct Asked {
    /// The last token that is on its way, or was.
    last: u64,
    /// How many are on their way.
    flying: u32,
    /// What somebody waits for and no token covers.
    wanted: u64,
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
        enqueue: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let mut asked = self.asked.lock();
        if asked.last >= number {
            return Ok(());
        }
        if asked.flying >= MAX_NOTICES {
            asked.wanted = asked.wanted.max(number);
            return Ok(());
        }
        self.ask(&mut asked, published, enqueue)
    }

    /// A notice has come: asks for the next one if somebody waits for more.
    pub(crate) fn came(
        &self,
        published: &AtomicU64,
        enqueue: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let mut asked = self.asked.lock();
        asked.flying = asked.flying.saturating_sub(1);
        if asked.wanted <= asked.last {
            return Ok(());
        }
        self.ask(&mut asked, published, enqueue)
    }

    fn ask(
        &self,
        asked: &mut Asked,
        published: &AtomicU64,
        enqueue: impl FnOnce(u64) -> Result<()>,
    ) -> Result<()> {
        let token = published.load(Ordering::Acquire);
        enqueue(token)?;
        asked.flying += 1;
        asked.last = token;
        self.last.store(token, Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn keep(tokens: &mut Vec<u64>) -> impl FnOnce(u64) -> Result<()> + '_ {
        |token| {
            tokens.push(token);
            Ok(())
        }
    }

    fn published(number: u64) -> AtomicU64 {
        AtomicU64::new(number)
    }

    #[test]
    fn one_notice_covers_everything_published() -> Result<()> {
        let notices = Notices::default();
        let mut tokens = Vec::new();
        notices.want(2, &published(5), keep(&mut tokens))?;
        notices.want(5, &published(6), keep(&mut tokens))?;
        notices.want(6, &published(6), keep(&mut tokens))?;
        assert_eq!(tokens, [5, 6]);
        assert_eq!(notices.last(), 6);
        Ok(())
    }

    #[test]
    fn beyond_the_limit_the_next_that_comes_asks_for_all() -> Result<()> {
        let notices = Notices::default();
        let mut tokens = Vec::new();
        for number in 1..=10 {
            notices.want(number, &published(number), keep(&mut tokens))?;
        }
        assert_eq!(tokens, [1, 2, 3, 4]);
        notices.came(&published(10), keep(&mut tokens))?;
        notices.came(&published(12), keep(&mut tokens))?;
        assert_eq!(tokens, [1, 2, 3, 4, 10]);
        Ok(())
    }

    #[test]
    fn what_was_refused_is_asked_for_again() -> Result<()> {
        let notices = Notices::default();
        let refused = notices.want(1, &published(1), |_| Err(Error::AlreadyEnded));
        assert_eq!(refused, Err(Error::AlreadyEnded));
        let mut tokens = Vec::new();
        notices.want(1, &published(1), keep(&mut tokens))?;
        assert_eq!(tokens, [1]);
        Ok(())
    }
}
