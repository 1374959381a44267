//! Faults, and resets.

use std::time::Duration;

use super::*;

/// Loses the device. Returns the fault.
fn lose(d: &Device) -> Error {
    d.launch(B, TRAP, 1).unwrap();
    let fault = d.synchronize(B).unwrap_err();
    assert!(is_fault(&fault, FaultKind::Trap));
    assert_eq!(d.sink.take_faults(), std::slice::from_ref(&fault));
    fault
}

#[test]
fn lost_device_frees_memory() {
    let d = Device::new(2);
    lose(&d);
    assert!(d.fill(A, 1).is_err());
    assert!(d.client.allocate(A, AllocId(7), 4).is_err());
    d.client.free(B, FLAG, &[d.client.last(A)]).unwrap();
    d.want(B);
    assert_eq!(d.next_report(), d.client.last(B));
    assert_eq!(d.used(), 0);
    d.client.reset();
    d.allocate_flag();
    d.launch(A, SHORT, 3).unwrap();
    d.synchronize(A).unwrap();
}

#[test]
fn submissions_before_a_reset_do_not_run_after_it() {
    let d = Device::new(2);
    let go = d.hold(A);
    let skipped = d.fill(A, 9).unwrap();
    let fault = lose(&d);
    d.client.retire_stream(A);
    let reply = d.client.request(Request::Reset);
    // Long enough for a reset that does not wait for the retired stream to end.
    assert!(reply.recv_timeout(Duration::from_millis(50)).is_err());
    assert_eq!(d.sink.failure(skipped), None);
    drop(go);
    assert_eq!(reply.recv().unwrap(), Ok(Reply::Reset { lost: Some(fault.clone()) }));
    assert_eq!(d.sink.failure(skipped), Some(fault.clone()));
    let lost = Error::ContentsLost { cause: Box::new(fault) };
    assert_eq!(d.read(B, 0, &[]), Err(lost));
    d.fill(B, 4).unwrap();
    assert_eq!(d.flag(), 4);
}

/// The first reset is still waiting when the second begins.
#[test]
fn every_reset_waits_for_retired_streams() {
    let d = Device::new(2);
    let go = d.hold(A);
    lose(&d);
    d.client.retire_stream(A);
    let replies = [(); 2].map(|()| d.client.request(Request::Reset));
    std::thread::sleep(Duration::from_millis(50));
    replies.iter().for_each(|reply| assert!(reply.try_recv().is_err()));
    drop(go);
    replies.iter().for_each(|reply| _ = reply.recv().unwrap().unwrap());
}

#[test]
fn reset_waits_for_running_kernels_and_holds_up_no_submission() {
    let d = Device::new(2);
    d.client.create_stream(StreamId(3));
    let spin = d.launch(A, SPIN, 1).unwrap();
    while d.read(B, 4, &[]) != Ok(1) {}
    let fault = lose(&d);
    let reply = d.client.request(Request::Reset);
    // Behind the request. The kernel on A still runs.
    for stream in [B, StreamId(3)] {
        let ticket = d.launch(stream, SHORT, 2).unwrap();
        assert_eq!(d.outcome(ticket), Ok(()));
    }
    assert!(reply.recv_timeout(Duration::from_millis(30)).is_err());
    let end = d.fill(B, 1).unwrap();
    assert_eq!(d.outcome(end), Ok(()));
    assert_eq!(reply.recv().unwrap(), Ok(Reply::Reset { lost: Some(fault) }));
    assert_eq!(d.sink.failure(spin), None);
}

/// The kernel that keeps the reset waiting needs a launch of that module to end.
#[test]
fn module_loads_while_a_reset_waits() {
    let d = Device::new(2);
    d.launch(A, SPIN, 1).unwrap();
    while d.read(B, 4, &[]) != Ok(1) {}
    lose(&d);
    let reply = d.client.request(Request::Reset);
    let image = cuda_core::protocol::ModuleImage::Ptx(PTX.into());
    d.client.control(Control::LoadModule { id: ModuleId(2), image }).unwrap();
    let loaded = d.client.request(Request::Loaded { module: ModuleId(2) });
    let loaded = loaded.recv_timeout(Duration::from_secs(20));
    d.fill(B, 1).unwrap();
    assert!(loaded.is_ok_and(|reply| reply.is_ok()), "the load waits for the reset");
    reply.recv().unwrap().unwrap();
}

