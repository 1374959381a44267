//! Copies to another backend: of the same GPU, and of a second one where there is one.

use cuda_core::protocol::{AllocId, Control, Error, Reply, Request, TransferId, Work};

use crate::harness::{Gpu, device, gpu, start};

/// Transfers are named for the whole process.
fn transfer(id: u64) -> TransferId {
    TransferId(0x7000_0000 + id)
}

fn reaches(gpu: &Gpu, address: &str) -> bool {
    match gpu.request(Request::Reach { address: address.into() }).unwrap() {
        Reply::Reached(reached) => reached,
        other => panic!("{other:?}"),
    }
}

fn send_and_compare(from: &Gpu, to: &Gpu, id: u64) {
    let (source, destination) = (from.stream(), to.stream());
    let words: Vec<u32> = (0..1 << 16).collect();
    let bytes = words.len() as u64 * 4;
    let (a, b) = (from.upload(source, &words), to.upload(destination, &vec![0; words.len()]));
    let transfer = transfer(id);
    to.control(Control::Receive { transfer, to: start(b), bytes }).unwrap();
    from.run(source, Work::Send { from: start(a), transfer, bytes }).unwrap();
    from.sync(source).unwrap();
    assert_eq!(to.download(destination, b, words.len()), words);
    // An announcement is used once.
    let again = from.run(source, Work::Send { from: start(a), transfer, bytes });
    assert!(matches!(again, Err(Error::NoSuchObject { .. })), "{again:?}");
}

#[test]
fn send_reaches_another_backend_of_the_same_gpu() {
    let (Some(from), Some(to)) = (gpu(), gpu()) else { return };
    assert!(reaches(&from, "cuda:0"));
    send_and_compare(&from, &to, 1);
}

#[test]
fn send_reaches_a_second_gpu() {
    let (Some(from), Some(to)) = (gpu(), device(1)) else { return };
    if !reaches(&from, "cuda:1") || !reaches(&to, "cuda:0") {
        println!("the GPUs cannot reach each other: not run here");
        return;
    }
    send_and_compare(&from, &to, 2);
    send_and_compare(&to, &from, 3);
}

#[test]
fn unknown_addresses_are_not_reached() {
    let Some(gpu) = gpu() else { return };
    for address in ["cpu", "cuda:99", "cuda:x", ""] {
        assert!(!reaches(&gpu, address), "{address}");
    }
}

#[test]
fn send_beyond_the_announced_memory_is_an_error() {
    let (Some(from), Some(to)) = (gpu(), gpu()) else { return };
    let (source, destination) = (from.stream(), to.stream());
    let (a, b) = (from.upload(source, &[1, 2]), to.upload(destination, &[0]));
    let receive =
        |alloc, bytes| Control::Receive { transfer: transfer(4), to: start(alloc), bytes };
    for wrong in [receive(b, 5), receive(AllocId(u64::MAX), 4)] {
        let refused = to.control(wrong);
        let is_expected =
            matches!(refused, Err(Error::OutOfRange { .. } | Error::NoSuchObject { .. }));
        assert!(is_expected, "{refused:?}");
    }
    to.control(receive(b, 4)).unwrap();
    let refused = from.run(source, Work::Send { from: start(a), transfer: transfer(4), bytes: 8 });
    assert!(matches!(refused, Err(Error::OutOfRange { .. })), "{refused:?}");
    assert_eq!(to.download(destination, b, 1), [0]);
}

#[test]
fn announcement_of_a_dropped_backend_is_forgotten() {
    let (Some(from), Some(to)) = (gpu(), gpu()) else { return };
    let (source, destination) = (from.stream(), to.stream());
    let (a, b) = (from.upload(source, &[1]), to.upload(destination, &[0]));
    to.control(Control::Receive { transfer: transfer(5), to: start(b), bytes: 4 }).unwrap();
    drop(to);
    let refused = from.run(source, Work::Send { from: start(a), transfer: transfer(5), bytes: 4 });
    assert!(matches!(refused, Err(Error::NoSuchObject { .. })), "{refused:?}");
}
