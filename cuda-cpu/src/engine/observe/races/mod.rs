//! Races of a block's threads on its shared memory.
//!
//! Two accesses of the same bytes by two threads race if one of them writes, not both are strong (atomic,
//! volatile, relaxed ..), and neither is ordered before the other. Order comes from
//!
//! - barriers of the block: those who wait there come after all who arrived;
//! - `bar.warp.sync` and the other `.sync` instructions of a warp, for the lanes of the member mask;
//! - release and acquire: what a thread did before its fence and a strong write is ordered before what another one
//!   does after a strong read of that place and its fence.
//!
//! A barrier that every live thread of the block waits at is the common case, and begins a new *phase*: everything is
//! known to everybody, and all that is remembered is dropped. In between, [`clock`]s say who knows what of whom, and
//! [`cells`] who accessed which word. An access is held against those in its words' cells.
//!
//! What is found depends only on which accesses and waits there were, not on which of two threads came first. What is
//! left out or taken generously is listed at [`Checks::races`](super::Checks::races), for users.

mod cells;
mod clock;
mod conflict;
mod order;
#[cfg(test)]
mod tests;

use self::cells::{Cells, Record, WORD};
use self::clock::WarpClocks;
use self::conflict::touch;
use self::order::Orders;
use super::effect::{Access, Places};
use crate::engine::address::SHARED_WINDOW;
use crate::engine::ctx::{Ctx, LANES, LaneFault, lanes_of};
use crate::engine::exec::locate::read_byte;
use crate::engine::fault::{FaultKind, FaultSpace, Racing};
use crate::engine::op::Flow;

/// See the module.
pub(crate) struct Races {
    cells: Cells,
    warps: Vec<WarpRaces>,
    orders: Orders,
}

/// A warp, and which of its lanes wait for each other.
struct WarpRaces {
    clocks: WarpClocks,
    lanes: u32,
    members: [u32; LANES],
}

impl Races {
    /// `None` when the host has no room.
    pub(crate) fn new(warps: u32, shared: u64) -> Option<Self> {
        let warp =
            |index| WarpRaces { clocks: WarpClocks::new(index), lanes: 0, members: [0; LANES] };
        let warps = (0..warps).map(warp).collect();
        Some(Self { cells: Cells::new(shared)?, warps, orders: Orders::default() })
    }

    /// The bytes on the host that it takes.
    pub(crate) fn needed(warps: u64, shared: u64) -> u64 {
        let table = (LANES * LANES * size_of::<u32>()) as u64;
        let clocks = size_of::<WarpRaces>() as u64 + table;
        Cells::needed(shared) + warps * clocks + Orders::needed(warps)
    }

    /// A new block begins.
    pub(crate) fn restart(&mut self) {
        self.warps.iter_mut().for_each(|warp| warp.lanes = 0);
        self.forget();
    }

    /// Every thread knows all that was before.
    fn forget(&mut self) {
        self.cells.forget();
        self.warps.iter_mut().for_each(|warp| warp.clocks.forget());
        self.orders.forget();
    }

    /// These lanes run: those that were waiting for each other have met.
    pub(crate) fn run(&mut self, warp: u32, lanes: u32) {
        let Some(warp) = self.warps.get_mut(warp as usize) else { return };
        while warp.lanes & lanes != 0 {
            let first = (warp.lanes & lanes).trailing_zeros() as usize;
            let members = warp.members[first];
            let group = lanes_of(warp.lanes).filter(|&lane| warp.members[lane] == members);
            let group = group.fold(0, |mask, lane| mask | 1 << lane);
            warp.lanes &= !group;
            warp.clocks.meet(group);
        }
    }

    /// Lanes wait for the lanes of their member masks, which have to come to the same instruction.
    pub(crate) fn wait(&mut self, warp: u32, lanes: u32, members: impl Fn(usize) -> u32) {
        if let Some(warp) = self.warps.get_mut(warp as usize) {
            warp.lanes |= lanes;
            lanes_of(lanes).for_each(|lane| warp.members[lane] = members(lane));
        }
    }

    /// Lanes execute a fence.
    pub(crate) fn fence(&mut self, warp: u32, lanes: u32) {
        if self.tick(warp).is_some() {
            self.warps[warp as usize].clocks.fence(lanes);
        }
    }

    /// Lanes arrive at barriers of the block.
    pub(crate) fn arrive(&mut self, warp: u32, lanes: u32, barrier: impl Fn(usize) -> u32) {
        if self.tick(warp).is_some() {
            let clocks = &self.warps[warp as usize].clocks;
            lanes_of(lanes).for_each(|lane| {
                self.orders.arrive(barrier(lane), &clocks.released(lane, true));
            });
        }
    }