/// The kernel was submitted before the reset and faults after the request.
#[test]
fn reset_covers_faults_of_submissions_in_flight() {
    let d = Device::new(2);
    let go = d.hold(A);
    let trap = d.launch(A, TRAP, 1).unwrap();
    let behind = d.launch(A, SHORT, 1).unwrap();
    let reply = d.client.request(Request::Reset);
    let new = d.launch(B, SHORT, 1).unwrap();
    assert_eq!(d.outcome(new), Ok(()));
    drop(go);
    let Ok(Reply::Reset { lost: Some(fault) }) = reply.recv().unwrap() else { panic!() };
    assert!(is_fault(&fault, FaultKind::Trap));
    assert_eq!(
        [trap, behind].map(|ticket| d.outcome(ticket)),
        [(); 2].map(|()| Err(fault.clone()))
    );
    assert_eq!(d.sink.take_faults(), [], "the device is not lost");
    let new = d.fill(A, 1).unwrap();
    assert_eq!(d.outcome(new), Ok(()));
}

/// Work that was submitted before the reset is skipped, and dropping it panics after the reset.
#[test]
fn late_fault_of_an_old_kernel_does_not_lose_the_device_again() {
    let d = Device::new(2);
    let go = d.hold(A);
    let panics = upload_that_panics(&d, A);
    let first = lose(&d);
    let reply = d.client.request(Request::Reset);
    drop(go);
    reply.recv().unwrap().unwrap();
    // It was skipped, and its block panicked when it was dropped.
    assert!(is_fault(&d.outcome(panics).unwrap_err(), FaultKind::Other));
    assert_eq!(d.sink.take_faults(), []);
    assert_ne!(d.sink.failure(panics), Some(first));
    d.fill(A, 1).unwrap();
    assert_eq!(d.client.reset(), None);
}

#[test]
fn skipped_submissions_keep_the_fault_of_their_own_epoch() {
    let d = Device::new(2);
    let go = d.hold(A);
    let skipped = d.fill(A, 9).unwrap();
    let first = lose(&d);
    let reply = d.client.request(Request::Reset);
    // Another fault, behind the request.
    let hold = d.hold(B);
    let second = upload_that_panics(&d, B);
    drop(hold);
    assert!(is_fault(&d.outcome(second).unwrap_err(), FaultKind::Other));
    drop(go);
    assert_eq!(d.outcome(skipped), Err(first.clone()));
    assert_eq!(reply.recv().unwrap(), Ok(Reply::Reset { lost: Some(first) }));
    assert!(d.client.reset().is_some_and(|lost| is_fault(&lost, FaultKind::Other)));
}

/// The stream is held, so that it drops the block and not the caller.
fn upload_that_panics(d: &Device, stream: StreamId) -> Ticket {
    // SAFETY: 64 bytes that are zeroed and never freed.
    let block = unsafe { HostBlock::from_raw(leaked(), 64, |_| panic!("cannot be freed")) };
    d.upload(stream, block)
}

#[test]
fn panic_in_work_loses_the_device() {
    let d = Device::new(1);
    let go = d.hold(A);
    let panics = upload_that_panics(&d, A);
    d.want(A);
    drop(go);
    assert_eq!(d.next_report(), panics);
    let error = d.sink.failure(panics).unwrap();
    assert!(is_fault(&error, FaultKind::Other));
    assert!(error.to_string().contains("interpreter panicked: cannot be freed"), "{error}");
    assert_eq!(d.sink.take_faults(), std::slice::from_ref(&error));
    assert_eq!(d.client.reset(), Some(error));
    d.fill(A, 1).unwrap();
    d.launch(A, SHORT, 1).unwrap();
    assert_eq!(d.sink.failure(d.client.last(A)), None);
}

#[test]
fn refused_submissions_advise_a_reset() {
    let d = Device::new(2);
    let go = d.hold(A);
    let trap = d.launch(A, TRAP, 1).unwrap();
    let behind = d.launch(A, SHORT, 1).unwrap();
    d.want(A);
    drop(go);
    assert_eq!(d.next_report(), behind);
    for stream in [A, B] {
        let Err(Error::DeviceLost { address, cause }) = d.fill(stream, 1) else { panic!() };
        assert_eq!(address, "cpu");
        assert!(
            cause.contains("in kernel `trap`") && cause.contains("`Device::reset()`"),
            "{cause}"
        );
    }
    // Submissions that were in flight report the fault itself.
    for ticket in [trap, behind] {
        assert!(is_fault(&d.outcome(ticket).unwrap_err(), FaultKind::Trap));
    }
    d.client.reset();
    let ticket = d.fill(A, 1).unwrap();
    assert_eq!(d.outcome(ticket), Ok(()));
}
