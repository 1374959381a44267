//! Tests of the memory that the quota counts, with ids and orders that no client of the library uses.

use cuda_core::protocol::{AllocId, StreamId};

use super::{
    super::*,
    graphs::{MODULE, Test, kernel},
};

impl Test {
    fn control(&self, control: Control) -> Result<(), SessionError> {
        self.engine.command(Command::Control(control), 64)
    }

    fn take(&mut self, stream: u64, id: u64, bytes: u64) -> Result<(), SessionError> {
        let at = self.next(stream);
        self.control(Control::Allocate { id: AllocId(id), bytes, at })
    }

    fn free(&self, stream: u64, id: u64) -> Result<(), SessionError> {
        self.control(Control::Free { id: AllocId(id), stream: StreamId(stream), after: Vec::new() })
    }

    fn name(&self, id: u64) -> Result<(), SessionError> {
        let (id, name) = (AllocId(id), "x".into());
        self.control(Control::NameVariable { id, module: MODULE, name, bytes: 4 })
    }

    /// The allocations (`a`) and frees (`f`) that the backend has.
    fn memory(&self) -> Vec<(char, u64)> {
        self.backend.memory.lock().clone()
    }
}

/// Else the end of the module would give back the charge of an allocation that has the id meanwhile.
#[test]
fn variable_is_freed_by_the_end_of_its_module_alone() {
    let mut test = Test::new();
    test.name(1).unwrap();
    let refused = test.free(1, 1).unwrap_err().to_string();
    assert!(refused.contains("unload the module"), "{refused}");
    assert!(test.take(1, 1, 64).is_err());
    // A free that is held may find a variable.
    test.load();
    test.submit(1, &[], kernel());
    test.free(1, 2).unwrap();
    test.name(2).unwrap();
    test.loaded();
    assert_eq!(test.memory(), []);
}

#[test]
fn free_waits_for_its_allocation_on_another_stream() {
    let mut test = Test::new();
    test.load();
    test.submit(2, &[], kernel());
    test.take(2, 1, 64).unwrap();
    test.free(1, 1).unwrap();
    let refused = test.take(1, 1, 64).unwrap_err().to_string();
    assert!(refused.contains("already in use"), "{refused}");
    assert_eq!(test.memory(), []);
    test.loaded();
    assert_eq!(test.memory(), [('a', 1), ('f', 1)]);
    assert_eq!(test.engine.quota.limit_and_used().1, 0);
}
