//! What is known of each op beside what its handler does: see [`Effect`].

use rustc_hash::FxHashMap;

use super::effect::Effect;

/// No instruction of its own.
const HELPER: u32 = u32::MAX;

/// By op: its kind of instruction, and its effects.
#[derive(Debug, Default)]
pub(crate) struct Table {
    kinds: Vec<u32>,
    /// Where the effects of each op begin; they end where the next op's begin.
    starts: Vec<u32>,
    effects: Vec<Effect>,
    names: Vec<String>,
    by_name: FxHashMap<String, u32>,
}

impl Table {
    /// The next op: a helper, without effects.
    pub(crate) fn push(&mut self) {
        self.kinds.push(HELPER);
        self.starts.push(self.effects.len() as u32);
    }

    /// The latest op is what an instruction of this kind is counted by.
    pub(crate) fn is_instruction(&mut self, kind: &str) {
        let index = match self.by_name.get(kind) {
            Some(&index) => index,
            None => {
                let index = self.names.len() as u32;
                self.names.push(kind.to_owned());
                self.by_name.insert(kind.to_owned(), index);
                index
            }
        };
        if let Some(last) = self.kinds.last_mut() {
            *last = index;
        }
    }

    /// The latest op has this effect too.
    pub(crate) fn has_effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The kind of the instruction that the op stands for; none for helpers.
    #[inline]
    pub(crate) fn kind(&self, pc: u32) -> Option<u32> {
        self.kinds.get(pc as usize).copied().filter(|&kind| kind != HELPER)
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

    #[test]
    fn each_op_has_its_own_effects() {
        let mut table = Table::default();
        table.push();
        table.push();
        table.is_instruction("membar");
        table.has_effect(Effect::Fence);
        table.push();
        table.is_instruction("ret");
        assert_eq!([0, 1, 2].map(|pc| table.effects(pc).len()), [0, 1, 0]);
        assert_eq!([0, 1, 2, 3].map(|pc| table.kind(pc)), [None, Some(0), Some(1), None]);
    }
}
