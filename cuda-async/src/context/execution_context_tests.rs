use cuda_cpu::CpuProvider;

use super::*;

#[test]
fn what_a_failed_wait_left_is_still_waited_for() {
    let device = || Device::open(&CpuProvider::default(), 0).unwrap();
    let (stream, foreign) = (device().new_stream().unwrap(), device().new_stream().unwrap());
    // A stream refuses to wait for another device.
    let after = (0..2).map(|_| Arc::new(foreign.record().unwrap())).collect();
    let root = ExecutionContext::root(stream.clone(), Run::Async);
    let cx = root.branch(OnceLock::from(stream), after);
    for _ in 0..2 {
        assert!(cx.enqueue(|_| Ok(())).is_err());
    }
    let Place::Branch(branch) = &cx.0.place else { panic!("it is a branch") };
    assert_eq!(branch.after.lock().len(), 2);
}
