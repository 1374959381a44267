//! Streams, events, and what is unknown.

use cuda_core::{Command, Error, LaunchConfig, Region, Request, StreamId};

use crate::{
    harness::gpu,
    kernels::{SLOW_STORE, slow_store_params},
};

#[test]
fn an_event_orders_one_stream_behind_another() {
    let Some(gpu) = gpu() else { return };
    let (producer, consumer, event) = (gpu.stream(), gpu.stream(), gpu.event());
    let (from, to) = (gpu.upload(producer, &[1]), gpu.upload(producer, &[2]));
    let store = gpu.kernel(SLOW_STORE);
    for value in 10..20 {
        // Five milliseconds: without the event the copy would be first.
        let params = slow_store_params(value, 5_000_000);
        gpu.launch(producer, store, LaunchConfig::new(1, 1), &params, &[(8, from)]).unwrap();
        gpu.run(producer, Command::Record { event }).unwrap();
        gpu.run(consumer, Command::Wait { event }).unwrap();
        let (from, to) = (Region { alloc: from, offset: 0 }, Region { alloc: to, offset: 0 });
        gpu.run(consumer, Command::Copy { from, to, bytes: 4 }).unwrap();
        assert_eq!(gpu.download(consumer, to.alloc, 1), [value]);
    }
}

#[test]
fn waiting_for_what_was_never_recorded_waits_for_nothing() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    gpu.run(stream, Command::Wait { event: gpu.event() }).unwrap();
    gpu.sync(stream).unwrap();
}

#[test]
fn any_priority_makes_a_stream() {
    let Some(gpu) = gpu() else { return };
    for (id, priority) in [(100, i32::MIN), (101, -1), (102, 0), (103, i32::MAX)] {
        let id = StreamId(id);
        gpu.backend.request(Request::CreateStream { id, priority }).unwrap();
        gpu.sync(id).unwrap();
        let again = gpu.backend.request(Request::CreateStream { id, priority });
        assert!(matches!(again, Err(Error::OutOfRange { .. })), "{again:?}");
        gpu.backend.request(Request::DestroyStream { id }).unwrap();
        let gone = gpu.backend.request(Request::DestroyStream { id });
        assert!(matches!(gone, Err(Error::OutOfRange { .. })), "{gone:?}");
        let gone = gpu.run(id, Command::Notify { token: 1 });
        assert!(matches!(gone, Err(Error::OutOfRange { .. })), "{gone:?}");
    }
}

#[test]
fn a_reset_says_what_to_do_instead() {
    let Some(gpu) = gpu() else { return };
    let said = gpu.backend.request(Request::Reset).unwrap_err().to_string();
    assert!(said.contains("restart the process"), "{said}");
}
