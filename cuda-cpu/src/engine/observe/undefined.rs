//! Registers that hold what nobody has written.
//!
//! Programs that are right load such values: compilers copy structs with the padding between their fields, and
//! algorithms load one element too many and then do not look at it. So what a load takes from shared
//! or local memory may be passed on, from register to register and into local and shared memory, where it
//! is as unwritten as it was. It is a fault of the load once something depends on it: an address, a branch, a store
//! to global memory, an atomic. A predicate that is false whatever the other one is does not depend on that one.
//!
//! The same holds for what a shuffle takes from a lane that takes no part in it: reductions do that in lanes
//! whose results nobody looks at.
//!
//! Of each register (by its place in the warp's register file) only the lanes are kept that hold such a value. As long as
//! there is none, which is nearly always, nothing is looked at.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::table::{Registers, Rule};
use crate::engine::ctx::{Ctx, LANES, lanes_of};
use crate::engine::fault::FaultSpace;
use crate::engine::op::{Op, Slot};

/// Registers of a warp that are remembered; further ones count as written.
const MAX_REGISTERS: usize = 1024;

/// Origins of what the lanes of a register hold that are told apart.
const MAX_ORIGINS: usize = 4;

/// The instruction that such a value comes from.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) pc: u32,
    pub(crate) warp: u32,
    /// By lane that holds it: the one that has got it there. They differ when a shuffle has passed it on.
    pub(crate) by: [u8; LANES],
    pub(crate) from: From,
}

/// See [`Origin`]; by lane that has got it.
#[derive(Debug, Clone)]
pub(crate) enum From {
    Memory {
        space: FaultSpace,
        bytes: u32,
        at: [u64; LANES],
    },
    /// The lane of a shuffle that takes no part, and the member mask.
    Lane {
        lane: [u8; LANES],
        members: [u32; LANES],
    },
}

impl Origin {
    pub(crate) fn new(pc: u32, warp: u32, from: From) -> Self {
        Self { pc, warp, by: std::array::from_fn(|lane| lane as u8), from }
    }
}

/// Something depends on what a lane holds.
pub(crate) struct Used {
    pub(crate) lane: usize,
    pub(crate) origin: Arc<Origin>,
}

/// Lanes of a register, none of them twice, and where they got it from.
#[derive(Debug, Default)]
struct Held(SmallVec<[(u32, Arc<Origin>); 1]>);

impl Held {
    fn lanes(&self) -> u32 {
        self.0.iter().fold(0, |all, (lanes, _)| all | lanes)
    }

    fn clear(&mut self, lanes: u32) {
        self.0.iter_mut().for_each(|(own, _)| *own &= !lanes);
        self.0.retain(|(own, _)| *own != 0);
    }

    fn set(&mut self, lanes: u32, origin: &Arc<Origin>) {
        self.clear(lanes);
        let full = self.0.len() >= MAX_ORIGINS;
        match self.0.iter_mut().find(|(_, own)| full || Arc::ptr_eq(own, origin)) {
            Some((own, _)) => *own |= lanes,
            None => self.0.push((lanes, origin.clone())),
        }
    }
}

/// See the module: those of a warp.
#[derive(Debug, Default)]
pub(crate) struct Undefined {
    /// By place in the register file.
    registers: FxHashMap<u32, Held>,
    /// What lanes of a shuffle show each other: which lanes, and where they got it from.
    shown: Vec<(u32, Arc<Origin>)>,
}

impl Undefined {
    pub(crate) fn clear(&mut self) {
        self.registers.clear();
        self.shown.clear();
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.registers.is_empty()
    }

    /// Nothing that lanes show each other is such a value either.
    pub(crate) fn shows_nothing(&self) -> bool {
        self.registers.is_empty() && self.shown.is_empty()
    }

    /// A new frame begins in this part of the register file.
    pub(crate) fn clear_frame(&mut self, from: u32, to: u32, lanes: u32) {
        self.registers.retain(|&at, held| {
            if (from..to).contains(&at) {
                held.clear(lanes);
            }
            !held.0.is_empty()
        });
    }

