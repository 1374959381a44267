//! Reads of memory that was never written: of global memory at once, of shared and local memory when something
//! depends on them ([`undefined`](super::undefined)).
//!
//! An op's reads are checked before its writes are marked, all lanes at a time: lanes run together, so none
//! of them has written what another one reads in the same op.

use std::sync::Arc;

use super::effect::Access;
use super::places::Places;
use super::table::Rule;
use super::trail::Trail;
use super::undefined::{From, Origin, Undefined, Used};
use super::written::Written;
use crate::engine::block::BlockFault;
use crate::engine::budget::Budget;
use crate::engine::code::{Collective, Passed};
use crate::engine::ctx::{Ctx, LANES, LaneFault};
use crate::engine::exec::collective::shuffle_sources;
use crate::engine::fault::{FaultKind, FaultSpace};
use crate::engine::op::Slot;

/// What a block's threads have not written, and where it is.
pub(crate) struct Uninitialised {
    written: Written,
    /// By warp.
    registers: Vec<Undefined>,
    trail: Trail,
}

/// Where an op is executed.
#[derive(Clone, Copy)]
pub(crate) struct At {
    pub(crate) pc: u32,
    pub(crate) warp: u32,
    /// Where the function's frame begins in the warp's register file.
    pub(crate) frame: u32,
}

/// A fault, and where it happened.
pub(crate) type Found = (LaneFault, BlockFault);

impl Uninitialised {
    /// `None` when the host has no room.
    pub(crate) fn new(warps: u32, shared: u64, local: u64) -> Option<Self> {
        let registers = (0..warps).map(|_| Undefined::default()).collect();
        let written = Written::new(warps.into(), shared, local)?;
        Some(Self { written, registers, trail: Trail::default() })
    }

    /// The bytes on the host that a new one takes.
    pub(crate) fn needed(warps: u32, shared: u64, local: u64) -> u64 {
        let warps = u64::from(warps);
        Written::needed(warps, shared, local) + warps * size_of::<Undefined>() as u64
    }

    /// The bytes on the host that it takes.
    pub(crate) fn taken(&self) -> u64 {
        self.written.taken() + (self.registers.len() * size_of::<Undefined>()) as u64
    }

    /// A new block begins.
    pub(crate) fn restart(&mut self) {
        self.written.restart();
        self.registers.iter_mut().for_each(Undefined::clear);
        self.trail.clear();
    }

    /// An instruction is executed: what of its sources was written by nobody?
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

    /// Lanes show a register to those that take part in a shuffle with them; the first ones of it say so.
    pub(crate) fn show(&mut self, ctx: &Ctx<'_>, at: At, lanes: u32, first: bool) {
        if let Some(own) = self.registers.get_mut(at.warp as usize) {
            own.show(at.frame, ctx.code.ops[at.pc as usize].a, lanes, first);
        }
    }

    /// A shuffle of what was shown: what these lanes get that was never written, or that comes from lanes that take no
    /// part.
    pub(crate) fn shuffle(
        &mut self,
        ctx: &Ctx<'_>,
        At { pc, warp, frame }: At,
        shuffle: &Collective,
        active: u32,
        participants: u32,
    ) {
        let Some(registers) = self.registers.get_mut(warp as usize) else { return };
        let op = &ctx.code.ops[pc as usize];
        let (sources, absent) = shuffle_sources(ctx, op, active, participants);
        if absent == 0 && registers.shows_nothing() {
            return;
        }
        let members = ctx.read::<u32>(shuffle.members);
        let origin = || Origin::new(pc, warp, From::Lane { lane: sources, members });
        let absent = (absent != 0).then(|| (absent, origin()));
        registers.shuffle(frame, (op.d, Slot(op.cache)), active, &sources, absent);
    }

    /// Checks what an access reads, and marks what it writes.
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

    /// Some lanes read what nobody has written: their registers will hold it, or that is a fault.
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
        // What was somebody's before: which element of which lanes.
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

    /// Lanes write what nobody has written.
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

    /// These lanes of a warp begin a call, with this part of local memory and of the register file. False when there
    /// is no room.
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
            FaultKind::Uninitialised { space, address: at[by], bytes }
        }
        From::Lane { lane, members } => {
            FaultKind::AbsentLane { lane: lane[by].into(), members: members[by] }
        }
    };
    (LaneFault::new(by, kind), BlockFault { pc: origin.pc, warp: origin.warp })
}
