//! The allocations of a session, and which of their contents are lost.

use cuda_core::{
    Error,
    order::{Poison, uses_of},
    protocol::{AllocId, ModuleId, Use, Work},
};
use cuda_lease::session::SessionError;
use rustc_hash::{FxHashMap, FxHashSet};

use super::state::violation;
use crate::worker::{graphs::NodeAccess, quota::Charge};

/// The maximum number of allocations, of modules, and of named variables that a session may have.
pub(super) const OBJECT_LIMIT: usize = 1 << 20;

/// Allocations and named variables. Contents of others are not recorded as lost, so a client cannot fill this memory with
/// ids that it makes up.
#[derive(Default)]
pub(super) struct Objects {
    /// The memory of each allocation. `None` before it is made, for one that could not be made, and for a variable.
    charges: FxHashMap<AllocId, Option<Charge>>,
    /// The allocations that were announced and are neither made nor refused.
    pending: FxHashSet<AllocId>,
    variables: FxHashMap<ModuleId, Vec<AllocId>>,
    /// The write sets of submissions that were refused.
    poison: Poison,
}

impl Objects {
    /// Adds an allocation that will be made.
    ///
    /// # Errors
    /// It exists, or there are too many.
    pub(super) fn announce(&mut self, id: AllocId) -> Result<(), SessionError> {
        self.add(id)?;
        self.pending.insert(id);
        Ok(())
    }

    fn add(&mut self, id: AllocId) -> Result<(), SessionError> {
        if self.charges.insert(id, None).is_some() {
            return Err(violation(format!("the id of allocation {} is already in use", id.0)));
        }
        if self.charges.len() > OBJECT_LIMIT {
            return Err(violation(format!("more than {OBJECT_LIMIT} allocations exist")));
        }
        Ok(())
    }

    /// Adds a variable, which exists as long as its module.
    ///
    /// # Errors
    /// As [`announce`](Self::announce).
    pub(super) fn name(&mut self, module: ModuleId, variable: AllocId) -> Result<(), SessionError> {
        self.add(variable)?;
        self.variables.entry(module).or_default().push(variable);
        Ok(())
    }

    /// Records that an allocation was made.
    pub(super) fn made(&mut self, id: AllocId, charge: Charge) {
        self.pending.remove(&id);
        self.charges.insert(id, Some(charge));
    }

    /// Records that an allocation was refused: its contents are lost.
    pub(super) fn refused(&mut self, id: AllocId, error: &Error) {
        self.pending.remove(&id);
        self.spread_over(id, error);
    }

    /// Whether an allocation will be made later.
    pub(super) fn is_pending(&self, id: AllocId) -> bool {
        self.pending.contains(&id)
    }

    /// Removes an allocation. Returns its memory.
    pub(super) fn remove(&mut self, id: AllocId) -> Option<Charge> {
        self.poison.forget(id);
        self.pending.remove(&id);
        self.charges.remove(&id).flatten()
    }

    /// Removes the variables of a module.
    pub(super) fn unload(&mut self, module: ModuleId) {
        let variables = self.variables.remove(&module).unwrap_or_default();
        variables.into_iter().for_each(|variable| _ = self.remove(variable));
    }

    /// Returns the error for work that reads lost contents.
    #[inline]
    pub(super) fn check(&self, work: &Work<'_>) -> Option<Error> {
        if self.poison.is_empty() {
            return None;
        }
        self.poison.check(&uses_of(work), work.overwrites())
    }

    /// Returns the error for a graph with a node that reads lost contents. A node that overwrites them ends the loss
    /// for the nodes behind it.
    pub(super) fn check_nodes(&self, nodes: &[NodeAccess]) -> Option<Error> {
        if self.poison.is_empty() {
            return None;
        }
        nodes.iter().find_map(|node| self.poison.check(&node.uses, node.overwrites))
    }

    /// As [`Poison::spread`].
    pub(super) fn spread(&self, uses: &[Use], error: &Error) {
        for of in uses.iter().filter(|used| self.charges.contains_key(&used.base)) {
            self.poison.spread(std::slice::from_ref(of), error);
        }
    }

    /// As [`Poison::spread_over`].
    pub(super) fn spread_over(&self, id: AllocId, error: &Error) {
        if self.charges.contains_key(&id) {
            self.poison.spread_over(id, error);
        }
    }
}

#[cfg(test)]
mod tests {
    use cuda_core::protocol::{Access, Region};

    use super::*;

    fn whole(id: u64) -> Use {
        Use { base: AllocId(id), range: 0..u64::MAX, access: Access::Write }
    }

    #[test]
    fn contents_are_lost_only_of_allocations_that_exist() {
        let mut objects = Objects::default();
        objects.announce(AllocId(1)).unwrap();
        objects.name(ModuleId(9), AllocId(2)).unwrap();
        let error = Error::OutOfHostMemory { requested: 1 };
        objects.spread(&[whole(1), whole(2), whole(3)], &error);
        objects.spread_over(AllocId(3), &error);
        let copy = |id| {
            let region = |alloc| Region { alloc: AllocId(alloc), offset: 0 };
            Work::Copy { from: region(id), to: region(8), bytes: 4 }
        };
        let is_lost = |objects: &Objects, id| objects.check(&copy(id)).is_some();
        assert!(is_lost(&objects, 1) && is_lost(&objects, 2) && !is_lost(&objects, 3));
        objects.unload(ModuleId(9));
        assert!(objects.remove(AllocId(1)).is_none());
        assert!(!is_lost(&objects, 1) && !is_lost(&objects, 2));
        assert!(objects.announce(AllocId(2)).is_ok());
    }
}
