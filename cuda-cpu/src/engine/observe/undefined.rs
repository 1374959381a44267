//! Registers that hold what nobody has written.
//!
//! Programs that are right load such values: compilers copy structs with the padding between their fields, and
//! algorithms load one element too many and then do not look at it. So what a load takes from shared
//! or local memory may be passed on, from register to register and into local and shared memory, where it
//! is as unwritten as it was. It is a fault of the load once something depends on it: an address, a branch, a store
//! to global memory, an atomic. A predicate that is false whatever the other one is does not depend on that one.
//!
//! Of each register (by its place in the warp's register file) only the lanes are kept that hold such a value. As long as
//! there is none, which is nearly always, nothing is looked at.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::table::{Registers, Rule};
use crate::engine::ctx::{Ctx, LANES, lanes_of};
use crate::engine::fault::FaultSpace;
use crate::engine::op::{Op, Slot};

/// Registers of a warp that are remembered; further ones count as written.
const MAX_REGISTERS: usize = 4096;

/// A load, and where its lanes loaded from.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) pc: u32,
    pub(crate) space: FaultSpace,
    pub(crate) bytes: u32,
    pub(crate) at: [u64; LANES],
}

/// Something depends on what a lane has loaded.
pub(crate) struct Used {
    pub(crate) lane: usize,
    pub(crate) origin: Arc<Origin>,
}

#[derive(Debug)]
struct Held {
    lanes: u32,
    origin: Arc<Origin>,
}

/// See the module: those of a warp.
#[derive(Debug, Default)]
pub(crate) struct Undefined(FxHashMap<u32, Held>);

impl Undefined {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A new frame begins in this part of the register file.
    pub(crate) fn clear_frame(&mut self, from: u32, to: u32, lanes: u32) {
        self.0.retain(|&at, held| {
            if (from..to).contains(&at) {
                held.lanes &= !lanes;
            }
            held.lanes != 0
        });
    }

    /// These lanes of a register of the frame at `frame` hold what this load gave them.
    pub(crate) fn set(&mut self, frame: u32, slot: Slot, lanes: u32, origin: &Arc<Origin>) {
        if lanes == 0 || slot == Slot::NONE {
            return;
        }
        let at = frame + slot.0;
        if self.0.len() < MAX_REGISTERS || self.0.contains_key(&at) {
            let held = self.0.entry(at).or_insert(Held { lanes: 0, origin: origin.clone() });
            held.lanes |= lanes;
            held.origin = origin.clone();
        }
    }

    /// The lanes of a register that hold such a value.
    pub(crate) fn lanes(&self, frame: u32, slot: Slot) -> u32 {
        self.get(frame, slot).map_or(0, |held| held.lanes)
    }

    fn get(&self, frame: u32, slot: Slot) -> Option<&Held> {
        match slot {
            Slot::NONE => None,
            slot => self.0.get(&(frame + slot.0)),
        }
    }

    /// That something depends on these lanes of a register, if they hold such a value.
    pub(crate) fn used(&self, frame: u32, slot: Slot, lanes: u32) -> Option<Used> {
        let held = self.get(frame, slot)?;
        let lane = lanes_of(held.lanes & lanes).next()?;
        Some(Used { lane, origin: held.origin.clone() })
    }

    /// The executing lanes' results take the places of what was there before: of such values, as the rule says.
    /// Gives the first one that something depends on.
    pub(crate) fn step(
        &mut self,
        ctx: &Ctx<'_>,
        op: &Op,
        frame: u32,
        registers: &Registers,
    ) -> Option<Used> {
        let active = ctx.guarded(op);
        let used = |slot| self.used(frame, slot, active);
        let Registers { rule, dests, sources, addresses } = registers;
        let guard = self.used(frame, op.guard, ctx.mask);
        if let Some(used) = guard.or_else(|| addresses.iter().copied().find_map(used)) {
            return Some(used);
        }
        if let Rule::Uses { .. } = rule
            && let Some(used) = sources.iter().find_map(|&(slot, _)| used(slot))
        {
            return Some(used);
        }
        let lanes = active & self.result(ctx, frame, *rule, sources);
        let from = |slot| self.get(frame, slot).filter(|held| held.lanes & lanes != 0);
        let origin = sources.iter().find_map(|&(slot, _)| from(slot)).map(|h| h.origin.clone());
        for &dest in dests.iter().filter(|&&dest| dest != Slot::NONE) {
            if let Some(held) = self.0.get_mut(&(frame + dest.0)) {
                held.lanes &= !active;
                if held.lanes == 0 {
                    self.0.remove(&(frame + dest.0));
                }
            }
            if let Some(origin) = &origin {
                self.set(frame, dest, lanes, origin);
            }
        }
        None
    }

    /// The lanes whose results hold such values.
    fn result(&self, ctx: &Ctx<'_>, frame: u32, rule: Rule, sources: &[(Slot, bool)]) -> u32 {
        let lanes = |&(slot, _): &(Slot, bool)| self.lanes(frame, slot);
        let any = |sources: &[(Slot, bool)]| sources.iter().map(lanes).fold(0, |a, b| a | b);
        // A constant is held by a register that has no name here: what it holds is not known, and nothing is lost.
        let holds = |&(slot, negated): &(Slot, bool), value: bool| match slot {
            Slot::NONE => 0,
            slot => {
                let truth = if negated { !ctx.pred(slot) } else { ctx.pred(slot) };
                (if value { truth } else { !truth }) & !self.lanes(frame, slot)
            }
        };
        match (rule, sources) {
            (Rule::Data, sources) => any(sources),
            (Rule::And, [a, b]) => any(sources) & !holds(a, false) & !holds(b, false),
            (Rule::Or, [a, b]) => any(sources) & !holds(a, true) & !holds(b, true),
            (Rule::CompareAnd, [.., c]) => any(sources) & !holds(c, false),
            (Rule::CompareOr, [.., c]) => any(sources) & !holds(c, true),
            (Rule::Select, [a, b, p]) => {
                lanes(p) | (lanes(a) & holds(p, true)) | (lanes(b) & holds(p, false))
            }
            _ => 0,
        }
    }
}
