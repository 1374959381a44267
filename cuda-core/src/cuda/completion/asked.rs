//! The streams that the completion thread queries because a caller has left its want to the thread.

use std::{sync::Arc, time::Instant};

use super::inbox::Ask;
use crate::cuda::streams::DriverStream;

/// One place for each stream, so it grows with the number of streams and not with that of wants.
#[derive(Default)]
pub(super) struct Asked(Vec<AskedStream>);

/// A stream, and the largest number that was asked for.
pub(super) struct AskedStream {
    pub(super) stream: Arc<DriverStream>,
    pub(super) number: u64,
    /// The time of the first ask.
    pub(super) since: Instant,
}

impl Asked {
    pub(super) fn add(&mut self, ask: Ask, now: Instant) {
        let Ask { stream, number } = ask;
        match self.0.iter_mut().find(|asked| asked.stream.id == stream.id) {
            Some(asked) => asked.number = asked.number.max(number),
            None => self.0.push(AskedStream { stream, number, since: now }),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps the streams for which `keep` returns true.
    pub(super) fn retain(&mut self, keep: impl FnMut(&AskedStream) -> bool) {
        self.0.retain(keep);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
