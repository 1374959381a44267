//! The observer of one worker.

use super::meter::{InstructionBudget, Meter};
use super::options::Schedule;
use super::profile::Counts;
use super::shadow::Shadow;
use super::shuffle::Shuffle;
use super::{At, Checks, Observer, Profile, ReadOnly};
use crate::fault::FaultKind;
use crate::machine::code::{Code, Flow};
use crate::machine::ctx::Ctx;

/// The observation options of a launch.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) checks: Checks,
    pub(crate) schedule: Schedule,
    pub(crate) instructions: Option<&'a InstructionBudget>,
    pub(crate) profile: Option<&'a Profile>,
    pub(crate) read_only: Option<&'a ReadOnly>,
}

/// The observer state of a worker.
pub(crate) struct Watch<'a> {
    meter: Meter<'a>,
    limit: u64,
    counts: Option<(Counts, &'a Profile)>,
    /// Whether clocks count instructions.
    ticks: bool,
    shuffle: Option<Shuffle>,
    read_only: Option<&'a ReadOnly>,
    /// The shadow of the running block.
    shadow: Option<Box<Shadow>>,
    /// The running warp, and the start of the running function's frame in its register file.
    warp: u32,
    frame: u32,
}

impl<'a> Watch<'a> {
    /// Returns `None` if nothing is to be observed.
    pub(crate) fn new(wanted: Wanted<'a>, code: &Code, alone: bool) -> Option<Box<Self>> {
        let Wanted { checks, schedule, instructions, profile, read_only } = wanted;
        let ticks = schedule.is_deterministic();
        if !(checks.any() || ticks || instructions.is_some() || profile.is_some()) {
            return None;
        }
        let shuffle = match schedule {
            Schedule::Shuffled { seed } => Some(Shuffle::new(seed)),
            Schedule::Parallel | Schedule::Fixed => None,
        };
        Some(Box::new(Self {
            meter: Meter::new(instructions, alone),
            limit: instructions.map_or(0, |budget| budget.limit),
            counts: profile.map(|profile| (Counts::new(code.table.names().len()), profile)),
            ticks,
            shuffle,
            read_only,
            shadow: None,
            warp: 0,
            frame: 0,
        }))
    }

    /// Sets the warp and the frame of the lanes that run next.
    pub(crate) fn enter(&mut self, warp: u32, frame: u32) {
        (self.warp, self.frame) = (warp, frame);
    }

    /// Called after the worker's last block. Returns whether the launch has exceeded its instruction limit.
    pub(crate) fn finish(&mut self, kernel: &str, code: &Code) -> bool {
        if let Some((counts, profile)) = self.counts.take() {
            profile.add(kernel, code.table.names(), &counts);
        }
        self.meter.finish()
    }

    /// Exchanges the shadow with that of a block that starts or ends its turn.
    pub(crate) fn swap_shadow(&mut self, shadow: &mut Option<Box<Shadow>>) {
        std::mem::swap(&mut self.shadow, shadow);
    }

    pub(crate) fn shuffle(&mut self) -> Option<&mut Shuffle> {
        self.shuffle.as_mut()
    }

    pub(crate) fn shadow(&mut self) -> Option<&mut Shadow> {
        self.shadow.as_deref_mut()
    }

    /// Counts an instruction. Returns a flow if it must not execute now.
    fn count(&mut self, ctx: &mut Ctx<'_>, code: &Code, pc: u32, kind: u32) -> Option<Flow> {
        if let Some(shuffle) = &mut self.shuffle
            && !shuffle.step()
        {
            return Some(Flow::Next);
        }
        if !self.meter.spend() {
            let lane = ctx.mask.trailing_zeros() as usize & 31;
            return Some(ctx.fail(lane, FaultKind::InstructionBudget { limit: self.limit }));
        }
        if self.ticks {
            ctx.clock.tick();
        }
        if let Some((counts, _)) = &mut self.counts {
            counts.add(kind, ctx.guarded(&code.ops[pc as usize]));
        }
        None
    }
}

impl Observer for Watch<'_> {
    #[inline]
    fn before(&mut self, ctx: &mut Ctx<'_>, code: &Code, pc: u32) -> Option<Flow> {
        if let Some(kind) = code.table.kind(pc)
            && let Some(flow) = self.count(ctx, code, pc, kind)
        {
            return Some(flow);
        }
        if let Some(flow) = self.read_only.and_then(|read_only| read_only.before(ctx, pc)) {
            return Some(flow);
        }
        let shadow = self.shadow.as_mut()?;
        shadow.before(ctx, At { pc, warp: self.warp, frame: self.frame })
    }
}
