//! The contents of recordings: edges, memory, modules, uploads.

use std::{ops::ControlFlow, sync::Arc};

use cuda_async::{
    Device, DeviceBuffer, LaunchConfig,
    graph::record,
    in_order, iterate, join_all, launch,
    memory::{COPY_BYTES, copy, fill, upload_into},
    prelude::*,
    uninitialized,
};
use cuda_core::Access;

use crate::{
    kernels::Kernels,
    modules::load_ptx,
    on_every_device,
    polling::{memory_is_freed, own_devices},
};

on_every_device! {
    nothing_runs_before_a_replay
    replay_works_after_every_handle_was_dropped
    every_replay_uploads_the_same_bytes
    branches_have_no_edges_between_them
    join_orders_branches_before_later_work
    uses_of_one_buffer_are_ordered
    launches_that_share_a_variable_keep_their_order
    shared_operations_run_inside_and_outside
    operands_without_bytes_are_recorded
    loops_are_recorded
}

fn nothing_runs_before_a_replay(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = h2d([1u32, 2, 3]).sync_on(&stream).unwrap();
    let recorded = record(fill(x, 9), device).unwrap();
    assert_eq!(to_host(recorded.output()).sync_on(&stream).unwrap(), [1, 2, 3]);
    recorded.replay(&stream).unwrap();
    assert_eq!(to_host(recorded.output()).sync_on(&stream).unwrap(), [9; 3]);
    let accesses = recorded.recording().accesses();
    assert_eq!((accesses.len(), accesses[0].access), (1, Access::Write));
    assert_eq!(accesses[0].range, 0..12);
}

/// The input, the temporary buffers and the module live in the recording only.
fn replay_works_after_every_handle_was_dropped(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (out, recording) = {
        let kernels = Kernels::load(device);
        let input = h2d(vec![1.5f32; 100]).sync_on(&stream).unwrap();
        let doubled = kernels.add(&input, &input);
        let again = doubled.then(|twice| kernels.add(twice, &input));
        record(again, device).unwrap().into_parts()
    };
    // Retires what was dropped, and allocates in its place.
    device.synchronize().unwrap();
    let others: Vec<_> =
        (0..10).map(|_| h2d(vec![7.0f32; 100]).sync_on(&stream).unwrap()).collect();
    drop(device.new_stream().unwrap());
    for _ in 0..3 {
        recording.replay(&stream).unwrap();
        assert_eq!(to_host(&out).sync_on(&stream).unwrap(), [4.5; 100]);
    }
    for other in others {
        assert_eq!(to_host(other).sync_on(&stream).unwrap(), [7.0; 100]);
    }
}

/// More bytes than an upload has in flight, and one small upload into a slice.
fn every_replay_uploads_the_same_bytes(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut bytes: Vec<u8> = (0..COPY_BYTES + (1 << 20) + 3).map(|i| (i % 251) as u8).collect();
    let (mut x, recording) = record(h2d(bytes.clone()), device).unwrap().into_parts();
    let mut first = x.slice_mut(0..4).unwrap();
    let into = record(upload_into(first.reborrow(), [1u8, 2, 3, 4]), device).unwrap();
    let (_, into) = into.into_parts();
    for round in 0..2 {
        recording.replay(&stream).unwrap();
        assert!(to_host(&x).sync_on(&stream).unwrap() == bytes, "round {round}");
        x = fill(x, 0).sync_on(&stream).unwrap();
    }
    recording.replay(&stream).unwrap();
    into.replay(&device.new_stream().unwrap()).unwrap();
    bytes[..4].copy_from_slice(&[1, 2, 3, 4]);
    assert!(to_host(&x).sync_on(&stream).unwrap() == bytes);
}

fn branches_have_no_edges_between_them(device: &Device) {
    let fills = join_all((0..12u32).map(|v| zeros::<u32>(4).then(move |x| fill(x, v))));
    let (outs, recording) = record(fills, device).unwrap().into_parts();
    // A fill behind a fill in each branch, and the join.
    assert_eq!(recording.len(), 25);
    for branch in 0..12 {
        assert_eq!(recording.after(2 * branch), Some(&[][..]));
        assert_eq!(recording.after(2 * branch + 1), Some(&[2 * branch as u32][..]));
    }
    assert_eq!(recording.after(24).map(<[_]>::len), Some(12));
    let stream = device.new_stream().unwrap();
    recording.replay(&stream).unwrap();
    for (v, out) in outs.iter().enumerate() {
        assert_eq!(to_host(out).sync_on(&stream).unwrap(), [v as u32; 4]);
    }
}

fn join_orders_branches_before_later_work(device: &Device) {
    let forked =
        zip!(zeros::<u32>(4), zeros::<u32>(4)).then(|both| zeros::<u32>(4).map(|c| (both, c)));
    let recorded = record(forked, device).unwrap();
    let after: Vec<_> = (0..4).map(|node| recorded.recording().after(node).unwrap()).collect();
    let expected: [&[u32]; 4] = [&[], &[], &[0, 1], &[2]];
    assert_eq!(after, expected);
}

