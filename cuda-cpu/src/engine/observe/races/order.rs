//! What orders threads of different warps: barriers for some of the block, releases and acquires.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::clock::{Clock, WarpClocks};
use crate::engine::barrier::BARRIERS;
use crate::engine::ctx::LANES;
use crate::engine::observe::{Access, AccessKind};

/// Words of shared memory whose releases are kept apart; of further ones, each release orders before each later
/// acquire.
const MAX_WORDS: usize = 256;

/// What was told where, since the last barrier of the whole block.
#[derive(Default)]
pub(crate) struct Orders {
    barriers: [Clock; BARRIERS],
    words: FxHashMap<u64, Arc<Clock>>,
    /// Through global memory, other blocks may have passed it on: told anywhere, it counts everywhere.
    elsewhere: Arc<Clock>,
}

impl Orders {
    /// The bytes on the host that it takes at most, in a block of so many warps.
    pub(crate) fn needed(warps: u64) -> u64 {
        let clock = warps * (LANES as u64 + 1) * size_of::<u32>() as u64;
        clock * (BARRIERS + MAX_WORDS + 1) as u64
    }

    /// Everything is known to everybody.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    /// Lanes arrive at a barrier.
    pub(crate) fn arrive(&mut self, barrier: u32, clocks: &WarpClocks, lanes: u32) {
        if let Some(told) = self.barriers.get_mut(barrier as usize) {
            clocks.tell(lanes, told);
        }
    }

    /// What those who arrived have told; the barrier begins anew.
    pub(crate) fn complete(&mut self, barrier: u32) -> Arc<Clock> {
        self.barriers.get_mut(barrier as usize).map(std::mem::take).unwrap_or_default().into()
    }

    /// Lanes tell everybody.
    pub(crate) fn publish(&mut self, clocks: &WarpClocks, lanes: u32) {
        clocks.tell(lanes, Arc::make_mut(&mut self.elsewhere));
    }

    /// Somebody learns what was told.
    pub(crate) fn learn(&self, clocks: &mut WarpClocks, lane: usize) {
        clocks.acquire(lane, &self.elsewhere);
    }

    /// A lane's strong access: to this word of shared memory, or to somewhere in global memory.
    pub(crate) fn access(
        &mut self,
        clocks: &mut WarpClocks,
        lane: usize,
        word: Option<u64>,
        access: &Access,
    ) {
        let kept = word.filter(|w| self.words.contains_key(w) || self.words.len() < MAX_WORDS);
        let told = match kept {
            Some(word) => self.words.entry(word).or_default(),
            None => &mut self.elsewhere,
        };
        if access.kind != AccessKind::Write {
            match access.order.acquires {
                true => clocks.acquire(lane, told),
                false => clocks.get(lane, told),
            }
        }
        if access.kind.writes() {
            let own = clocks.released(lane, access.order.releases);
            // What another thread has released there is passed on by an atomic, and lost by a plain write.
            if access.kind == AccessKind::Write && kept.is_some() {
                *told = own.into();
            } else {
                Arc::make_mut(told).join(&own);
            }
        }
    }
}
