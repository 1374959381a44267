//! The time that a client has for its events while its session keeps the turn from others.
//!
//! The message with which a session gives its turn back waits behind the events of its client, and small downloads wait
//! for those before them. A client that takes each batch just in time would keep the turn for as long as it likes.

use std::time::Duration;

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

use crate::supervisor::streams::{End, STALL};

/// The rest of the time, or `None` while the session does not have to give its turn back. It counts while events wait for the
/// client, on all connections together, so that a long kernel ends no connection.
pub(super) struct DrainTime(watch::Sender<Option<Duration>>);

impl Default for DrainTime {
    fn default() -> Self {
        Self(watch::Sender::new(None))
    }
}

impl DrainTime {
    /// The session shall give its turn back.
    pub(super) fn begin(&self) {
        self.0.send_if_modified(|left| {
            let is_new = left.is_none();
            left.get_or_insert(STALL);
            is_new
        });
    }

    /// The session has given its turn back, or may keep it.
    pub(super) fn end(&self) {
        self.0.send_if_modified(|left| left.take().is_some());
    }

    /// Waits for a `send` to the client.
    ///
    /// # Errors
    /// [`End::Stalled`] if the time is over first.
    pub(super) async fn limit<T>(
        &self,
        send: impl Future<Output = Result<T, End>>,
    ) -> Result<T, End> {
        tokio::select! {
            biased;
            sent = send => sent,
            () = self.over() => Err(End::Stalled),
        }
    }

    /// Waits until the time is over. Cancelling this counts the time until then.
    async fn over(&self) {
        let mut state = self.0.subscribe();
        loop {
            let left = *state.borrow_and_update();
            let counted = left.map(|_| Counted { time: self, since: Instant::now() });
            tokio::select! {
                () = sleep(left.unwrap_or_default()), if left.is_some() => return,
                _ = state.changed() => drop(counted),
            }
        }
    }
}

/// Takes the time until it is dropped off the rest.
struct Counted<'a> {
    time: &'a DrainTime,
    since: Instant,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.time.0.send_if_modified(|left| {
            *left = left.map(|left| left.saturating_sub(self.since.elapsed()));
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends bytes that the client takes after this number of seconds. Returns whether it loses its connection before.
    async fn stalls(time: &DrainTime, secs: u64) -> bool {
        let send = async {
            sleep(Duration::from_secs(secs)).await;
            Ok(())
        };
        time.limit(send).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn time_counts_over_all_batches_and_connections_until_the_turn_is_given_back() {
        let time = DrainTime::default();
        assert!(!stalls(&time, 100).await);
        for _ in 0..2 {
            time.begin();
            assert!(!stalls(&time, 4).await);
            // A kernel runs, and nothing waits for the client.
            sleep(Duration::from_secs(100)).await;
            time.begin();
            let ends_early = tokio::time::timeout(Duration::from_secs(4), stalls(&time, 100)).await;
            assert!(ends_early.is_err());
            assert!(!stalls(&time, 1).await);
            assert!(stalls(&time, 2).await);
            assert!(stalls(&time, 1).await);
            assert!(!stalls(&time, 0).await);
            time.end();
            assert!(!stalls(&time, 100).await);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn time_begins_and_ends_during_a_batch() {
        let time = DrainTime::default();
        let change = async {
            sleep(Duration::from_secs(50)).await;
            time.begin();
            sleep(Duration::from_secs(9)).await;
            time.end();
        };
        assert!(!tokio::join!(stalls(&time, 100), change).0);
        let (began, change) = (Instant::now(), async {
            sleep(Duration::from_secs(50)).await;
            time.begin();
        });
        assert!(tokio::join!(stalls(&time, 100), change).0);
        assert_eq!(began.elapsed().as_secs(), 60);
    }
}
