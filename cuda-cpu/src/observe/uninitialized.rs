//! Detects uses of memory that was never written. A read of global memory is a fault at once. A read of shared or local
//! memory is a fault when a result depends on it ([`undefined`](super::undefined)).
//!
//! The reads of an op are checked before its writes are marked, for all lanes at a time. Lanes execute together, so the
//! writes of an op do not define its reads.

use std::sync::Arc;

use super::places::Places;
use super::undefined::{From, Origin, Trail, Undefined, Used};
use super::written::Written;
use crate::exec::collective::shuffle_sources;
use crate::fault::{FaultKind, FaultSpace};
use crate::isa::effect::{Access, Rule};
use crate::isa::operand::{Passed, Slot};
use crate::lanes::LANES;
use crate::machine::budget::Budget;
use crate::machine::ctx::{BlockFault, Ctx, LaneFault};

/// The unwritten memory of a block's threads, and the registers that hold unwritten values.
pub(crate) struct Uninitialized {
    written: Written,
    /// For each warp, its undefined registers.
    registers: Vec<Undefined>,
    trail: Trail,
}

/// The position of an op.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) pc: u32,
    pub(crate) warp: u32,
    /// Start of the function's frame in the warp's register file.
    pub(crate) frame: u32,
}

/// A fault and its location.
pub(crate) type Found = (LaneFault, BlockFault);

impl Uninitialized {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(warps: u32, shared: u64, local: u64) -> Option<Self> {
        let registers = (0..warps).map(|_| Undefined::default()).collect();
        let written = Written::new(warps.into(), shared, local)?;
        Some(Self { written, registers, trail: Trail::default() })
    }

    /// Returns the host memory that a new check takes, in bytes.
    pub(crate) fn needed(warps: u32, shared: u64, local: u64) -> u64 {
        let warps = u64::from(warps);
        Written::needed(warps, shared, local) + warps * size_of::<Undefined>() as u64
    }

    /// Returns the host memory that the check takes, in bytes.
    pub(crate) fn taken(&self) -> u64 {
        self.written.taken() + (self.registers.len() * size_of::<Undefined>()) as u64
    }

    /// Resets the check for a new block.
    pub(crate) fn restart(&mut self) {
        self.written.restart();
        self.registers.iter_mut().for_each(Undefined::clear);
        self.trail.clear();
    }

    /// Tracks the registers of an instruction. Returns a fault if an action depends on an unwritten value.
    #[inline]
    pub(crate) fn step(&mut self, ctx: &Ctx<'_>, at: At) -> Option<Found> {
        let registers = self.registers.get_mut(at.warp as usize)?;
        if registers.is_empty() {
            return None;
        }
        let op = &ctx.code.ops[at.pc as usize];
        let used = registers.step(ctx, op, at.frame, ctx.code.table.registers(at.pc)?)?;
        Some(found(&used))
    }

    /// Records the unwritten values that lanes contribute to a shuffle. `first` is true for its first fragment.
    pub(crate) fn show(&mut self, ctx: &Ctx<'_>, at: At, lanes: u32, first: bool) {
        if let Some(own) = self.registers.get_mut(at.warp as usize) {
            own.show(at.frame, ctx.code.ops[at.pc as usize].a, lanes, first);
        }
    }

    /// Writes the results of a shuffle: unwritten values of participating lanes, and the values of absent lanes.
    pub(crate) fn shuffle(
        &mut self,
        ctx: &Ctx<'_>,
        At { pc, warp, frame }: At,
        members: Slot,
        active: u32,
        participants: u32,
    ) {
        let Some(registers) = self.registers.get_mut(warp as usize) else { return };
        let op = &ctx.code.ops[pc as usize];
        let (sources, absent) = shuffle_sources(ctx, op, active, participants);
        if absent == 0 && registers.shows_nothing() {
            return;
        }
        let members = ctx.read::<u32>(members);
        let origin = || Origin::new(pc, warp, From::Lane { lane: sources, members });
        let absent = (absent != 0).then(|| (absent, origin()));
        registers.shuffle(frame, (op.d, Slot(op.cache)), active, &sources, absent);
    }

    /// Checks the bytes that an access reads, and marks those that it writes.
    pub(crate) fn access(
        &mut self,
        ctx: &mut Ctx<'_>,
        at: At,
        access: &Access,
        places: &Places,
    ) -> Option<Found> {
        let bytes = access.bytes().into();
        if access.kind.needs_value() && self.written.misses_some(ctx, at.warp, bytes, places) {
            let used = self.unwritten(ctx, at, access, places);
            if used.is_some() {
                return used;
            }
        }
        if access.kind.writes() {
            self.written.mark(ctx, at.warp, bytes, places);
            return self.pass_on(ctx, at, access, places);
        }
        None
    }

