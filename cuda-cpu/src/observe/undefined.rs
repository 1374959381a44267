//! Tracks registers that hold unwritten values, and the origins of such values in shared and local memory.
//!
//! Correct programs load such values: compilers copy structs with the padding between their fields, and algorithms load
//! one element too many and ignore it. So a value from shared or local memory may be copied between registers and to
//! local and shared memory, where it stays unwritten. It is a fault of the load if an address, a branch, a store to
//! global memory or an atomic depends on it. A predicate that does not depend on one of its operands, because the other
//! one decides the result, is not affected by that operand.
//!
//! The same holds for the value that a shuffle takes from an absent lane. Reductions do so in lanes whose results are
//! ignored.
//!
//! For each register, identified by its offset in the warp's register file, the lanes that hold such a value are
//! recorded. Usually there are none, and then the check has no work.

use std::sync::Arc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::fault::FaultSpace;
use crate::isa::effect::{Registers, Rule};
use crate::isa::operand::{Passed, Slot};
use crate::lanes::{LANES, lanes_of};
use crate::machine::code::Op;
use crate::machine::ctx::Ctx;

/// Maximum number of recorded registers of a warp. Further ones count as written.
const MAX_REGISTERS: usize = 1024;

/// Maximum number of different origins of a register's lanes.
const MAX_ORIGINS: usize = 4;

/// The undefined registers of a warp.
#[derive(Debug, Default)]
pub(crate) struct Undefined {
    /// By offset in the register file.
    registers: FxHashMap<u32, Held>,
    /// The unwritten values that lanes contribute to a shuffle: lanes and origins.
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

    /// Returns whether there are no undefined registers and no undefined shuffle values.
    pub(crate) fn shows_nothing(&self) -> bool {
        self.registers.is_empty() && self.shown.is_empty()
    }

    /// Removes the records of these lanes in a new frame's part of the register file.
    pub(crate) fn clear_frame(&mut self, from: u32, to: u32, lanes: u32) {
        self.registers.retain(|&at, held| {
            if (from..to).contains(&at) {
                held.clear(lanes);
            }
            !held.0.is_empty()
        });
    }

    /// Records that these lanes of a register hold an unwritten value of this origin.
    pub(crate) fn set(&mut self, frame: u32, slot: Slot, lanes: u32, origin: &Arc<Origin>) {
        if lanes == 0 || slot == Slot::NONE {
            return;
        }
        let at = frame + slot.0;
        if self.registers.len() < MAX_REGISTERS || self.registers.contains_key(&at) {
            self.registers.entry(at).or_default().set(lanes, origin);
        }
    }

    /// Records that these lanes of a register hold another value now.
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

    /// Returns the lanes of a register that hold unwritten values, by origin.
    fn origins(&self, frame: u32, slot: Slot) -> &[(u32, Arc<Origin>)] {
        self.get(frame, slot).map_or(&[], |held| &held.0)
    }

    /// Records the unwritten values that lanes contribute to a shuffle. `first` is true for its first fragment.
    pub(crate) fn show(&mut self, frame: u32, slot: Slot, lanes: u32, first: bool) {
        if first {
            self.shown.clear();
        }
        let held = self.registers.get(&(frame.wrapping_add(slot.0)));
        let own = held.iter().flat_map(|held| &held.0).map(|(held, from)| (held & lanes, from));
        self.shown
            .extend(own.filter(|(held, _)| *held != 0).map(|(held, from)| (held, from.clone())));
    }

    /// Writes the results of a shuffle to these lanes of a register and a predicate: the values from `sources`, and
    /// `absent` for lanes whose source is absent.
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

    /// Returns the lanes of a register that hold unwritten values.
    pub(crate) fn lanes(&self, frame: u32, slot: Slot) -> u32 {
        self.get(frame, slot).map_or(0, Held::lanes)
    }

    fn get(&self, frame: u32, slot: Slot) -> Option<&Held> {
        match slot {
            Slot::NONE => None,
            slot => self.registers.get(&(frame + slot.0)),
        }
    }

    /// Returns the use of an unwritten value, if these lanes of a register hold one.
    pub(crate) fn used(&self, frame: u32, slot: Slot, lanes: u32) -> Option<Used> {
        let of = |(held, origin): &(u32, Arc<Origin>)| {
            let lane = lanes_of(held & lanes).next()?;
            Some(Used { lane, origin: origin.clone() })
        };
        self.origins(frame, slot).iter().filter_map(of).min_by_key(|used| used.lane)
    }

    /// Tracks an instruction: propagates unwritten values from the sources to the executing lanes' results, by the
    /// rule. Returns the first unwritten value on which an action depends.
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
        if let Rule::Uses = rule
            && let Some(used) = sources.iter().find_map(|&(slot, _)| used(slot))
        {
            return Some(used);
        }
        // The results of a shuffle follow later (see `shuffle`). The source lane depends on the other operands.
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

