//! What is known of each op beside what its handler does: see [`Effect`].

use rustc_hash::FxHashMap;

use super::effect::Effect;
use crate::engine::op::Slot;

/// No instruction of its own.
const HELPER: u32 = u32::MAX;

/// By op: the instruction it stands for, and its effects.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Indices into `instructions`.
    ops: Vec<u32>,
    instructions: Vec<(u32, Registers)>,
    /// Where the effects of each op begin; they end where the next op's begin.
    starts: Vec<u32>,
    effects: Vec<Effect>,
    names: Vec<String>,
    by_name: FxHashMap<String, u32>,
}

/// The registers of an instruction.
#[derive(Debug, Clone)]
pub(crate) struct Registers {
    pub(crate) rule: Rule,
    /// `Slot::NONE` for results that nobody wants.
    pub(crate) dests: Vec<Slot>,
    /// `Slot::NONE` for constants; and whether a predicate is inverted.
    pub(crate) sources: Vec<(Slot, bool)>,
    pub(crate) addresses: Vec<Slot>,
}

/// When the results of an instruction depend on what its sources hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// Each lane's results on all of the lane's sources.
    Data,
    /// Of predicates: not on the one where the other is false, or true.
    And,
    Or,
    /// A comparison, combined with the last source in such a way.
    CompareAnd,
    CompareOr,
    /// On the last source, and on the one that it selects.
    Select,
    /// On other lanes.
    Shuffle,
    /// On other lanes, each for a bit of its own.
    Ballot,
    /// On the function that is called.
    Call,
    /// From memory, to memory.
    Load,
    Store,
    /// Something happens that depends on all sources.
    Uses {
        /// The first operand is a result.
        results: bool,
    },
}

impl Table {
    /// The next op: a helper, without effects.
    pub(crate) fn push(&mut self) {
        self.ops.push(HELPER);
        self.starts.push(self.effects.len() as u32);
    }

    /// The latest op stands for an instruction of this kind.
    pub(crate) fn is_instruction(&mut self, kind: &str, registers: Registers) {
        let index = match self.by_name.get(kind) {
            Some(&index) => index,
            None => {
                let index = self.names.len() as u32;
                self.names.push(kind.to_owned());
                self.by_name.insert(kind.to_owned(), index);
                index
            }
        };
        if let Some(last) = self.ops.last_mut() {
            *last = self.instructions.len() as u32;
            self.instructions.push((index, registers));
        }
    }

    /// The latest op has this effect too.
    pub(crate) fn has_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The kind of the instruction that the op stands for; none for helpers.
    #[inline]
    pub(crate) fn kind(&self, pc: u32) -> Option<u32> {
        self.instruction(pc).map(|(kind, _)| *kind)
    }

    /// The registers of the instruction that the op stands for; none for helpers.
    #[inline]
    pub(crate) fn registers(&self, pc: u32) -> Option<&Registers> {
        self.instruction(pc).map(|(_, registers)| registers)
    }

    #[inline]
    fn instruction(&self, pc: u32) -> Option<&(u32, Registers)> {
        self.instructions.get(*self.ops.get(pc as usize)? as usize)
    }

    /// What the op does.
    #[inline]
    pub(crate) fn effects(&self, pc: u32) -> &[Effect] {
        let end = |at: usize| self.starts.get(at).map_or(self.effects.len(), |&s| s as usize);
        &self.effects[end(pc as usize)..end(pc as usize + 1)]
    }

    /// Names of the kinds.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nothing() -> Registers {
        let (rule, dests) = (Rule::Data, Vec::new());
        Registers { rule, dests, sources: Vec::new(), addresses: Vec::new() }
    }

    #[test]
    fn each_op_has_its_own_effects() {
        let mut table = Table::default();
        table.push();
        table.push();
        table.is_instruction("membar", nothing());
        table.has_effect(Effect::Fence);
        table.push();
        table.is_instruction("ret", nothing());
        assert_eq!([0, 1, 2].map(|pc| table.effects(pc).len()), [0, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|pc| table.kind(pc)), [None, Some(0), Some(1), None]);
    }
}