    /// A barrier lets go of all who wait there: `everyone` if they are the whole block.
    pub(crate) fn release(
        &mut self,
        barrier: u32,
        everyone: bool,
        waiting: impl Iterator<Item = (u32, u32)>,
    ) {
        let told = self.orders.complete(barrier);
        if everyone {
            return self.forget();
        }
        for (warp, lanes) in waiting {
            let clocks = &mut self.warps[warp as usize].clocks;
            lanes_of(lanes).for_each(|lane| clocks.acquire(lane, &told));
            clocks.fence(lanes);
        }
    }

    /// What these lanes did before is known to whoever learns later.
    pub(crate) fn publish(&mut self, warp: u32, lanes: u32) {
        if self.tick(warp).is_some() {
            let clocks = &self.warps[warp as usize].clocks;
            lanes_of(lanes).for_each(|lane| self.orders.publish(&clocks.released(lane, true)));
        }
    }

    /// See [`Races::publish`].
    pub(crate) fn learn(&mut self, warp: u32, lanes: u32) {
        if self.tick(warp).is_some() {
            let clocks = &mut self.warps[warp as usize].clocks;
            lanes_of(lanes).for_each(|lane| self.orders.learn(clocks, lane));
        }
    }

    /// The stamp of the warp's next op.
    fn tick(&mut self, warp: u32) -> Option<u32> {
        let stamp = self.warps.get_mut(warp as usize)?.clocks.tick();
        if stamp.is_none() {
            // It has counted as far as it can: a race across this point is not found.
            self.forget();
            return self.warps[warp as usize].clocks.tick();
        }
        stamp
    }

    /// Holds an access against the others, and remembers it.
    pub(crate) fn access(
        &mut self,
        ctx: &mut Ctx<'_>,
        (pc, warp): (u32, u32),
        access: &Access,
        places: &Places,
    ) -> Option<Flow> {
        if places.of(FaultSpace::Shared).next().is_none() && !access.order.strong {
            return None;
        }
        let stamp = self.tick(warp)?;
        let bytes = u64::from(access.bytes());
        for (lane, at) in places.of(FaultSpace::Shared) {
            for word in at / WORD..(at + bytes).div_ceil(WORD) {
                let (low, high) = (at.max(word * WORD), (at + bytes).min((word + 1) * WORD));
                let mask = ((1u32 << (high - low)) - 1) << (low % WORD);
                let own = Record {
                    stamp,
                    pc,
                    lanes: 1 << lane,
                    warp: warp as u8,
                    bytes: mask as u8,
                    writes: access.kind.writes(),
                    strong: access.order.strong,
                };
                let (clocks, word) = (&self.warps[warp as usize].clocks, word as u32);
                let same = |other: &Record| same(ctx, access, places, (word, &own), other);
                if let Some(other) = touch(clocks, &mut self.cells, (word, own), same) {
                    return Some(race(ctx, access, at, lane, other));
                }
            }
        }
        if access.order.strong {
            self.order(warp, access, places);
        }
        None
    }

    /// What strong accesses order.
    fn order(&mut self, warp: u32, access: &Access, places: &Places) {
        let clocks = &mut self.warps[warp as usize].clocks;
        for space in [FaultSpace::Shared, FaultSpace::Global] {
            for (lane, at) in places.of(space) {
                let word = (space == FaultSpace::Shared).then_some(at / WORD);
                self.orders.access(clocks, lane, word, access);
            }
        }
    }
}

/// Whether a lane writes what the other access wrote: what is there, or what the other lane writes in
/// this very op.
fn same(
    ctx: &mut Ctx<'_>,
    access: &Access,
    places: &Places,
    (word, own): (u32, &Record),
    other: &Record,
) -> bool {
    let lane = own.lane();
    let together = (own.warp, own.stamp) == (other.warp, other.stamp);
    let beside = Record { lanes: other.lanes & !own.lanes, ..*other }.lane();
    (0..WORD).filter(|bit| (own.bytes & other.bytes) >> bit & 1 != 0).all(|bit| {
        let at = u64::from(word) * WORD + bit;
        let written = |lane| access.value(ctx, lane, (at - places.of_lane(lane)) as u32);
        let Some(new) = written(lane) else { return false };
        let old = if together {
            written(beside)
        } else {
            let op = &ctx.code.ops[own.pc as usize];
            read_byte(ctx, op, lane, SHARED_WINDOW + at).ok()
        };
        old == Some(new)
    })
}

#[cold]
fn race(ctx: &mut Ctx<'_>, access: &Access, address: u64, lane: usize, other: Record) -> Flow {
    let code = ctx.code;
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
    ctx.fault = Some(LaneFault { kind, lane: lane as u32, nearest: None });
    Flow::Fault
}
