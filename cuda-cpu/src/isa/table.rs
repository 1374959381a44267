//! Metadata of ops for observers. See [`Effect`].

use rustc_hash::FxHashMap;

use super::effect::Effect;
use super::sizes::index;
use super::slot::Slot;

/// An op that stands for no instruction of its own.
const HELPER: u32 = u32::MAX;

/// For each op, its instruction and its effects.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// For each op, an index into `instructions`.
    ops: Vec<u32>,
    instructions: Vec<(u32, Registers)>,
    /// For each op, the index of its first effect. The effects end where those of the next op start.
    starts: Vec<u32>,
    effects: Vec<Effect>,
    names: Vec<String>,
    by_name: FxHashMap<String, u32>,
}

/// The registers of an instruction.
#[derive(Debug, Clone)]
pub(crate) struct Registers {
    pub(crate) rule: Rule,
    /// Destination registers. `Slot::NONE` for discarded results.
    pub(crate) dests: Vec<Slot>,
    /// Source registers, and whether they are negated predicates. `Slot::NONE` for constants.
    pub(crate) sources: Vec<(Slot, bool)>,
    pub(crate) addresses: Vec<Slot>,
}

/// The rule by which the results of an instruction depend on its sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// A lane's results depend on all of the lane's sources.
    Data,
    /// As `Data`, for predicates: if one operand decides the result (false for `and`, true for `or`), the other is
    /// ignored.
    And,
    Or,
    /// A comparison whose result is combined with the last source by `and` or `or`.
    CompareAnd,
    CompareOr,
    /// The result depends on the last source and on the source that it selects.
    Select,
    /// The result depends on other lanes.
    Shuffle,
    /// Each bit of the result depends on another lane.
    Ballot,
    /// The results depend on the called function.
    Call,
    /// A load from memory, or a store to memory.
    Load,
    Store,
    /// An action depends on all sources.
    Uses,
}

impl Table {
    /// Adds an op, as a helper without effects.
    pub(crate) fn push(&mut self) {
        self.ops.push(HELPER);
        self.starts.push(index(self.effects.len()));
    }

    /// Declares that the latest op stands for an instruction of this kind.
    pub(crate) fn is_instruction(&mut self, kind: &str, registers: Registers) {
        let name = match self.by_name.get(kind) {
            Some(&index) => index,
            None => {
                let new = index(self.names.len());
                self.names.push(kind.to_owned());
                self.by_name.insert(kind.to_owned(), new);
                new
            }
        };
        if let Some(last) = self.ops.last_mut() {
            *last = index(self.instructions.len());
            self.instructions.push((name, registers));
        }
    }

    /// Adds an effect to the latest op.
    pub(crate) fn has_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Returns the kind of the op's instruction. `None` for helpers.
    #[inline]
    pub(crate) fn kind(&self, pc: u32) -> Option<u32> {
        self.instruction(pc).map(|(kind, _)| *kind)
    }

    /// Returns the registers of the op's instruction. `None` for helpers.
    #[inline]
    pub(crate) fn registers(&self, pc: u32) -> Option<&Registers> {
        self.instruction(pc).map(|(_, registers)| registers)
    }

    #[inline]
    fn instruction(&self, pc: u32) -> Option<&(u32, Registers)> {
        self.instructions.get(*self.ops.get(pc as usize)? as usize)
    }

    /// Returns the effects of the op.
    #[inline]
    pub(crate) fn effects(&self, pc: u32) -> &[Effect] {
        let end = |at: usize| self.starts.get(at).map_or(self.effects.len(), |&s| s as usize);
        &self.effects[end(pc as usize)..end(pc as usize + 1)]
    }

    /// Returns the names of the kinds.
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
