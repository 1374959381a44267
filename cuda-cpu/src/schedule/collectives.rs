//! Collectives of a warp: lanes wait until all members have arrived, and complete together.
//!
//! A collective matches lanes that name the same member mask in the same kind of instruction. The instructions can be
//! at different places in the code. Lanes in different kinds of instructions wait for each other without end, because,
//! for example, a vote provides no value for a shuffle.

use super::runner::Runner;
use super::warp::{Fragment, Wait, Warp};
use crate::isa::effect::Effect;
use crate::lanes::lanes_of;
use crate::machine::code::{Collective, Control};
use crate::machine::ctx::Ctx;
use crate::observe::{At, Shadow};

impl Runner<'_> {
    /// Parks lanes at a collective. Lanes with the same member mask share a parked fragment.
    pub(super) fn park(&mut self, warp: &mut Warp, here: Fragment, collective: &Collective) {
        for lane in lanes_of(here.mask) {
            let members = self.ctx.lane::<u32>(collective.members, lane);
            let one = Fragment { mask: 1 << lane, ..here };
            let same = |(f, w): &&mut (Fragment, Wait)| {
                f.pc == here.pc && f.call == here.call && *w == Wait::Members(members)
            };
            match warp.parked.iter_mut().find(same) {
                Some((f, _)) => f.mask |= one.mask,
                None => warp.parked.push((one, Wait::Members(members))),
            }
        }
    }

    /// Completes every collective whose members have all arrived or exited.
    pub(super) fn meet(&mut self, warp: &mut Warp) {
        let mut i = 0;
        while i < warp.parked.len() {
            let (fragment, wait) = warp.parked[i];
            let Wait::Members(members) = wait else {
                i += 1;
                continue;
            };
            let kind = |fragment: &Fragment| self.code.table.kind(fragment.pc);
            let together = |(f, w): &(Fragment, Wait)| *w == wait && kind(f) == kind(&fragment);
            let here = warp.parked.iter().filter(|parked| together(parked)).map(|&(f, _)| f);
            let present = here.clone().fold(0, |m, f| m | f.mask);
            if members & warp.live & !present != 0 {
                i += 1;
                continue;
            }
            let group: Vec<Fragment> = here.collect();
            warp.parked.retain(|parked| !together(parked));
            self.complete(warp, &group, present);
            i = 0;
        }
    }

    fn complete(&mut self, warp: &mut Warp, group: &[Fragment], present: u32) {
        let code = self.code;
        let op_of = |f: &Fragment| &code.ops[f.pc as usize];
        for (i, fragment) in group.iter().enumerate() {
            let op = op_of(fragment);
            if let Control::Collective(c) = &code.controls[op.extra as usize] {
                self.enter(warp, fragment);
                self.report_shuffle(warp, fragment, |shadow, ctx, at| {
                    shadow.show(ctx, at, fragment.mask, i == 0);
                });
                (c.deposit)(&mut self.ctx, op);
            }
        }
        for fragment in group {
            let op = op_of(fragment);
            if let Control::Collective(c) = &code.controls[op.extra as usize] {
                self.enter(warp, fragment);
                self.report_shuffle(warp, fragment, |shadow, ctx, at| {
                    shadow.shuffle(ctx, at, c.members, fragment.mask, present);
                });
                (c.complete)(&mut self.ctx, op, present);
            }
            warp.ready.push(Fragment { pc: fragment.pc + 1, ..*fragment });
        }
    }

    /// Reports a shuffle to the block's shadow.
    fn report_shuffle(
        &mut self,
        warp: &Warp,
        fragment: &Fragment,
        report: impl FnOnce(&mut Shadow, &Ctx<'_>, At),
    ) {
        let &Fragment { pc, call, .. } = fragment;
        let is_shuffle = |effect: &Effect| matches!(effect, Effect::Shuffle(_));
        if let Some(shadow) = self.watch.as_mut().and_then(|watch| watch.shadow())
            && self.code.table.effects(pc).iter().any(is_shuffle)
        {
            let at = At { pc, warp: warp.index, frame: warp.calls[call as usize].frame };
            report(shadow, &self.ctx, at);
        }
    }
}
