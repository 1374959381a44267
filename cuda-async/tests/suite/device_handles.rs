//! Handles of devices: equality, hashes, names, and handles that keep no device open.

use std::collections::HashMap;

use cuda_async::{Device, cuda_cpu::CpuProvider, prelude::*};

use crate::on_every_device;

on_every_device! {
    device_is_the_key_of_a_map
    device_is_displayed_with_name_and_address
}

// The hash is that of the handle, which does not change.
#[allow(clippy::mutable_key_type)]
fn device_is_the_key_of_a_map(device: &Device) {
    let other = Device::open(&CpuProvider::default(), 0).unwrap();
    let mut map = HashMap::from([(device.clone(), 1), (other.clone(), 2)]);
    assert_eq!((map.get(&device.clone()), map.get(&other)), (Some(&1), Some(&2)));
    assert_eq!(map.insert(device.clone(), 3), Some(1));
}

fn device_is_displayed_with_name_and_address(device: &Device) {
    let info = device.info();
    assert_eq!(device.to_string(), format!("{} ({})", info.name, info.address));
}

#[test]
fn weak_handle_does_not_keep_a_device_open() {
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    let weak = device.downgrade();
    assert_eq!(weak.upgrade(), Some(device.clone()));
    assert_eq!(format!("{weak:?}"), "WeakDevice(cpu)");
    let buffer = zeros::<u8>(4).sync_on(&device.new_stream().unwrap()).unwrap();
    drop(device);
    assert!(weak.upgrade().is_some(), "a buffer keeps its device open");
    drop(buffer);
    assert_eq!(weak.upgrade(), None);
    assert_eq!(format!("{weak:?}"), "WeakDevice(closed)");
}

/// The node stops while the lease is idle, and another one listens at its address.
#[cfg(feature = "lease")]
#[test]
fn lease_of_a_node_that_stopped_is_opened_again() {
    use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};

    let start = |address| {
        let device = DeviceOptions::in_process(CpuProvider::default());
        let mut options = NodeOptions::loopback(vec![device]);
        options.listen = address;
        Node::start(options)
    };
    // The ports below 32768 are not given to other sockets of the machine, so the port is free for the second node.
    let mut ports = (20_000 + std::process::id() as u16 % 10_000)..32_768;
    let node = ports.find_map(|port| start(([127, 0, 0, 1], port).into()).ok()).unwrap();
    let address = node.address();
    let url = format!("lease://{address}?min_vram=1MiB");
    let first = cuda_async::open_blocking(&url).unwrap();
    assert_eq!(cuda_async::open_blocking(&url).unwrap(), first);
    node.stop();
    let node = start(address).unwrap();
    while first.new_stream().is_ok() {
        std::thread::yield_now();
    }
    let lost = first.new_stream().unwrap_err();
    assert!(lost.to_string().contains("the node stops"), "{lost}");
    let second = cuda_async::open_blocking(&url).unwrap();
    assert!(second != first && second.new_stream().is_ok());
    drop(node);
}

/// Opening a device that does not answer does not delay another one.
#[cfg(feature = "lease")]
#[test]
fn unreachable_lease_delays_no_other_device() {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("lease://{}", silent.local_addr().unwrap());
    let opening = std::thread::spawn(move || cuda_async::open_blocking(&url));
    // The first packet of the attempt has arrived, so it is under way.
    silent.peek(&mut [0; 1]).unwrap();
    cuda_async::open_blocking("cpu").unwrap();
    assert!(!opening.is_finished());
    let error = opening.join().unwrap().unwrap_err();
    assert!(
        matches!(error, cuda_async::Error::Unreachable { .. }) && error.is_retryable(),
        "{error}"
    );
}
