//! Reads of memory that nobody has written.
//!
//! Shared memory has a bit for each byte of the block, local memory one for each byte of each lane; global memory's
//! bits are the allocations' own. An op's reads are checked before its writes are marked, all lanes
//! at a time: lanes run together, so none of them has written what another one reads in the same op.

use super::bits::Bits;
use super::effect::{Access, Places};
use crate::engine::budget::Budget;
use crate::engine::code::Passed;
use crate::engine::ctx::{Ctx, LANES, LaneFault, lanes_of};
use crate::engine::fault::{FaultKind, FaultSpace};
use crate::engine::op::Flow;

/// What a block's threads have written of its own memory.
pub(crate) struct Written {
    shared: Bits,
    /// By warp.
    local: Vec<Local>,
}

/// Local memory of a warp, by lane.
struct Local(Vec<Bits>);

/// Addresses that follow each other, of one lane or several.
struct Run {
    at: u64,
    end: u64,
}

impl Written {
    /// `None` when the host has no room.
    pub(crate) fn new(warps: u64, shared: u64, local: u64) -> Option<Self> {
        let lane = |_| Bits::new(local);
        let warp = |_| Some(Local((0..LANES).map(lane).collect::<Option<_>>()?));
        let local = (0..warps).map(warp).collect::<Option<_>>()?;
        Some(Self { shared: Bits::new(shared)?, local })
    }

    /// The bytes on the host that a new one takes.
    pub(crate) fn needed(warps: u64, shared: u64, local: u64) -> u64 {
        Bits::needed(shared) + warps * LANES as u64 * Bits::needed(local)
    }

    /// The bytes on the host that it takes.
    pub(crate) fn taken(&self) -> u64 {
        let local = self.local.iter().flat_map(|local| &local.0);
        self.shared.taken() + local.map(Bits::taken).sum::<u64>()
    }

    /// A new block begins: nothing is written.
    pub(crate) fn restart(&mut self) {
        self.shared.clear_all();
        self.local.iter_mut().flat_map(|local| &mut local.0).for_each(Bits::clear_all);
    }

    /// Checks what an access reads, and marks what it writes.
    pub(crate) fn access(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: u32,
        access: &Access,
        places: &Places,
    ) -> Option<Flow> {
        let bytes = u64::from(access.bytes());
        if access.kind.needs_value()
            && let Some((space, missing)) = self.first_missing(ctx, warp, bytes, places)
        {
            return Some(unwritten(ctx, bytes, places, space, missing));
        }
        if access.kind.writes() {
            self.mark(ctx, warp, bytes, places);
        }
        None
    }

    /// The first byte that some lane reads and nobody has written.
    fn first_missing(
        &mut self,
        ctx: &mut Ctx<'_>,
        warp: u32,
        bytes: u64,
        places: &Places,
    ) -> Option<(FaultSpace, u64)> {
        let missing = runs(places, FaultSpace::Global, bytes).find_map(|run| {
            let length = run.end - run.at;
            if let Ok(allocation) = ctx.view.allocation(run.at, length) {
                let from = run.at - allocation.base;
                let at = allocation.written.as_ref()?.first_missing(from, length)?;
                return Some(allocation.base + at);
            }
            // Of several allocations, or not all of it is there.
            (run.at..run.end).step_by(bytes as usize).find_map(|at| {
                let allocation = ctx.view.allocation(at, bytes).ok()?;
                let written = allocation.written.as_ref()?;
                Some(allocation.base + written.first_missing(at - allocation.base, bytes)?)
            })
        });
        if let Some(at) = missing {
            return Some((FaultSpace::Global, at));
        }
        let mut shared = runs(places, FaultSpace::Shared, bytes);
        if let Some(at) = shared.find_map(|run| self.shared.first_clear(run.at, run.end - run.at)) {
            return Some((FaultSpace::Shared, at));
        }
        let local = self.local.get(warp as usize)?;
        let mut reads = places.of(FaultSpace::Local);
        let missing = reads.find_map(|(lane, at)| local.0[lane].first_clear(at, bytes));
        missing.map(|at| (FaultSpace::Local, at))
    }

