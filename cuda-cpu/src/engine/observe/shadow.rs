//! What is remembered of a running block.

use super::effect::{Effect, Places};
use super::options::Checks;
use super::races::Races;
use super::written::Written;
use crate::engine::block::BlockFault;
use crate::engine::budget::Budget;
use crate::engine::code::{Code, Passed};
use crate::engine::ctx::{Ctx, LANES, LaneFault};
use crate::engine::fault::{FaultKind, FaultSpace};
use crate::engine::op::{Flow, Slot};

/// See the module: what the checks of a launch need.
pub(crate) struct Shadow {
    written: Option<Written>,
    races: Option<Races>,
    /// The first read of unwritten shared memory, while it may turn out to be one half of a race: whoever should
    /// have written may only be late. It is told when nobody races with it up to the next barrier of the
    /// block, and before any fault that may be its consequence.
    doubtful: Option<(LaneFault, BlockFault)>,
    /// There will be no race with it any more.
    certain: bool,
    /// Bytes on the host, but for what [`Written`] grows by.
    fixed: u64,
}

/// How large a block is.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub(crate) warps: u32,
    pub(crate) shared: u64,
    /// Local memory of a lane.
    pub(crate) local: u64,
}

impl Size {
    pub(crate) fn new(code: &Code, function: u32, threads: u32, shared: u32) -> Self {
        let local = code.functions[function as usize].local_bytes.into();
        Self { warps: threads.div_ceil(LANES as u32), shared: shared.into(), local }
    }
}

impl Shadow {
    /// `None` when the host has no room.
    pub(crate) fn new(checks: Checks, size: Size) -> Option<Self> {
        let Size { warps, shared, local } = size;
        let written = checks.uninitialised.then(|| Written::new(warps.into(), shared, local));
        let races = checks.races.then(|| Races::new(warps, shared));
        let fixed = races_need(checks, size);
        Some(Self {
            written: written.map_or(Some(None), |new| new.map(Some))?,
            races: races.map_or(Some(None), |new| new.map(Some))?,
            doubtful: None,
            certain: false,
            fixed,
        })
    }

    /// The bytes on the host that a new one takes.
    pub(crate) fn needed(checks: Checks, size: Size) -> u64 {
        let Size { warps, shared, local } = size;
        let written =
            if checks.uninitialised { Written::needed(warps.into(), shared, local) } else { 0 };
        written + races_need(checks, size)
    }

    /// The bytes on the host that it takes.
    pub(crate) fn taken(&self) -> u64 {
        self.fixed + self.written.as_ref().map_or(0, Written::taken)
    }

    /// A new block begins.
    pub(crate) fn restart(&mut self) {
        self.written.iter_mut().for_each(Written::restart);
        self.races.iter_mut().for_each(Races::restart);
        (self.doubtful, self.certain) = (None, false);
    }

    /// The block has come to an end, or to this fault: what is to be told instead, and where it happened.
    pub(crate) fn verdict(&mut self, fault: Option<&LaneFault>) -> Option<(LaneFault, BlockFault)> {
        let race = fault.is_some_and(|fault| matches!(fault.kind, FaultKind::Race { .. }));
        self.doubtful.take().filter(|_| !race)
    }

    /// Checks what the op at `pc` does.
    pub(crate) fn before(
        &mut self,
        ctx: &mut Ctx<'_>,
        code: &Code,
        pc: u32,
        warp: u32,
    ) -> Option<Flow> {
        if self.certain {
            // `verdict` tells it.
            return Some(Flow::Fault);
        }
        if let Some(races) = &mut self.races {
            races.run(warp, ctx.mask);
        }
        let effects = code.table.effects(pc);
        if effects.is_empty() {
            return None;
        }
        let active = ctx.guarded(&code.ops[pc as usize]);
        effects.iter().find_map(|effect| self.effect(ctx, (pc, warp), active, effect))
    }

    fn effect(
        &mut self,
        ctx: &mut Ctx<'_>,
        (pc, warp): (u32, u32),
        active: u32,
        effect: &Effect,
    ) -> Option<Flow> {
        match effect {
            Effect::Access(access) => {
                let places = Places::new(ctx, access, active);
                let written = self.written.as_mut();
                let fault = written.and_then(|w| w.access(ctx, warp, access, &places));
                if fault.is_some() && !self.doubts(ctx, BlockFault { pc, warp }) {
                    return fault;
                }
                self.races.as_mut()?.access(ctx, (pc, warp), access, &places)
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

    /// A barrier lets go of those who wait there (warps and their lanes): `everyone` if they are the whole block.
    pub(crate) fn release(
        &mut self,
        barrier: u32,
        everyone: bool,
        waiting: impl Iterator<Item = (u32, u32)>,
    ) {
        if let Some(races) = &mut self.races {
            races.release(barrier, everyone, waiting);
        }
        self.certain = everyone && self.doubtful.is_some();
    }

    /// Whether a read of unwritten memory may turn out to be a race.
    fn doubts(&mut self, ctx: &mut Ctx<'_>, at: BlockFault) -> bool {
        let doubtful = |fault: &mut LaneFault| {
            let kind = &fault.kind;
            matches!(kind, FaultKind::Uninitialised { space: FaultSpace::Shared, .. })
                && self.races.is_some()
        };
        let Some(fault) = ctx.fault.take_if(doubtful) else { return false };
        self.doubtful.get_or_insert((fault, at));
        true
    }

    /// See [`Written::enter`].
    #[must_use]
    pub(crate) fn enter_call(
        &mut self,
        warp: u32,
        lanes: u32,
        frame: (u32, u32),
        budget: &Budget,
    ) -> bool {
        self.written.as_mut().is_none_or(|written| written.enter(warp, lanes, frame, budget))
    }

    /// See [`Written::pass`].
    pub(crate) fn pass(
        &mut self,
        warp: u32,
        lanes: u32,
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        self.written.iter_mut().for_each(|written| written.pass(warp, lanes, from, to));
    }

    /// See [`Written::returned`].
    pub(crate) fn returned(&mut self, warp: u32, lanes: u32, base: u32, results: &[Passed]) {
        self.written.iter_mut().for_each(|written| written.returned(warp, lanes, base, results));
    }
}

fn races_need(checks: Checks, size: Size) -> u64 {
    if checks.races { Races::needed(size.warps.into(), size.shared) } else { 0 }
}
