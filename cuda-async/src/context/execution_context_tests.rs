use cuda_cpu::CpuProvider;

use super::*;

/// A branch comes after its fork, also where the first enqueue on it was refused.
#[test]
fn refused_edge_of_a_branch_is_kept() {
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    let root = ExecutionContext::root(stream.clone(), Run::Async);
    let after = [other.join(&[]).unwrap()].into_iter().collect();
    let cx = root.branch(OnceLock::from(stream), after);
    assert!(cx.enqueue(|_| Err::<(), _>(Error::AlreadyEnded)).is_err());
    assert!(cx.enqueue(|stream| stream.join(&[])).unwrap().number >= 2);
    let Place::Branch(branch) = &cx.0.place else { panic!("it is a branch") };
    assert!(branch.after.lock().is_empty());
}