    fn mark(&mut self, ctx: &mut Ctx<'_>, warp: u32, bytes: u64, places: &Places) {
        for run in runs(places, FaultSpace::Global, bytes) {
            match ctx.view.allocation(run.at, run.end - run.at) {
                Ok(allocation) => allocation.mark(run.at, run.end - run.at),
                Err(_) => (run.at..run.end).step_by(bytes as usize).for_each(|at| {
                    if let Ok(allocation) = ctx.view.allocation(at, bytes) {
                        allocation.mark(at, bytes);
                    }
                }),
            }
        }
        for run in runs(places, FaultSpace::Shared, bytes) {
            self.shared.set(run.at, run.end - run.at);
        }
        if let Some(local) = self.local.get_mut(warp as usize) {
            places.of(FaultSpace::Local).for_each(|(lane, at)| local.0[lane].set(at, bytes));
        }
    }

    /// These lanes of a warp begin a call whose frame has this local memory: nothing of it is written. False
    /// when there is no room.
    #[must_use]
    pub(crate) fn enter(
        &mut self,
        warp: u32,
        lanes: u32,
        (base, bytes): (u32, u32),
        budget: &Budget,
    ) -> bool {
        let Some(local) = self.local.get_mut(warp as usize) else { return true };
        let (base, bytes) = (u64::from(base), u64::from(bytes));
        lanes_of(lanes).all(|lane| {
            let bits = &mut local.0[lane];
            let room = budget.take(Bits::needed(base + bytes).saturating_sub(bits.taken()))
                && bits.grow(base + bytes);
            bits.clear(base, bytes);
            room
        })
    }

    /// Arguments or results were copied from one frame to another. What was in registers counts as written.
    pub(crate) fn pass(
        &mut self,
        warp: u32,
        lanes: u32,
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        let Some(local) = self.local.get_mut(warp as usize) else { return };
        for (source, target) in from.1.iter().zip(to.1) {
            let &Passed::Local(target, size) = target else { continue };
            let target = u64::from(to.0 + target);
            for lane in lanes_of(lanes) {
                let bits = &mut local.0[lane];
                match *source {
                    Passed::Local(at, bytes) => {
                        let at = u64::from(from.0 + at);
                        let written = |i: &u64| bits.first_clear(at + i, 1).is_none();
                        let written: Vec<_> =
                            (0..u64::from(size.min(bytes))).filter(written).collect();
                        written.into_iter().for_each(|i| bits.set(target + i, 1));
                    }
                    Passed::Register(..) => bits.set(target, u64::from(size)),
                }
            }
        }
    }

    /// A function of the device has written its results.
    pub(crate) fn returned(&mut self, warp: u32, lanes: u32, base: u32, results: &[Passed]) {
        let Some(local) = self.local.get_mut(warp as usize) else { return };
        for result in results {
            let &Passed::Local(at, size) = result else { continue };
            let at = u64::from(base + at);
            lanes_of(lanes).for_each(|lane| local.0[lane].set(at, u64::from(size)));
        }
    }
}

/// What the lanes access in a space; what follows each other in one piece.
fn runs(places: &Places, space: FaultSpace, bytes: u64) -> impl Iterator<Item = Run> {
    let mut lanes = places.of(space).map(|(_, at)| at).peekable();
    std::iter::from_fn(move || {
        let at = lanes.next()?;
        let mut end = at.checked_add(bytes)?;
        while let Some(&next) = lanes.peek()
            && (next == end || next == end - bytes)
        {
            end = next.checked_add(bytes)?;
            lanes.next();
        }
        Some(Run { at, end })
    })
}

#[cold]
fn unwritten(
    ctx: &mut Ctx<'_>,
    bytes: u64,
    places: &Places,
    space: FaultSpace,
    missing: u64,
) -> Flow {
    let reads = |&(_, at): &(usize, u64)| at <= missing && missing - at < bytes;
    let (lane, address) = places.of(space).find(reads).unwrap_or((0, missing));
    let kind = FaultKind::Uninitialised { space, address, bytes: bytes as u32 };
    ctx.fault = Some(LaneFault { kind, lane: lane as u32, nearest: None });
    Flow::Fault
}
