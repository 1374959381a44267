//! Memory slots: other memory in the place of an allocation that was recorded.

use std::sync::Arc;

use super::recording::{Recording, State};
use crate::{
    handle::stream::Allocation,
    protocol::{Access, Error, Limit, MemoryConflict, Quantity, Result},
};

/// The use of memory that errors name.
const SLOT: &str = "a slot of a graph";

impl Recording {
    /// Declares that other memory may stand in the place of a recorded allocation in later replays.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the recording does not use the memory, or if it is a variable of a module.
    pub fn declare_slot(&self, recorded: &Arc<Allocation>) -> Result<()> {
        let is_used = self.accesses.binary_search_by_key(&recorded.id(), |used| used.base).is_ok();
        if recorded.is_variable() {
            return Err(Error::memory(SLOT, MemoryConflict::Variable));
        }
        if !is_used {
            return Err(Error::memory(SLOT, MemoryConflict::NotInGraph));
        }
        self.state.lock().bindings.declare(&self.nodes, recorded.id());
        Ok(())
    }

    /// Puts memory in the place of a recorded allocation, for later replays. It has the same size. `exclusive` says
    /// that the caller owns the memory and shared it with no other handle.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] if the memory is of another device. [`Error::OutOfRange`] if the sizes differ.
    /// [`Error::Misuse`] if the graph uses the memory elsewhere, if it is a variable of a module, or if the graph
    /// writes it and another handle may share it.
    pub fn bind(
        &self,
        recorded: &Arc<Allocation>,
        memory: &Arc<Allocation>,
        exclusive: bool,
    ) -> Result<()> {
        self.device.check_same("a buffer", memory.device())?;
        Limit::Exactly(recorded.bytes()).check(
            "a buffer for a slot of a graph",
            Quantity::Bytes,
            memory.bytes(),
        )?;
        let State { bindings, instances } = &mut *self.state.lock();
        let bound = bindings.bound(recorded.id());
        if bound == memory.id() {
            return Ok(());
        }
        if memory.is_variable() {
            return Err(Error::memory(SLOT, MemoryConflict::Variable));
        }
        if instances.iter().any(|instance| instance.accesses.find(memory.id()).is_some()) {
            return Err(Error::memory(SLOT, MemoryConflict::ElsewhereInGraph));
        }
        let written =
            instances[0].accesses.find(bound).is_some_and(|used| used.0.access == Access::Write);
        if written && !exclusive && !memory.graphs_may_write() {
            return Err(Error::memory(SLOT, MemoryConflict::SharedInGraph));
        }
        if exclusive {
            memory.let_graphs_write();
        }
        memory.take_turns();
        instances.iter_mut().for_each(|instance| instance.accesses.replace(bound, memory.clone()));
        bindings.replace(&self.nodes, recorded.id(), memory.id());
        Ok(())
    }
}
