//! Races of a block's threads on its shared memory.
//!
//! This folder compares accesses. Of `exec` it uses only the reading of old values. The
//! [`Shadow`](crate::observe::shadow) of a block calls [`Races::access`] for each access and reports synchronization
//! with the other methods.
//!
//! Two accesses of the same bytes by two threads race if at least one of them writes, not both are strong (atomic,
//! volatile, relaxed and so on), and neither is ordered before the other. These order accesses:
//!
//! - barriers of the block: waiting threads continue after all arrivals;
//! - `bar.warp.sync` and the other `.sync` instructions of a warp, for the lanes of the member mask;
//! - release and acquire: the accesses of a thread before a fence and a strong write are ordered before those of
//!   another thread after a strong read of the same place and a fence.
//!
//! A barrier of all live threads of the block is the common case and starts a new *phase*: all records are dropped,
//! because all later accesses are ordered after them. Within a phase, [`clock`]s contain the order of threads, and
//! [`cells`] contain the accesses to each word.
//!
//! The result depends only on the accesses and synchronization, not on the order in which threads run.
//! [`Checks::races`](crate::observe::Checks::races) lists the limitations for users.

mod cells;
mod clock;
mod conflict;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustc_hash::FxHashMap;

use self::cells::{Accessed, Cells, Record, WORD, Words, for_words};
use self::clock::{Clock, WarpClocks};
use self::conflict::{differs, same, touch};
use crate::fault::{FaultKind, FaultSpace, Racing};
use crate::isa::BARRIERS;
use crate::isa::effect::{Access, AccessKind};
use crate::lanes::{FULL, LANES, lanes_of};
use crate::machine::code::Flow;
use crate::machine::ctx::{Ctx, LaneFault};
use crate::observe::places::Places;

/// The race check of a block.
pub(crate) struct Races {
    cells: Cells,
    warps: Vec<WarpRaces>,
    orders: Orders,
    words: Words,
}

/// A warp, and the lanes of it that wait for each other.
struct WarpRaces {
    clocks: WarpClocks,
    lanes: u32,
    members: [u32; LANES],
}

impl Races {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(warps: u32, shared: u64) -> Option<Self> {
        let warp =
            |index| WarpRaces { clocks: WarpClocks::new(index), lanes: 0, members: [0; LANES] };
        let warps = (0..warps).map(warp).collect();
        let (orders, words) = Default::default();
        Some(Self { cells: Cells::new(shared)?, warps, orders, words })
    }

    /// Returns the host memory that the check takes, in bytes.
    pub(crate) fn needed(warps: u64, shared: u64) -> u64 {
        let table = (LANES * LANES * size_of::<u32>()) as u64;
        let clocks = size_of::<WarpRaces>() as u64 + table;
        Cells::needed(shared) + warps * clocks + Orders::needed(warps) + size_of::<Self>() as u64
    }

    /// Resets the check for a new block.
    pub(crate) fn restart(&mut self) {
        self.warps.iter_mut().for_each(|warp| warp.lanes = 0);
        self.forget();
    }

    /// Starts a new phase.
    fn forget(&mut self) {
        self.cells.forget();
        self.warps.iter_mut().for_each(|warp| warp.clocks.forget());
        self.orders.forget();
    }

    /// Reports that these lanes run. Those that waited for each other have met.
    pub(crate) fn run(&mut self, warp: u32, lanes: u32) {
        let (index, Some(warp)) = (warp, self.warps.get_mut(warp as usize)) else { return };
        if warp.lanes & lanes == 0 {
            return;
        }
        while warp.lanes & lanes != 0 {
            let first = (warp.lanes & lanes).trailing_zeros() as usize;
            let members = warp.members[first];
            let group = lanes_of(warp.lanes).filter(|&lane| warp.members[lane] == members);
            let group = group.fold(0, |mask, lane| mask | 1 << lane);
            warp.lanes &= !group;
            warp.clocks.meet(group);
        }
        self.tick(index);
    }

    /// Reports that lanes wait for the lanes of their member masks.
    pub(crate) fn wait(&mut self, warp: u32, lanes: u32, members: impl Fn(usize) -> u32) {
        if let Some(warp) = self.warps.get_mut(warp as usize) {
            warp.lanes |= lanes;
            lanes_of(lanes).for_each(|lane| warp.members[lane] = members(lane));
        }
    }

    /// Reports a fence of lanes.
    pub(crate) fn fence(&mut self, warp: u32, lanes: u32) {
        if let Some(warp) = self.warps.get_mut(warp as usize) {
            warp.clocks.fence(lanes);
        }
        self.tick(warp);
    }

    /// Reports arrivals of lanes at barriers of the block.
    pub(crate) fn arrive(&mut self, warp: u32, lanes: u32, barrier: impl Fn(usize) -> u32) {
        let Some(WarpRaces { clocks, .. }) = self.warps.get(warp as usize) else { return };
        let mut left = lanes;
        while left != 0 {
            let id = barrier(left.trailing_zeros() as usize);
            let together = lanes_of(left).filter(|&lane| barrier(lane) == id);
            let together = together.fold(0, |mask, lane| mask | 1 << lane);
            self.orders.arrive(id, clocks, together);
            left &= !together;
        }
        self.tick(warp);
    }

