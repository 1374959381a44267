//! `DeviceScalar`: a value that is set through shared handles is ordered with every use, on every stream.

use cuda_async::{
    Device, Error, LaunchConfig, launch,
    memory::{DeviceScalar, copy, fill, upload_into},
    prelude::*,
};

use crate::{
    kernels::Kernels,
    modules::{load_ptx, prepared},
    on_every_device,
    polling::own_devices,
};

on_every_device! {
    scalar_is_set_and_read
    scalars_of_eight_bytes_are_uploaded
    kernels_read_and_write_scalars
    scalars_are_targets_of_copies_fills_and_uploads
    sets_on_several_streams_are_ordered
    graph_reads_the_value_that_was_set_last
    value_that_a_graph_sets_is_set_by_each_launch
    scalar_of_another_device_is_an_error
}

fn scalar_is_set_and_read(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = DeviceScalar::new(7u32).sync_on(&stream).unwrap();
    assert_eq!((x.read().sync_on(&stream).unwrap(), x.device()), (7, device));
    x.set(9).sync_on(&stream).unwrap();
    assert_eq!(x.clone().read().sync_on(&stream).unwrap(), 9);
    let half = DeviceScalar::new(half::f16::from_f32(0.5)).sync_on(&stream).unwrap();
    assert_eq!(half.read().sync_on(&stream).unwrap().to_f32(), 0.5);
}

fn scalars_of_eight_bytes_are_uploaded(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = DeviceScalar::new(1.25f64).sync_on(&stream).unwrap();
    for value in [2.5, -1.0, 1e300] {
        x.set(value).sync_on(&stream).unwrap();
        assert_eq!(x.read().sync_on(&stream).unwrap(), value);
    }
}

fn kernels_read_and_write_scalars(device: &Device) {
    let stream = device.new_stream().unwrap();
    let vecadd = load_ptx(device, include_str!("../../../kernels/vecadd.ptx")).unwrap();
    let vecadd = vecadd.function("vecadd").unwrap();
    let [a, b, sum] =
        [1.0f32, 2.0, 0.0].map(|number| DeviceScalar::new(number).sync_on(&stream).unwrap());
    // SAFETY: reads a and b and writes sum, of one element each.
    let op = unsafe { launch(&vecadd, LaunchConfig::new(1, 1), (&a, &b, sum.writable(), 1u32)) };
    op.sync_on(&stream).unwrap();
    assert_eq!(sum.read().sync_on(&stream).unwrap(), 3.0);
}

fn scalars_are_targets_of_copies_fills_and_uploads(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = DeviceScalar::new(1u32).sync_on(&stream).unwrap();
    let value = || x.read().sync_on(&stream).unwrap();
    let same = fill(x.writable(), 2).sync_on(&stream).unwrap();
    assert_eq!((value(), to_host(same).sync_on(&stream).unwrap()), (2, vec![2]));
    let same = upload_into(x.writable(), [3]).sync_on(&stream).unwrap();
    assert_eq!((value(), same.scalar().read().sync_on(&stream).unwrap()), (3, 3));
    copy(h2d([4]).sync_on(&stream).unwrap(), x.writable()).sync_on(&stream).unwrap();
    assert_eq!(value(), 4);
    copy(x.clone(), x.writable()).sync_on(&stream).unwrap();
    assert_eq!(value(), 4);
    let error = upload_into(x.writable(), [3, 4]).sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
}

/// Each copy sees the value that was set before it, although no handle is exclusive.
fn sets_on_several_streams_are_ordered(device: &Device) {
    let streams: Vec<_> = (0..4).map(|_| device.new_stream().unwrap()).collect();
    let x = DeviceScalar::new(0u32).sync_on(&streams[0]).unwrap();
    let mut seen = Vec::new();
    for round in 0..64u32 {
        let [one, other] = [round, round * 7 + 1].map(|index| &streams[index as usize % 4]);
        // SAFETY: only the library uses the outputs.
        unsafe { x.set(round).async_on(one) }.unwrap();
        let copied = zeros::<u32>(1).then(|y| copy(x.clone(), y)).map(|(_, y)| y);
        // SAFETY: only the library uses the outputs.
        seen.push(unsafe { copied.async_on(other) }.unwrap());
    }
    for (round, y) in seen.into_iter().enumerate() {
        assert_eq!(to_host(y).sync_on(&streams[1]).unwrap(), [round as u32]);
    }
}

fn graph_reads_the_value_that_was_set_last(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let other = device.new_stream().unwrap();
    let x = DeviceScalar::new(1.0f32).sync_on(&stream).unwrap();
    let op = zeros::<f32>(1).then(|y| copy(x.clone(), y)).map(|(_, y)| y);
    let graph = prepared(op.then(move |y| kernels.add_scalar(y, 1.0)).graph_on(&stream).unwrap());
    for round in 0..20 {
        graph.update(x.set(round as f32)).unwrap();
        let launched = graph.launch().then(to_host);
        assert_eq!(launched.sync_on(&other).unwrap(), [round as f32 + 1.0]);
    }
}

fn value_that_a_graph_sets_is_set_by_each_launch(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = DeviceScalar::new(1u32).sync_on(&stream).unwrap();
    let graph = prepared(x.set(5).graph_on(&stream).unwrap());
    assert_eq!(x.read().sync_on(&stream).unwrap(), 1);
    for _ in 0..2 {
        graph.launch().sync_on(&stream).unwrap();
        assert_eq!(x.read().sync_on(&stream).unwrap(), 5);
        x.set(6).sync_on(&stream).unwrap();
    }
}

fn scalar_of_another_device_is_an_error(device: &Device) {
    let [other, _] = own_devices();
    let x = DeviceScalar::new(1u32).sync_on(&device.new_stream().unwrap()).unwrap();
    let error = x.set(2).sync_on(&other.new_stream().unwrap()).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
}
