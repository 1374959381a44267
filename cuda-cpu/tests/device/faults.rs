//! Faults, and the way back.

use super::*;

#[test]
fn a_lost_device_gives_memory_back() {
    let d = Device::new(2);
    d.launch(A, WRONG, 1).unwrap();
    assert!(is_lost_by(&d.synchronize(A).unwrap_err(), FaultKind::Trap));
    assert!(d.fill(A, 1).is_err());
    d.put(A, Command::Record { event: EventId(1) }).unwrap();
    d.put(B, Command::Wait { event: EventId(1) }).unwrap();
    d.put(B, Command::Free { id: FLAG }).unwrap();
    d.put(B, Command::Notify { token: 5 }).unwrap();
    let notice = d.notices.recv().unwrap();
    assert_eq!((notice.stream, notice.token), (B, 5));
    assert!(is_lost_by(&notice.status.unwrap_err(), FaultKind::Trap));
    assert_eq!(d.used(), 0);
    d.request(Request::Reset).unwrap();
    d.put(A, Command::Alloc { id: FLAG, bytes: 4 }).unwrap();
    d.launch(A, SHORT, 3).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn what_was_enqueued_before_a_reset_does_not_run_after_it() {
    let d = Device::new(2);
    let go = d.hold(A);
    d.fill(A, 9).unwrap();
    d.put(A, Command::Notify { token: 1 }).unwrap();
    d.launch(B, WRONG, 1).unwrap();
    d.synchronize(B).unwrap_err();
    d.request(Request::DestroyStream { id: A }).unwrap();
    std::thread::scope(|scope| {
        let backend = &d.backend;
        let reset = scope.spawn(|| backend.request(Request::Reset).unwrap());
        // Long enough for a reset that does not wait for the destroyed stream.
        std::thread::sleep(std::time::Duration::from_millis(50));
        drop(go);
        reset.join().unwrap();
    });
    assert!(d.notices.recv().unwrap().status.is_err());
    assert_eq!(d.flag(), 0);
}

#[test]
fn a_panic_in_work_loses_the_device() {
    let d = Device::new(1);
    // SAFETY: 64 bytes that are zeroed and never freed.
    let block = unsafe { HostBlock::from_raw(leaked(), 64, |_| panic!("cannot be freed")) };
    let go = d.hold(A);
    d.upload(A, block);
    d.put(A, Command::Notify { token: 1 }).unwrap();
    drop(go);
    let error = d.notices.recv().unwrap().status.unwrap_err();
    assert!(is_lost_by(&error, FaultKind::Other));
    assert!(error.to_string().contains("interpreter panicked: cannot be freed"), "{error}");
    d.request(Request::Reset).unwrap();
    d.launch(A, SHORT, 1).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn what_comes_after_a_fault_is_told_how_to_go_on() {
    let d = Device::new(2);
    let go = d.hold(A);
    d.launch(A, WRONG, 1).unwrap();
    d.put(A, Command::Notify { token: 1 }).unwrap();
    drop(go);
    assert!(is_lost_by(&d.notices.recv().unwrap().status.unwrap_err(), FaultKind::Trap));
    for stream in [A, B] {
        let Err(Error::DeviceLost { address, cause }) = d.fill(stream, 1) else { panic!() };
        assert_eq!(address, "cpu");
        assert!(
            cause.contains("in kernel `wrong`") && cause.contains("`Device::reset()`"),
            "{cause}"
        );
    }
    // Whoever asks for what was in flight is told of the fault itself.
    assert!(is_lost_by(&d.synchronize(A).unwrap_err(), FaultKind::Trap));
    d.request(Request::Reset).unwrap();
    d.fill(A, 1).unwrap();
    d.synchronize(A).unwrap();
}
