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