    /// These lanes of a register of the frame at `frame` hold what this instruction gave them.
    pub(crate) fn set(&mut self, frame: u32, slot: Slot, lanes: u32, origin: &Arc<Origin>) {
        if lanes == 0 || slot == Slot::NONE {
            return;
        }
        let at = frame + slot.0;
        if self.registers.len() < MAX_REGISTERS || self.registers.contains_key(&at) {
            self.registers.entry(at).or_default().set(lanes, origin);
        }
    }

    /// These lanes of a register hold something else now.
    fn clear_register(&mut self, frame: u32, slot: Slot, lanes: u32) {
        if slot == Slot::NONE {
            return;
        }
        let at = frame + slot.0;
        if let Some(held) = self.registers.get_mut(&at) {
            held.clear(lanes);
            if held.0.is_empty() {
                self.registers.remove(&at);
            }
        }
    }

    /// The lanes of a register that hold such a value, by where they got it from.
    fn origins(&self, frame: u32, slot: Slot) -> &[(u32, Arc<Origin>)] {
        self.get(frame, slot).map_or(&[], |held| &held.0)
    }

    /// These lanes show a register to those that take part in a shuffle with them; the first ones of it say so.
    pub(crate) fn show(&mut self, frame: u32, slot: Slot, lanes: u32, first: bool) {
        if first {
            self.shown.clear();
        }
        let held = self.registers.get(&(frame.wrapping_add(slot.0)));
        let own = held.iter().flat_map(|held| &held.0).map(|(held, from)| (held & lanes, from));
        self.shown
            .extend(own.filter(|(held, _)| *held != 0).map(|(held, from)| (held, from.clone())));
    }

    /// A shuffle writes these lanes of a register, and of a predicate: they get what `sources` have shown, and of those
    /// that take no part what `absent` says.
    pub(crate) fn shuffle(
        &mut self,
        frame: u32,
        (dest, predicate): (Slot, Slot),
        lanes: u32,
        sources: &[u8; LANES],
        absent: Option<(u32, Origin)>,
    ) {
        self.clear_register(frame, dest, lanes);
        self.clear_register(frame, predicate, lanes);
        for (held, origin) in std::mem::take(&mut self.shown) {
            let from = |lane: &usize| held >> (sources[*lane] & 31) & 1 != 0;
            let got = lanes_of(lanes).filter(from).fold(0, |got, lane| got | 1 << lane);
            let by = sources.map(|lane| origin.by[usize::from(lane & 31)]);
            self.set(frame, dest, got, &Arc::new(Origin { by, ..(*origin).clone() }));
            self.shown.push((held, origin));
        }
        if let Some((lanes, origin)) = absent {
            self.set(frame, dest, lanes, &Arc::new(origin));
        }
    }

    /// The lanes of a register that hold such a value.
    pub(crate) fn lanes(&self, frame: u32, slot: Slot) -> u32 {
        self.get(frame, slot).map_or(0, Held::lanes)
    }

    fn get(&self, frame: u32, slot: Slot) -> Option<&Held> {
        match slot {
            Slot::NONE => None,
            slot => self.registers.get(&(frame + slot.0)),
        }
    }

    /// That something depends on these lanes of a register, if they hold such a value.
    pub(crate) fn used(&self, frame: u32, slot: Slot, lanes: u32) -> Option<Used> {
        let of = |(held, origin): &(u32, Arc<Origin>)| {
            let lane = lanes_of(held & lanes).next()?;
            Some(Used { lane, origin: origin.clone() })
        };
        self.origins(frame, slot).iter().filter_map(of).min_by_key(|used| used.lane)
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
        // A shuffle's results come later: see `shuffle`. Which lane is asked depends on the other sources.
        if *rule == Rule::Shuffle {
            return sources.iter().skip(1).find_map(|&(slot, _)| used(slot));
        }
        let lanes = active & self.result(ctx, frame, *rule, sources);
        let origins = sources.iter().flat_map(|&(slot, _)| self.origins(frame, slot));
        let passed: SmallVec<[_; 2]> = match lanes {
            0 => SmallVec::new(),
            _ => origins.map(|(held, origin)| (held & lanes, origin.clone())).collect(),
        };
        for &dest in dests {
            self.clear_register(frame, dest, active);
            passed.iter().for_each(|(lanes, origin)| self.set(frame, dest, *lanes, origin));
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
