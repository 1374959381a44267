use std::sync::OnceLock;

use cuda_cpu::CpuProvider;

use super::*;
use crate::context::shared::Place;

fn stream() -> Result<Stream> {
    Device::open(&CpuProvider::default(), 0)?.new_stream()
}

#[test]
fn branch_keeps_the_events_that_it_failed_to_wait_for() {
    let (stream, foreign) = (stream().unwrap(), stream().unwrap());
    // A stream refuses to wait for an event of another device.
    let after = (0..2).map(|_| Arc::new(foreign.record().unwrap())).collect();
    let root = ExecutionContext::root(stream.clone(), RunMode::Async);
    let branch = root.shared().branch(OnceLock::from(stream), after, None);
    let cx = ExecutionContext::from_shared(branch);
    for _ in 0..2 {
        assert!(cx.enqueue(|_| Ok(())).is_err());
    }
    let Place::Branch(branch) = &cx.shared().place else { panic!("it is a branch") };
    assert_eq!(branch.after.lock().len(), 2);
}

#[test]
fn promoted_root_and_its_clones_count_each_others_work() {
    let root = ExecutionContext::root(stream().unwrap(), RunMode::Async);
    root.note(1);
    let clone = root.clone();
    assert_eq!((clone.last(), root == clone), (Some(1), true));
    clone.note(2);
    assert_eq!(root.last(), Some(2));
    root.note(3);
    assert_eq!(clone.last(), Some(3));
}