    /// Returns the lanes whose results are unwritten values.
    fn result(&self, ctx: &Ctx<'_>, frame: u32, rule: Rule, sources: &[(Slot, bool)]) -> u32 {
        let lanes = |&(slot, _): &(Slot, bool)| self.lanes(frame, slot);
        let any = |sources: &[(Slot, bool)]| sources.iter().map(lanes).fold(0, |a, b| a | b);
        // Constants are in registers without a slot here, and are never unwritten. Treating their value as unknown is
        // harmless.
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

/// The instruction from which an unwritten value comes.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    pub(crate) pc: u32,
    pub(crate) warp: u32,
    /// For each lane that holds the value, the lane that loaded it. They differ if a shuffle has passed it on.
    pub(crate) by: [u8; LANES],
    pub(crate) from: From,
}

/// The source of an unwritten value, by the lane that obtained it.
#[derive(Debug, Clone)]
pub(crate) enum From {
    Memory {
        space: FaultSpace,
        bytes: u32,
        at: [u64; LANES],
    },
    /// The absent lane of a shuffle, and the member mask.
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

/// A dependence on an unwritten value in a lane.
pub(crate) struct Used {
    pub(crate) lane: usize,
    pub(crate) origin: Arc<Origin>,
}

/// The lanes of a register that hold unwritten values, each once, with their origins.
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

/// Maximum number of recorded words. Calls and `alloca` visit all of them.
const MAX_WORDS: usize = 1 << 10;

const WORD: u64 = 4;

/// A word of shared memory, or of a lane's local memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    /// The warp and lane of local memory. `None` for shared memory.
    owner: Option<(u32, u8)>,
    word: u64,
}

impl Place {
    fn new((warp, lane): (u32, usize), (space, at): (FaultSpace, u64)) -> Self {
        let owner = (space == FaultSpace::Local).then_some((warp, lane as u8));
        Self { owner, word: at / WORD }
    }
}

/// The recorded origins of unwritten values that the lanes of a block have stored to shared or local memory.
///
/// When such a value is loaded again, a fault reports the first load of it. Origins are recorded by word, and for a
/// limited number of words. For other words, the fault reports the last load.
#[derive(Debug, Default)]
pub(crate) struct Trail(FxHashMap<Place, (Arc<Origin>, u8)>);

impl Trail {
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Records that a lane stores a value of this origin.
    pub(crate) fn leave(
        &mut self,
        (warp, lane): (u32, usize),
        (space, at): (FaultSpace, u64),
        bytes: u64,
        origin: &Arc<Origin>,
    ) {
        let first = Place::new((warp, lane), (space, at));
        for i in 0..bytes.div_ceil(WORD) {
            let place = Place { word: first.word + i, ..first };
            if self.0.len() < MAX_WORDS || self.0.contains_key(&place) {
                self.0.insert(place, (origin.clone(), origin.by[lane]));
            }
        }
    }

    /// Returns the origin of the value at a place, as if every lane held it.
    pub(crate) fn find(&self, owner: (u32, usize), place: (FaultSpace, u64)) -> Option<Origin> {
        if self.0.is_empty() {
            return None;
        }
        let (origin, by) = self.0.get(&Place::new(owner, place))?;
        Some(Origin { by: [*by; LANES], ..(**origin).clone() })
    }

    /// Removes the records of a part of these lanes' local memory.
    pub(crate) fn give(&mut self, warp: u32, lanes: u32, (base, bytes): (u32, u32)) {
        let (from, to) = (u64::from(base) / WORD, u64::from(base + bytes).div_ceil(WORD));
        self.0.retain(|place, _| match place.owner {
            Some((own, lane)) if own == warp && lanes >> lane & 1 != 0 => {
                !(from..to).contains(&place.word)
            }
            _ => true,
        });
    }

    /// Copies the records of arguments or results between frames.
    pub(crate) fn pass(
        &mut self,
        warp: u32,
        lanes: u32,
        from: (u32, &[Passed]),
        to: (u32, &[Passed]),
    ) {
        if self.0.is_empty() {
            return;
        }
        let own = |place: &Place| {
            place.owner.is_some_and(|(own, lane)| own == warp && lanes >> lane & 1 != 0)
        };
        for (source, target) in from.1.iter().zip(to.1) {
            let (&Passed::Local(source, bytes), &Passed::Local(target, _)) = (source, target)
            else {
                continue;
            };
            let first = u64::from(from.0 + source) / WORD;
            let passed = first..first + u64::from(bytes).div_ceil(WORD);
            let target = u64::from(to.0 + target) / WORD;
            let copies: Vec<_> = self
                .0
                .iter()
                .filter(|(place, _)| own(place) && passed.contains(&place.word))
                .map(|(place, held)| {
                    (Place { word: place.word - first + target, ..*place }, held.clone())
                })
                .collect();
            let room = MAX_WORDS - self.0.len().min(MAX_WORDS);
            self.0.extend(copies.into_iter().take(room));
        }
    }
}
