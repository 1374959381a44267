use std::sync::OnceLock;

use cuda_cpu::CpuProvider;

use super::*;
use crate::context::execution_context::ContextKind;

fn stream() -> Result<Stream> {
    Device::open(&CpuProvider::default(), 0)?.new_stream()
}

/// A branch comes after its fork, also where the first enqueue on it was refused.
#[test]
fn refused_fork_edge_is_added_by_the_next_enqueue() {
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let root = ExecutionContext::root(stream.clone(), RunMode::Async);
    let after = [other.join(&[]).unwrap()].into_iter().collect();
    let cx = root.derive(root.shared().child(OnceLock::from(stream), after, Default::default()));
    assert!(cx.enqueue(|_| Err::<(), _>(Error::AlreadyEnded)).is_err());
    assert!(cx.enqueue(|stream| stream.join(&[])).unwrap().number >= 2);
    let ContextKind::Child(child) = &cx.shared().kind else { panic!("it is a child") };
    assert!(child.after.lock().is_empty());
}

#[test]
fn promoted_root_and_clones_share_their_last_submission() {
    let root = ExecutionContext::root(stream().unwrap(), RunMode::Async);
    root.note(1);
    let clone = root.clone();
    assert_eq!((clone.last(), root == clone), (Some(1), true));
    clone.note(2);
    assert_eq!(root.last(), Some(2));
    root.note(3);
    assert_eq!(clone.last(), Some(3));
}
