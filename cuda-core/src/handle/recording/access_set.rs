//! The access set of a replay: the memory that its nodes use.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::{
    handle::stream::{Allocation, Operand},
    protocol::{Access, AllocId, Error, Result, Use},
};

/// The memory that the nodes of a replay use, sorted by allocation. The lists have the same indices.
#[derive(Clone)]
pub(super) struct AccessSet {
    /// One use for each allocation, with its strongest access.
    uses: Vec<Use>,
    memory: Vec<Arc<Allocation>>,
    /// Whether there are bytes in the use that no node uses.
    gaps: Vec<bool>,
    /// The allocations without bytes. They have no use, but are freed after the replay.
    empty: Vec<Arc<Allocation>>,
}

impl AccessSet {
    /// `uses` and `named` are sorted by allocation. Allocations that no use names are left out.
    pub(super) fn new(
        uses: Vec<Use>,
        named: &[Arc<Allocation>],
        with_gaps: &FxHashSet<AllocId>,
    ) -> Result<Self> {
        let find = |used: &Use| {
            let at = named.binary_search_by_key(&used.base, |allocation| allocation.id());
            // The recorder keeps all memory that it records a use of.
            at.map(|at| named[at].clone()).map_err(|_| Error::AlreadyEnded)
        };
        let memory = uses.iter().map(find).collect::<Result<_>>()?;
        let gaps = uses.iter().map(|used| with_gaps.contains(&used.base)).collect();
        let empty = named.iter().filter(|memory| memory.bytes() == 0).cloned().collect();
        Ok(Self { uses, memory, gaps, empty })
    }

    pub(super) fn uses(&self) -> &[Use] {
        &self.uses
    }

    pub(super) fn memory(&self) -> &[Arc<Allocation>] {
        &self.memory
    }

    /// The use of an allocation, and the allocation.
    pub(super) fn find(&self, id: AllocId) -> Option<(&Use, &Arc<Allocation>)> {
        let at = self.uses.binary_search_by_key(&id, |used| used.base).ok()?;
        Some((&self.uses[at], &self.memory[at]))
    }

    /// One operand for each allocation.
    pub(super) fn operands(&self) -> impl Iterator<Item = Operand<'_>> {
        let all = self.uses.iter().zip(&self.memory).zip(&self.gaps);
        let used = all.map(|((used, memory), gaps)| operand(used, memory).with_gaps(*gaps));
        used.chain(self.empty())
    }

    /// One operand for each allocation without bytes.
    pub(super) fn empty(&self) -> impl Iterator<Item = Operand<'_>> {
        self.empty.iter().map(|memory| Operand::new(memory, 0..0, Access::Read))
    }

    /// The operand of a use by one node.
    pub(super) fn operand(&self, used: &Use) -> Result<Operand<'_>> {
        let (_, memory) = self.find(used.base).ok_or(Error::AlreadyEnded)?;
        Ok(operand(used, memory))
    }

    /// The access set with other memory in the place of some allocations.
    pub(super) fn replaced(&self, by: &FxHashMap<AllocId, Arc<Allocation>>) -> Self {
        let all = self.uses.iter().zip(&self.memory).zip(&self.gaps);
        let mut all: Vec<_> = all
            .map(|((used, memory), has_gaps)| {
                let memory = by.get(&used.base).unwrap_or(memory).clone();
                (Use { base: memory.id(), ..used.clone() }, memory, *has_gaps)
            })
            .collect();
        // Sorted once: replacing one after the other would move the lists each time.
        all.sort_unstable_by_key(|(used, ..)| used.base);
        let (uses, memory, gaps) = all.into_iter().collect();
        Self { uses, memory, gaps, empty: self.empty.clone() }
    }

    /// Puts other memory in the place of an allocation.
    pub(super) fn replace(&mut self, from: AllocId, to: Arc<Allocation>) {
        let Ok(at) = self.uses.binary_search_by_key(&from, |used| used.base) else { return };
        self.memory.remove(at);
        let (used, has_gaps) = (self.uses.remove(at), self.gaps.remove(at));
        let used = Use { base: to.id(), ..used };
        let place = self.uses.partition_point(|other| other.base < used.base);
        self.uses.insert(place, used);
        self.memory.insert(place, to);
        self.gaps.insert(place, has_gaps);
    }
}

fn operand<'a>(used: &Use, memory: &'a Allocation) -> Operand<'a> {
    Operand::new(memory, used.range.clone(), used.access)
}
