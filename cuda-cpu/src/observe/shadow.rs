//! Records of a running block for the checks.

use super::options::Checks;
use super::places::Places;
use super::races::Races;
use super::uninitialized::{At, Found, Uninitialized};
use crate::exec::collective::all_here;
use crate::fault::{FaultKind, FaultSpace};
use crate::isa::effect::{Access, Effect};
use crate::isa::operand::{Passed, Slot};
use crate::lanes::LANES;
use crate::machine::budget::Budget;
use crate::machine::code::{Code, Flow};
use crate::machine::ctx::{Ctx, LaneFault};

/// The check data of a block.
pub(crate) struct Shadow {
    uninitialized: Option<Uninitialized>,
    races: Option<Races>,
    /// The first use of an unwritten value. A read of shared memory may be one half of a race, because the writing
    /// thread may be late. The fault is then reported only if no race is found before the next barrier of the block, or
    /// before any fault that it may have caused.
    found: Option<Found>,
    /// Whether `found` is to be reported now.
    certain: bool,
    /// Host memory of the parts that do not grow, in bytes.
    fixed: u64,
}

/// The size of a block.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) warps: u32,
    pub(crate) shared: u64,
    /// Local memory of a lane in bytes.
    pub(crate) local: u64,
}

impl Size {
    pub(crate) fn new(code: &Code, function: u32, threads: u32, shared: u32) -> Self {
        let local = code.functions[function as usize].local_bytes.into();
        Self { warps: threads.div_ceil(LANES as u32), shared: shared.into(), local }
    }
}

impl Shadow {
    /// Returns `None` if the host has no memory.
    pub(crate) fn new(checks: Checks, size: Size) -> Option<Self> {
        let Size { warps, shared, local } = size;
        let uninitialized = checks.uninitialized.then(|| Uninitialized::new(warps, shared, local));
        let races = checks.races.then(|| Races::new(warps, shared));
        Some(Self {
            uninitialized: uninitialized.map_or(Some(None), |new| new.map(Some))?,
            races: races.map_or(Some(None), |new| new.map(Some))?,
            found: None,
            certain: false,
            fixed: races_need(checks, size),
        })
    }

    /// Returns the host memory that a new shadow takes, in bytes.
    pub(crate) fn needed(checks: Checks, size: Size) -> u64 {
        let Size { warps, shared, local } = size;
        let uninitialized = match checks.uninitialized {
            true => Uninitialized::needed(warps, shared, local),
            false => 0,
        };
        uninitialized + races_need(checks, size)
    }

    /// Returns the host memory that the shadow takes, in bytes.
    pub(crate) fn taken(&self) -> u64 {
        self.fixed + self.uninitialized.as_ref().map_or(0, Uninitialized::taken)
    }

    /// Resets the records for a new block.
    pub(crate) fn restart(&mut self) {
        self.uninitialized.iter_mut().for_each(Uninitialized::restart);
        self.races.iter_mut().for_each(Races::restart);
        (self.found, self.certain) = (None, false);
    }

    /// Called at the end of a block or at a fault. Returns the fault to report instead, with its location.
    pub(crate) fn verdict(&mut self, fault: Option<&LaneFault>) -> Option<Found> {
        let race = fault.is_some_and(|fault| matches!(fault.kind, FaultKind::Race { .. }));
        self.found.take().filter(|_| !race)
    }

    /// Checks an op. On a fault, either the context holds it, or `verdict` returns it.
    pub(crate) fn before(&mut self, ctx: &mut Ctx<'_>, at: At) -> Option<Flow> {
        if self.certain {
            return Some(Flow::Fault);
        }
        if let Some(races) = &mut self.races {
            races.run(at.warp, ctx.mask);
        }
        if let Some(found) = self.uninitialized.as_mut().and_then(|own| own.step(ctx, at))
            && let Some(flow) = self.report(found)
        {
            return Some(flow);
        }
        let effects = ctx.code.table.effects(at.pc);
        if effects.is_empty() {
            return None;
        }
        let active = ctx.guarded(&ctx.code.ops[at.pc as usize]);
        effects.iter().find_map(|effect| self.effect(ctx, at, active, effect))
    }

