//! Collectives of a warp: lanes wait until all members have come, and are served together.

use super::code::{Collective, Control};
use super::ctx::lanes_of;
use super::runner::Runner;
use super::warp::{Fragment, Wait, Warp};

impl Runner<'_> {
    /// Lanes come to a collective and wait, each with those that name the same members.
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
            let Wait::Members(members) = warp.parked[i].1 else {
                i += 1;
                continue;
            };
            let together = |w: &Wait| *w == Wait::Members(members);
            let present =
                warp.parked.iter().filter(|(_, w)| together(w)).fold(0, |m, (f, _)| m | f.mask);
            if members & warp.live & !present != 0 {
                i += 1;
                continue;
            }
            let group: Vec<Fragment> =
                warp.parked.iter().filter(|(_, w)| together(w)).map(|&(f, _)| f).collect();
            warp.parked.retain(|(_, w)| !together(w));
            self.complete(warp, &group, present);
            i = 0;
        }
    }

    fn complete(&mut self, warp: &mut Warp, group: &[Fragment], present: u32) {
        let code = self.code;
        let op_of = |f: &Fragment| &code.ops[f.pc as usize];
        for fragment in group {
            let op = op_of(fragment);
            if let Control::Collective(c) = &code.controls[op.extra as usize] {
                self.enter(warp, fragment);
                (c.deposit)(&mut self.ctx, op);
            }
        }
        for fragment in group {
            let op = op_of(fragment);
            if let Control::Collective(c) = &code.controls[op.extra as usize] {
                self.enter(warp, fragment);
                (c.complete)(&mut self.ctx, op, present);
            }
            warp.ready.push(Fragment { pc: fragment.pc + 1, ..*fragment });
        }
    }
}
