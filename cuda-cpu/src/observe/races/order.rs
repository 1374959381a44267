//! Synchronization between threads of different warps: barriers of a part of the block, releases and acquires.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::clock::{Clock, WarpClocks};
use crate::isa::effect::{Access, AccessKind};
use crate::isa::sizes::BARRIERS;
use crate::lanes::LANES;

/// Maximum number of words of shared memory whose releases are tracked separately. Releases and acquires through other
/// words are treated as those through global memory.
const MAX_WORDS: usize = 256;

/// The released clocks since the last barrier of the whole block.
#[derive(Default)]
pub(crate) struct Orders {
    barriers: [Clock; BARRIERS],
    words: FxHashMap<u64, Arc<Clock>>,
    /// Releases through global memory. Other blocks may pass them on, so each acquire through global memory obtains
    /// all.
    global: Arc<Clock>,
}

impl Orders {
    /// Returns the maximum host memory, in bytes, for a block of this number of warps.
    pub(crate) fn needed(warps: u64) -> u64 {
        let clock = warps * (LANES as u64 + 1) * size_of::<u32>() as u64;
        clock * (BARRIERS + MAX_WORDS + 1) as u64
    }

    /// Resets all clocks at the start of a phase.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Adds the past of arriving lanes to a barrier.
    pub(crate) fn arrive(&mut self, barrier: u32, clocks: &WarpClocks, lanes: u32) {
        if let Some(released) = self.barriers.get_mut(barrier as usize) {
            clocks.release_into(lanes, released);
        }
    }

    /// Returns the past of all arrivals and resets the barrier.
    pub(crate) fn complete(&mut self, barrier: u32) -> Arc<Clock> {
        self.barriers.get_mut(barrier as usize).map(std::mem::take).unwrap_or_default().into()
    }

    /// Releases the past of lanes to all threads.
    pub(crate) fn publish(&mut self, clocks: &WarpClocks, lanes: u32) {
        clocks.release_into(lanes, Arc::make_mut(&mut self.global));
    }

    /// Acquires the past that [`publish`](Self::publish) has released.
    pub(crate) fn learn(&self, clocks: &mut WarpClocks, lane: usize) {
        clocks.acquire(lane, &self.global);
    }

    /// Applies a lane's strong access to a word of shared memory, or with `None` to global memory.
    pub(crate) fn access(
        &mut self,
        clocks: &mut WarpClocks,
        lane: usize,
        word: Option<u64>,
        access: &Access,
    ) {
        let kept = word.filter(|w| self.words.contains_key(w) || self.words.len() < MAX_WORDS);
        let released = match kept {
            Some(word) => self.words.entry(word).or_default(),
            None => &mut self.global,
        };
        if access.kind != AccessKind::Write {
            match access.order.acquires {
                true => clocks.acquire(lane, released),
                false => clocks.get(lane, released),
            }
        }
        if access.kind.writes() {
            let own = clocks.released(lane, access.order.releases);
            // An atomic preserves earlier releases of other threads to the word. A plain write discards them.
            if access.kind == AccessKind::Write && kept.is_some() {
                *released = own.into();
            } else {
                Arc::make_mut(released).join(&own);
            }
        }
    }
}