    /// Handles a read of unwritten memory: the destination registers hold the value, or the read is a fault.
    #[cold]
    fn unwritten(
        &mut self,
        ctx: &mut Ctx<'_>,
        At { pc, warp, frame }: At,
        access: &Access,
        places: &Places,
    ) -> Option<Found> {
        let bytes = access.bytes();
        let (mut read, mut at) = (FaultSpace::Global, [0; LANES]);
        let origin = |space, at| Origin::new(pc, warp, From::Memory { space, bytes, at });
        let loads = ctx.code.table.registers(pc).filter(|r| r.rule == Rule::Load);
        let size = u64::from(access.element);
        let mut lanes = vec![0u32; access.count as usize];
        // Elements with an earlier origin: the index of the element, the lane and the origin.
        let mut earlier = Vec::new();
        for (lane, space, start) in places.all() {
            at[lane] = start;
            for (i, lanes) in (0..).zip(&mut lanes) {
                let used = access.used >> (i * size).min(63);
                let place = (space, start + i * size);
                if !self.written.misses(ctx, (warp, lane), place, (size, used)) {
                    continue;
                }
                read = space;
                let left = self.trail.find((warp, lane), place);
                if space == FaultSpace::Global || loads.is_none() {
                    let origin = Arc::new(left.unwrap_or_else(|| origin(space, at)));
                    return Some(found(&Used { lane, origin }));
                }
                match left {
                    Some(left) => earlier.push((i as usize, lane, Arc::new(left))),
                    None => *lanes |= 1 << lane,
                }
            }
        }
        let origin = Arc::new(origin(read, at));
        let registers = &mut self.registers[warp as usize];
        let dests = loads.iter().flat_map(|registers| &registers.dests);
        for (&dest, lanes) in dests.clone().zip(lanes) {
            registers.set(frame, dest, lanes, &origin);
        }
        for (i, lane, origin) in earlier {
            let dest = dests.clone().nth(i).copied().unwrap_or(Slot::NONE);
            registers.set(frame, dest, 1 << lane, &origin);
        }
        None
    }

    /// Handles stores of unwritten values.
    fn pass_on(
        &mut self,
        ctx: &Ctx<'_>,
        At { warp, frame, .. }: At,
        access: &Access,
        places: &Places,
    ) -> Option<Found> {
        let registers = self.registers.get(warp as usize).filter(|held| !held.is_empty())?;
        for i in 0..access.count {
            let Some((slot, _)) = access.source(ctx, i) else { continue };
            for (lane, space, start) in places.all() {
                let Some(used) = registers.used(frame, slot, 1 << lane) else { continue };
                if space == FaultSpace::Global {
                    return Some(found(&used));
                }
                let place = (space, start + u64::from(i * access.element));
                self.written.unmark((warp, lane), place, access.element.into());
                self.trail.leave((warp, lane), place, access.element.into(), &used.origin);
            }
        }
        None
    }

    /// Handles the start of a call: its part of local memory and of the register file is unwritten. Returns false if
    /// there is no room.
    #[must_use]
    pub(crate) fn enter_call(
        &mut self,
        warp: u32,
        lanes: u32,
        local: (u32, u32),
        registers: (u32, u32),
        budget: &Budget,
    ) -> bool {
        if let Some(held) = self.registers.get_mut(warp as usize).filter(|held| !held.is_empty()) {
            held.clear_frame(registers.0, registers.1, lanes);
        }
        self.give_local(warp, lanes, local, budget)
    }

    /// See [`Written::give`].
    #[must_use]
    pub(crate) fn give_local(
        &mut self,
        warp: u32,
        lanes: u32,
        local: (u32, u32),
        budget: &Budget,
    ) -> bool {
        self.trail.give(warp, lanes, local);
        self.written.give(warp, lanes, local, budget)
    }

    /// See [`Written::pass`].
    pub(crate) fn pass(
        &mut self,
        warp: u32,
        lanes: u32,
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        self.trail.pass(warp, lanes, from, to);
        self.written.pass(warp, lanes, from, to);
    }

    /// See [`Written::returned`].
    pub(crate) fn returned(&mut self, warp: u32, lanes: u32, base: u32, results: &[Passed]) {
        self.written.returned(warp, lanes, base, results);
    }
}

fn found(Used { lane, origin }: &Used) -> Found {
    let by = usize::from(origin.by[*lane]) % LANES;
    let kind = match &origin.from {
        &From::Memory { space, bytes, at } => {
            FaultKind::Uninitialized { space, address: at[by], bytes }
        }
        From::Lane { lane, members } => {
            FaultKind::AbsentLane { lane: lane[by].into(), members: members[by] }
        }
    };
    (LaneFault::new(by, kind), BlockFault { pc: origin.pc, warp: origin.warp })
}
