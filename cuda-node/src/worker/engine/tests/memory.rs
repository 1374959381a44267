//! Tests of the memory that the quota counts, with ids and orders that no client of the library uses.

use cuda_core::{
    DeviceInfo,
    protocol::{AllocId, Capabilities, PoolId, PoolSpec, StreamId, Work},
};

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
        self.free_after(stream, id, Vec::new())
    }

    fn free_after(&self, stream: u64, id: u64, after: Vec<Ticket>) -> Result<(), SessionError> {
        self.control(Control::Free { id: AllocId(id), stream: StreamId(stream), after })
    }

    fn name(&self, id: u64) -> Result<(), SessionError> {
        let (id, name) = (AllocId(id), "x".into());
        self.control(Control::NameVariable { id, module: MODULE, name, bytes: 4 })
    }

    fn used(&self) -> u64 {
        self.engine.quota.limit_and_used().1
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
    assert_eq!(test.used(), 0);
}

/// The quota of a test.
const ALL: u64 = 1 << 20;

#[test]
fn allocation_waits_for_a_free_of_another_stream() {
    let mut test = Test::new();
    test.take(2, 1, ALL).unwrap();
    let work = test.submit(1, &[], Work::Join);
    test.submit(2, &[], Work::Join);
    test.free_after(2, 1, vec![work]).unwrap();
    // It fits, but the device has the memory of the first one until all work before its free is complete.
    test.take(2, 2, ALL).unwrap();
    assert_eq!((test.memory(), test.used()), (vec![('a', 1), ('f', 1)], ALL));
    test.complete(2);
    assert_eq!(test.memory(), [('a', 1), ('f', 1)]);
    test.complete(1);
    assert_eq!(test.memory(), [('a', 1), ('f', 1), ('a', 2)]);
    // The order of the commands decides which allocation fits, not the speed of the device.
    test.take(1, 3, 1).unwrap();
    test.free(2, 2).unwrap();
    test.take(1, 4, ALL).unwrap();
    test.free(1, 4).unwrap();
    test.complete(2);
    assert_eq!(test.memory()[3..], [('f', 2), ('a', 4), ('f', 4)]);
    assert_eq!(test.used(), 0);
}

/// An endless loop of allocations and frees goes on without waiting, as without a quota.
#[test]
fn gpu_reuses_memory_in_the_order_of_a_stream() {
    let mut info = DeviceInfo::new("slow", "reuses memory");
    info.driver = Some((13, 0));
    let mut capabilities = Capabilities::local(ALL);
    capabilities.pools = 8;
    let mut test = Test::with(info, capabilities);
    for id in 1..100 {
        test.take(1, id, ALL - id).unwrap();
        test.submit(1, &[], Work::Join);
        test.free(1, id).unwrap();
    }
    assert_eq!(test.memory().len(), 2 * 99);
    // Another stream cannot reuse it, and neither can another pool.
    test.control(Control::CreatePool { id: PoolId(2), spec: PoolSpec::new(0) }).unwrap();
    test.take(2, 100, ALL).unwrap();
    test.free(2, 100).unwrap();
    let at = test.next(1);
    let in_pool = Control::AllocateIn { pool: PoolId(2), id: AllocId(101), bytes: ALL, at };
    test.control(in_pool).unwrap();
    assert_eq!(test.memory().len(), 2 * 99);
    test.complete(1);
    assert_eq!(test.memory().len(), 2 * 99 + 2);
    test.complete(2);
    assert_eq!(test.memory().last(), Some(&('a', 101)));
}

#[test]
fn frees_that_are_not_complete_are_limited() {
    let mut test = Test::new();
    test.submit(1, &[], Work::Join);
    for id in 0..2 * FREE_LIMIT as u64 {
        test.take(2, id, 0).unwrap();
        test.complete(2);
        test.free(1, id).unwrap();
    }
    let frees = |test: &Test| test.memory().iter().filter(|(kind, _)| *kind == 'f').count();
    assert_eq!(frees(&test), FREE_LIMIT);
    test.complete(1);
    assert_eq!(frees(&test), 2 * FREE_LIMIT);
}