    /// Reports the release of a barrier, with the waiting lanes of each warp. `whole_block` is true if all live threads
    /// of the block wait there.
    pub(crate) fn release(
        &mut self,
        barrier: u32,
        whole_block: bool,
        waiting: impl Iterator<Item = (u32, u32)>,
    ) {
        let released = self.orders.complete(barrier);
        if whole_block {
            return self.forget();
        }
        for (warp, lanes) in waiting {
            let clocks = &mut self.warps[warp as usize].clocks;
            lanes_of(lanes).for_each(|lane| clocks.acquire(lane, &released));
            clocks.fence(lanes);
            self.tick(warp);
        }
    }

    /// Orders the past of these lanes before later calls of [`Races::learn`].
    pub(crate) fn publish(&mut self, warp: u32, lanes: u32) {
        let Some(WarpRaces { clocks, .. }) = self.warps.get(warp as usize) else { return };
        self.orders.publish(clocks, lanes);
        self.tick(warp);
    }

    /// Orders the past of earlier calls of [`Races::publish`] before what these lanes do next.
    pub(crate) fn learn(&mut self, warp: u32, lanes: u32) {
        let Some(WarpRaces { clocks, .. }) = self.warps.get_mut(warp as usize) else { return };
        lanes_of(lanes).for_each(|lane| self.orders.learn(clocks, lane));
    }

    /// Increments the warp's stamp after a release.
    fn tick(&mut self, warp: u32) {
        let Some(own) = self.warps.get_mut(warp as usize) else { return };
        if !own.clocks.tick() {
            // The stamps are exhausted. Races across this point are not found.
            self.forget();
        }
    }

    /// Checks an access for races, and records it.
    pub(crate) fn access(
        &mut self,
        ctx: &mut Ctx<'_>,
        (pc, warp): (u32, u32),
        access: &Access,
        places: &Places,
    ) -> Option<Flow> {
        let stamp = self.warps.get(warp as usize)?.clocks.now();
        let (writes, strong) = (access.kind.writes(), access.order.strong);
        let own = Record { stamp, pc, lanes: 0, warp: warp as u8, bytes: 0, writes, strong };
        let lanes = self.unclear(&own, access, places);
        for &Accessed { word, bytes, lanes } in self.words.find(places, lanes, access.bytes()) {
            let new = Record { bytes, lanes, ..own };
            let single = lanes & (lanes - 1) == 0;
            if writes
                && !strong
                && !single
                && let Some(lane) = differs(ctx, access, places, (word, &new))
            {
                let own = Record { lanes: 1 << new.lane(), ..new };
                return Some(race(ctx, access, places, lane, own));
            }
            let clocks = &self.warps[warp as usize].clocks;
            let same = |other: &Record| same(ctx, access, places, (word, &new), other);
            if let Some((lane, other)) = touch(clocks, &mut self.cells, (word, new), same) {
                return Some(race(ctx, access, places, lane, other));
            }
        }
        if strong {
            self.order(warp, access, places);
        }
        None
    }

    /// Returns the lanes whose accesses need a full check. Accesses that obviously race with none are recorded.
    #[inline]
    fn unclear(&mut self, own: &Record, access: &Access, places: &Places) -> u32 {
        if own.writes && !own.strong {
            // Lanes may write different values to the same place.
            return FULL;
        }
        let mut unclear = 0;
        places.for_groups(FaultSpace::Shared, |lanes, at| {
            let mut harmless = true;
            for_words(at, access.bytes(), |word, bytes| {
                harmless &= self.cells.add_harmless(word, Record { lanes, bytes, ..*own });
            });
            unclear |= if harmless { 0 } else { lanes };
        });
        unclear
    }

    /// Applies the order of strong accesses.
    fn order(&mut self, warp: u32, access: &Access, places: &Places) {
        let clocks = &mut self.warps[warp as usize].clocks;
        for space in [FaultSpace::Shared, FaultSpace::Global] {
            for (lane, at) in places.of(space) {
                let word = (space == FaultSpace::Shared).then_some(at / WORD);
                self.orders.access(clocks, lane, word, access);
            }
        }
        if access.order.releases {
            self.tick(warp);
        }
    }
}

#[cold]
fn race(ctx: &mut Ctx<'_>, access: &Access, places: &Places, lane: usize, other: Record) -> Flow {
    let (code, address) = (ctx.code, places.of_lane(lane));
    let thread = u32::from(other.warp) * LANES as u32 + other.lane() as u32;
    let other = Racing {
        thread: ctx.place.thread(thread),
        line: code.lines[other.pc as usize],
        source: code.sources.line(other.pc),
        write: other.writes,
        atomic: other.strong,
    };
    let kind = FaultKind::Race {
        address,
        bytes: access.bytes(),
        write: access.kind.writes(),
        atomic: access.order.strong,
        other: Box::new(other),
    };
    ctx.fault = Some(LaneFault::new(lane, kind));
    Flow::Fault
}

/// Maximum number of words of shared memory whose releases are tracked separately. Releases and acquires through other
/// words are treated as those through global memory.
const MAX_WORDS: usize = 256;

/// The released clocks since the last barrier of the whole block.
#[derive(Default)]
struct Orders {
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