fn uses_of_one_buffer_are_ordered(device: &Device) {
    let stream = device.new_stream().unwrap();
    let [a, b] = [1u32, 2].map(|v| h2d([v; 4]).sync_on(&stream).unwrap());
    // Write, read, write, read.
    let op = fill(a, 3)
        .then(move |a| copy(a, b))
        .then(|(a, b)| fill(a, 4).map(|a| (a, b)))
        .then(|(a, b)| zeros::<u32>(4).then(move |c| copy(a, c)).map(move |(a, c)| (a, b, c)));
    let ((a, b, c), recording) = record(op, device).unwrap().into_parts();
    let after: Vec<_> = (0..5).map(|node| recording.after(node).unwrap()).collect();
    let expected: [&[u32]; 5] = [&[], &[0], &[1], &[], &[2, 3]];
    assert_eq!(after, expected);
    recording.replay(&stream).unwrap();
    let read = |x: &DeviceBuffer<u32>| to_host(x).sync_on(&stream).unwrap()[0];
    assert_eq!([read(&a), read(&b), read(&c)], [4, 3, 4]);
}

/// No operand names the variable.
fn launches_that_share_a_variable_keep_their_order(device: &Device) {
    let module = load_ptx(device, include_str!("../random_programs/kernels.ptx")).unwrap();
    let [set, get] = ["tape_set", "tape_get"].map(|name| module.function(name).unwrap());
    let config = LaunchConfig::new(1, 32);
    // Places that random programs on this device do not use.
    let slot = 65_000u32;
    // SAFETY: the kernels write x, of 8 elements, and a variable that no other launch uses.
    let op = zeros::<u32>(8)
        .then(|x| unsafe { launch(&set, config, (slot, 40u32)) }.map(|_| x))
        .then(|x| unsafe { launch(&get, config, (x, slot, 8u32)) })
        .then(|x| unsafe { launch(&set, config, (slot, 50u32)) }.map(|_| x));
    let (x, recording) = record(op, device).unwrap().into_parts();
    let after: Vec<_> = (0..4).map(|node| recording.after(node).unwrap()).collect();
    let expected: [&[u32]; 4] = [&[], &[], &[0, 1], &[2]];
    assert_eq!(after, expected);
    let stream = device.new_stream().unwrap();
    recording.replay(&stream).unwrap();
    let first = to_host(&x).sync_on(&stream).unwrap();
    recording.replay(&stream).unwrap();
    assert_eq!(to_host(&x).sync_on(&stream).unwrap(), first);
    assert_eq!(first[0], 40);
}

fn shared_operations_run_inside_and_outside(device: &Device) {
    let stream = device.new_stream().unwrap();
    let kernels = Kernels::load(device);
    let table = h2d(vec![2.0f32; 8]).shared();
    assert_eq!(table.clone().then(to_host).sync_on(&stream).unwrap(), [2.0; 8]);
    // More than one upload in flight, driven by several branches.
    let inner = h2d(vec![1.0f32; COPY_BYTES * 9 / 8 / 4]).map(|_| ()).shared();
    let part = |at: u32| {
        let (table, kernels, inner) = (table.clone(), kernels.clone(), inner.clone());
        zip!(table, inner).then(move |(table, _)| kernels.add(table.clone(), table)).then({
            let kernels = Kernels::load(device);
            move |sum| kernels.add_scalar(sum, at as f32)
        })
    };
    let (sums, recording) = record(join_all((0..3).map(part)), device).unwrap().into_parts();
    for _ in 0..2 {
        recording.replay(&stream).unwrap();
        for (at, sum) in sums.iter().enumerate() {
            assert_eq!(to_host(sum).sync_on(&stream).unwrap(), [4.0 + at as f32; 8]);
        }
    }
}

fn operands_without_bytes_are_recorded(device: &Device) {
    let stream = device.new_stream().unwrap();
    let kernels = Kernels::load(device);
    let (none, recording) = {
        let none = zeros::<f32>(0).then(|none| kernels.scale(none, 2.0));
        record(none, device).unwrap().into_parts()
    };
    assert!(recording.accesses().is_empty());
    recording.replay(&stream).unwrap();
    stream.synchronize().unwrap();
    drop(none);
    recording.replay(&stream).unwrap();
    stream.synchronize().unwrap();
}

fn loops_are_recorded(device: &Device) {
    let stream = device.new_stream().unwrap();
    let kernels = Kernels::load(device);
    let step = |(x, turn): (_, u32)| {
        kernels.add_scalar(x, 1.0).map(move |x| match turn {
            9 => ControlFlow::Break(x),
            turn => ControlFlow::Continue((x, turn + 1)),
        })
    };
    let counted = zeros::<f32>(16).then(|x| iterate((x, 0), step));
    let (x, recording) = record(counted, device).unwrap().into_parts();
    assert_eq!(recording.len(), 11);
    for _ in 0..2 {
        recording.replay(&stream).unwrap();
        assert_eq!(to_host(&x).sync_on(&stream).unwrap(), [10.0; 16]);
    }
    let list = in_order((0..3u32).map(|v| fill(zeros::<u32>(1).sync_on(&stream).unwrap(), v)));
    let (list, recording) = record(list, device).unwrap().into_parts();
    recording.replay(&stream).unwrap();
    for (v, x) in list.into_iter().enumerate() {
        assert_eq!(to_host(x).sync_on(&stream).unwrap(), [v as u32]);
    }
}

/// Memory that a recording allocated, and memory whose handles are gone, is freed with the recording.
#[test]
fn recording_frees_its_memory() {
    for device in own_devices() {
        let stream = device.new_stream().unwrap();
        let before = device.memory().unwrap().used;
        let input = Arc::new(h2d(vec![1u32; 1000]).sync_on(&stream).unwrap());
        let op = uninitialized(1000).then(move |new| copy(input, new)).then(|(_, x)| fill(x, 1));
        let (output, recording) = record(op, &device).unwrap().into_parts();
        recording.replay(&stream).unwrap();
        drop(output);
        assert!(device.memory().unwrap().used >= before + 8000);
        drop(recording);
        memory_is_freed(&device, before);
    }
}
