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
mod order;

use self::cells::{Cells, Record, WORD};
use self::clock::WarpClocks;
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

/// One lane's access to one word.
struct Touch {
    pc: u32,
    stamp: u32,
    warp: u32,
    lane: usize,
    word: u32,
    /// Which bytes of the word, by bit.
    bytes: u8,
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
                let touch = Touch { pc, stamp, warp, lane, word: word as u32, bytes: mask as u8 };
                if let Some(other) = self.touch(ctx, access, places, &touch) {
                    return Some(race(ctx, access, at, lane, other));
                }
            }
        }
        if access.order.strong {
            self.order(warp, access, places);
        }
        None
    }

    /// Holds a lane's access to a word against the others; gives the one that it races with.
    fn touch(
        &mut self,
        ctx: &mut Ctx<'_>,
        access: &Access,
        places: &Places,
        touch: &Touch,
    ) -> Option<Record> {
        let clocks = &self.warps[touch.warp as usize].clocks;
        let own = |r: &Record| if u32::from(r.warp) == touch.warp { 1 << touch.lane } else { 0 };
        // The lanes of an access that this lane knows nothing of.
        let unknown = |r: &Record| {
            let others = lanes_of(r.lanes & !own(r));
            let unknown = others.filter(|&l| !clocks.knows(touch.lane, r.warp.into(), l, r.stamp));
            unknown.fold(0, |mask, lane| mask | 1 << lane)
        };
        let (writes, strong) = (access.kind.writes(), access.order.strong);
        let overlap = |r: &Record| r.bytes & touch.bytes != 0;
        let conflicts = |r: &&Record| {
            overlap(r) && (writes || r.writes) && !(strong && r.strong) && unknown(r) != 0
        };
        // Who has written the same as others may read it.
        let wrote = |r: &Record| r.writes && !r.strong && r.lanes & own(r) != 0 && overlap(r);
        let records = || self.cells.records(touch.word);
        let found = match writes {
            true => records()
                .filter(conflicts)
                .find(|r| !(r.writes && same(ctx, access, places, touch, r))),
            false => records().find(|r| conflicts(r) && (r.strong || !records().any(wrote))),
        };
        if let Some(other) = found {
            return Some(Record { lanes: unknown(other), ..*other });
        }
        let within = |r: &Record| r.bytes & !touch.bytes == 0;
        let keep = |r: Record| {
            let left = match writes {
                // Who is ordered behind this is ordered behind what this is ordered behind. But strong accesses
                // of others, which do not race with this one, may race with that one.
                true if overlap(&r) && (r.strong || !strong) => unknown(&r),
                // The same of a thread's own reads.
                false if !r.writes && r.strong == strong && within(&r) => r.lanes & !own(&r),
                _ => r.lanes,
            };
            match left {
                0 if within(&r) => None,
                0 => Some(Record { bytes: r.bytes & !touch.bytes, ..r }),
                _ if within(&r) => Some(Record { lanes: left, ..r }),
                _ => Some(r),
            }
        };
        let &Touch { pc, stamp, warp, lane, word, bytes } = touch;
        let lanes = 1 << lane;
        let new = Record { stamp, pc, lanes, warp: warp as u8, bytes, writes, strong };
        self.cells.replace(word, new, keep);
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
fn same(ctx: &mut Ctx<'_>, access: &Access, places: &Places, touch: &Touch, r: &Record) -> bool {
    let start = places.of_lane(touch.lane);
    let together = u32::from(r.warp) == touch.warp && r.stamp == touch.stamp;
    let other = (r.lanes & !(1 << touch.lane)).trailing_zeros() as usize % LANES;
    (0..WORD).filter(|bit| (touch.bytes & r.bytes) >> bit & 1 != 0).all(|bit| {
        let at = u64::from(touch.word) * WORD + bit;
        let Some(new) = access.value(ctx, touch.lane, (at - start) as u32) else { return false };
        let old = if together {
            access.value(ctx, other, (at - places.of_lane(other)) as u32)
        } else {
            let op = &ctx.code.ops[touch.pc as usize];
            read_byte(ctx, op, touch.lane, SHARED_WINDOW + at).ok()
        };
        old == Some(new)
    })
}

#[cold]
fn race(ctx: &mut Ctx<'_>, access: &Access, address: u64, lane: usize, other: Record) -> Flow {
    let code = ctx.code;
    let thread = u32::from(other.warp) * LANES as u32 + other.lanes.trailing_zeros() % 32;
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