    fn effect(&mut self, ctx: &mut Ctx<'_>, at: At, active: u32, effect: &Effect) -> Option<Flow> {
        let warp = at.warp;
        match effect {
            Effect::Access(access) => self.access(ctx, at, active, access),
            Effect::Bulk(bulk) => {
                let pieces = bulk.pieces(ctx, active);
                pieces.iter().find_map(|piece| self.access(ctx, at, active, piece))
            }
            Effect::Publish => {
                self.races.iter_mut().for_each(|races| races.publish(warp, active));
                None
            }
            Effect::Learn => {
                self.races.iter_mut().for_each(|races| races.learn(warp, active));
                None
            }
            Effect::Fence => {
                self.races.iter_mut().for_each(|races| races.fence(warp, active));
                None
            }
            &Effect::Barrier(id) => {
                let id = |lane| ctx.lane::<u32>(id, lane);
                self.races.iter_mut().for_each(|races| races.arrive(warp, active, id));
                None
            }
            &Effect::Shuffle(members) => {
                // Otherwise the scheduler reports the shuffle when all members are present.
                if active != 0 && all_here(ctx, members, active) {
                    self.show(ctx, at, active, true);
                    self.shuffle(ctx, at, members, active, active);
                }
                None
            }
            &Effect::Meeting(members) => {
                let mask = |lane| match members {
                    Slot::NONE => active,
                    slot => ctx.lane::<u32>(slot, lane),
                };
                self.races.iter_mut().for_each(|races| races.wait(warp, active, mask));
                None
            }
        }
    }

    /// See [`Uninitialized::show`].
    pub(crate) fn show(&mut self, ctx: &Ctx<'_>, at: At, lanes: u32, first: bool) {
        self.uninitialized.iter_mut().for_each(|own| own.show(ctx, at, lanes, first));
    }

    /// Reports the completion of a shuffle for the `active` lanes of a fragment, with all `participants`.
    pub(crate) fn shuffle(
        &mut self,
        ctx: &Ctx<'_>,
        at: At,
        members: Slot,
        active: u32,
        participants: u32,
    ) {
        if let Some(own) = &mut self.uninitialized {
            own.shuffle(ctx, at, members, active, participants);
        }
    }

    fn access(&mut self, ctx: &mut Ctx<'_>, at: At, active: u32, access: &Access) -> Option<Flow> {
        let places = Places::new(ctx, access, active);
        let found = self.uninitialized.as_mut();
        let found = found.and_then(|own| own.access(ctx, at, access, &places));
        if let Some(flow) = found.and_then(|found| self.report(found)) {
            return Some(flow);
        }
        self.races.as_mut()?.access(ctx, (at.pc, at.warp), access, &places)
    }

    /// Handles a read of unwritten memory. It is reported at once, unless it may turn out to be a race.
    fn report(&mut self, found: Found) -> Option<Flow> {
        let shared =
            matches!(found.0.kind, FaultKind::Uninitialized { space: FaultSpace::Shared, .. });
        self.found.get_or_insert(found);
        self.certain |= !shared || self.races.is_none();
        self.certain.then_some(Flow::Fault)
    }

    /// Reports the release of a barrier, with the waiting lanes of each warp. `whole_block` is true if all live threads
    /// of the block wait there.
    pub(crate) fn release(
        &mut self,
        barrier: u32,
        whole_block: bool,
        waiting: impl Iterator<Item = (u32, u32)>,
    ) {
        if let Some(races) = &mut self.races {
            races.release(barrier, whole_block, waiting);
        }
        self.certain |= whole_block && self.found.is_some();
    }

    /// Reports the start of a call. See [`Uninitialized::enter_call`].
    #[must_use]
    pub(crate) fn enter_call(
        &mut self,
        (warp, lanes): (u32, u32),
        local: (u32, u32),
        registers: (u32, u32),
        budget: &Budget,
    ) -> bool {
        let own = self.uninitialized.as_mut();
        own.is_none_or(|own| own.enter_call(warp, lanes, local, registers, budget))
    }

    /// Marks a part of these lanes' local memory as unwritten. Returns false if there is no room.
    #[must_use]
    pub(crate) fn give_local(
        &mut self,
        (warp, lanes): (u32, u32),
        local: (u32, u32),
        budget: &Budget,
    ) -> bool {
        let own = self.uninitialized.as_mut();
        own.is_none_or(|own| own.give_local(warp, lanes, local, budget))
    }

    /// Reports that arguments or results were copied between frames.
    pub(crate) fn pass(
        &mut self,
        (warp, lanes): (u32, u32),
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        self.uninitialized.iter_mut().for_each(|own| own.pass(warp, lanes, from, to));
    }

    /// Reports that a builtin function has written its results.
    pub(crate) fn returned(&mut self, (warp, lanes): (u32, u32), base: u32, results: &[Passed]) {
        self.uninitialized.iter_mut().for_each(|own| own.returned(warp, lanes, base, results));
    }
}

fn races_need(checks: Checks, size: Size) -> u64 {
    if checks.races { Races::needed(size.warps.into(), size.shared) } else { 0 }
}
