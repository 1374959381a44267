//! Slots of graphs: buffers and host values that change between launches.

use std::{ops::ControlFlow, sync::Arc};

use cuda_async::{
    Device, Error, Result,
    graph::{CudaGraph, HostSlot, MAX_INSTANCES},
    iterate,
    memory::{copy, fill},
    prelude::*,
};

use crate::{
    kernels::{Floats, Kernels},
    modules::prepared,
    on_every_device,
    polling::{memory_is_freed, own_devices},
};

on_every_device! {
    inputs_and_outputs_are_replaced
    slots_change_unprepared_graphs
    slot_of_a_large_graph_changes_its_users_only
    slots_with_misfits_are_errors
    host_slots_are_uploaded_by_each_launch
    host_slot_of_another_length_is_an_error
    launches_with_different_buffers_are_all_right
}

const LEN: usize = 32;

type Shared = Arc<Floats>;

fn filled(value: f32, device: &Device) -> Shared {
    let stream = device.new_stream().unwrap();
    Arc::new(h2d(vec![value; LEN]).sync_on(&stream).unwrap())
}

/// `t = a + b; y = t + t`, and `a`, `b` and `y`.
fn sums(kernels: &Kernels, device: &Device) -> (CudaGraph<Floats>, Shared, Shared) {
    let [a, b] = [1.0, 2.0].map(|value| filled(value, device));
    let stream = device.new_stream().unwrap();
    let kernels = kernels.clone();
    let sum = kernels.add(a.clone(), b.clone()).then(move |t| {
        let t = Arc::new(t);
        kernels.add(t.clone(), t)
    });
    (sum.graph_on(&stream).unwrap(), a, b)
}

fn inputs_and_outputs_are_replaced(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let (graph, a, b) = sums(&kernels, device);
    replace_inputs_and_outputs(&prepared(graph), &a, &b, device);
    stream.synchronize().unwrap();
}

fn slots_change_unprepared_graphs(device: &Device) {
    let (graph, a, b) = sums(&Kernels::load(device), device);
    let (stream, slot) = (device.new_stream().unwrap(), graph.slot(&a).unwrap());
    for value in [3.0, 5.0] {
        slot.set(&filled(value, device)).unwrap();
        // SAFETY: only the library uses the output.
        let y = unsafe { graph.launch().async_on(&stream) }.unwrap();
        assert_eq!(to_host(y).sync_on(&stream).unwrap(), [2.0 * (value + 2.0); LEN]);
    }
    drop(b);
}

fn replace_inputs_and_outputs(graph: &CudaGraph<Floats>, a: &Shared, b: &Shared, device: &Device) {
    let stream = device.new_stream().unwrap();
    let y = graph.launch().sync_on(&stream).unwrap();
    let slots = [graph.slot(a).unwrap(), graph.slot(b).unwrap()];
    let output = graph.slot(&y).unwrap();
    let other = output.replace(zeros(LEN).sync_on(&stream).unwrap()).unwrap();
    for round in 0..4 {
        let values = [10.0 + round as f32, 20.0 * round as f32];
        for (slot, value) in slots.iter().zip(values) {
            slot.set(&filled(value, device)).unwrap();
        }
        graph.launch().sync_on(&stream).unwrap();
        let expected = 2.0 * (values[0] + values[1]);
        assert_eq!(to_host(&other).sync_on(&stream).unwrap(), [expected; LEN]);
    }
    // The recorded output was written by the first launch only, and can be bound again.
    assert_eq!(to_host(&*y).sync_on(&stream).unwrap(), [6.0; LEN]);
}

fn slot_of_a_large_graph_changes_its_users_only(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let (x, other) = (filled(1.0, device), filled(2.0, device));
    let chain = |y| {
        let (kernels, x) = (kernels.clone(), x.clone());
        iterate((y, 0), move |(y, step)| {
            let next = match step % 100 {
                50 => kernels.add(x.clone(), Arc::new(y)).boxed(),
                _ => kernels.add_scalar(y, 1.0).boxed(),
            };
            next.map(move |y| match step {
                299 => ControlFlow::Break(y),
                _ => ControlFlow::Continue((y, step + 1)),
            })
        })
    };
    let op = zeros::<f32>(LEN).then(chain);
    let graph = prepared(op.graph_on(&stream).unwrap());
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [300.0; LEN]);
    graph.slot(&x).unwrap().set(&other).unwrap();
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [303.0; LEN]);
}

fn slots_with_misfits_are_errors(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let (graph, a, b) = sums(&kernels, device);
    let message = |result: Result<()>| result.unwrap_err().to_string();
    let stranger = filled(0.0, device);
    let unused = graph.slot(&stranger).map(drop);
    assert!(message(unused).contains("is not used by the graph"));
    let slot = graph.slot(&a).unwrap();
    let short = Arc::new(zeros::<f32>(LEN - 1).sync_on(&stream).unwrap());
    assert!(message(slot.set(&short)).contains("use the same length on both sides"));
    assert!(message(slot.set(&b)).contains("is used elsewhere by the graph"));
    let (part, _) = zeros::<f32>(2 * LEN).sync_on(&stream).unwrap().split_at(LEN).unwrap();
    assert!(message(slot.set(&Arc::new(part))).contains("a part of a larger buffer"));
    let y = graph.launch().sync_on(&stream).unwrap();
    let output = graph.slot(&y).unwrap();
    assert!(message(output.set(&stranger)).contains("is written by the graph"));
    let [other, _] = own_devices();
    let foreign = slot.set(&filled(0.0, &other)).unwrap_err();
    assert!(matches!(foreign, Error::WrongDevice { .. }), "{foreign}");
    // None of these errors changed the graph.
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [6.0; LEN]);
}

fn host_slots_are_uploaded_by_each_launch(device: &Device) {
    let (kernels, stream) = (Kernels::load(device), device.new_stream().unwrap());
    let slot = HostSlot::new(device, &[1.0f32; LEN]).unwrap();
    // Outside a graph, an upload copies the values that are set now.
    slot.set(&[2.0; LEN]).unwrap();
    assert_eq!(slot.upload().then(to_host).sync_on(&stream).unwrap(), [2.0; LEN]);
    let op = slot.upload().then(move |x| kernels.add_scalar(x, 1.0));
    let graph = op.graph_on(&stream).unwrap();
    for round in 0..20 {
        if round == 3 {
            graph.upload().unwrap();
        }
        let value = round as f32;
        slot.set(&[value; LEN]).unwrap();
        // SAFETY: only the library uses the output.
        let y = unsafe { graph.launch().async_on(&stream) }.unwrap();
        slot.set(&[-1.0; LEN]).unwrap();
        assert_eq!(to_host(y).sync_on(&stream).unwrap(), [value + 1.0; LEN]);
    }
    prepared(graph);
}

fn host_slot_of_another_length_is_an_error(device: &Device) {
    let stream = device.new_stream().unwrap();
    let slot = HostSlot::new(device, &[1u32, 2]).unwrap();
    let error = slot.set(&[1]).unwrap_err();
    assert!(error.to_string().contains("the number of elements is 1 and must be 2"), "{error}");
    let target = zeros::<u32>(3).sync_on(&stream).unwrap();
    let error = slot.upload_into(target).sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
}

/// Launches on several streams, each with its own input and output, and with temporary buffers in between.
fn launches_with_different_buffers_are_all_right(device: &Device) {
    let kernels = Kernels::load(device);
    let streams: Vec<_> = (0..6).map(|_| device.new_stream().unwrap()).collect();
    let (graph, a, _b) = sums(&kernels, device);
    let graph = prepared(graph);
    let y = graph.launch().sync_on(&streams[0]).unwrap();
    let (input, output) = (graph.slot(&a).unwrap(), graph.slot(&y).unwrap());
    let mut results = Vec::new();
    for round in 0..60 {
        let stream = &streams[round % streams.len()];
        input.set(&filled(round as f32, device)).unwrap();
        let into = zeros::<f32>(LEN).sync_on(stream).unwrap();
        results.push(output.replace(into).unwrap());
        // SAFETY: only the library uses the output.
        drop(unsafe { graph.launch().async_on(stream) }.unwrap());
    }
    for (round, y) in results.iter().enumerate() {
        let expected = 2.0 * (round as f32 + 2.0);
        assert_eq!(to_host(y).sync_on(&streams[3]).unwrap(), [expected; LEN], "launch {round}");
    }
}

/// A slot keeps the buffer of the last launch, and no other. Executables of other streams are bounded.
#[test]
fn memory_of_slots_is_flat() {
    for device in own_devices() {
        let before = device.memory().unwrap().used;
        let kernels = Kernels::load(&device);
        let streams: Vec<_> = (0..8).map(|_| device.new_stream().unwrap()).collect();
        let (graph, a, b) = sums(&kernels, &device);
        graph.upload().unwrap();
        let input = graph.slot(&a).unwrap();
        let host = HostSlot::new(&device, &[0.0f32; LEN]).unwrap();
        let uploads = host.upload().graph_on(&streams[0]).unwrap();
        uploads.upload().unwrap();
        let round = |round: usize| {
            let x = host.upload().sync_on(&streams[1]).unwrap();
            input.set(&Arc::new(x)).unwrap();
            host.set(&[round as f32; LEN]).unwrap();
            // SAFETY: the outputs are dropped.
            unsafe { graph.launch().async_on(&streams[round % 8]) }.map(drop).unwrap();
            uploads.launch().sync_on(&streams[round % 8]).map(drop).unwrap();
        };
        (0..100).for_each(round);
        device.synchronize().unwrap();
        let used = device.memory().unwrap().used;
        (0..1000).for_each(round);
        device.synchronize().unwrap();
        let temporary = (MAX_INSTANCES * LEN * 4) as u64;
        let grown = device.memory().unwrap().used.saturating_sub(used);
        assert!(grown <= temporary, "{grown} bytes");
        drop((graph, uploads, input, a, b));
        memory_is_freed(&device, before);
    }
}

/// Graphs, slots and buffers are dropped in every order while a launch is in flight.
#[test]
fn everything_is_dropped_in_every_order() {
    for device in own_devices() {
        let before = device.memory().unwrap().used;
        let kernels = Kernels::load(&device);
        let stream = device.new_stream().unwrap();
        for order in 0..24 {
            let (graph, a, b) = sums(&kernels, &device);
            let slot = graph.slot(&a).unwrap();
            let x = filled(4.0, &device);
            slot.set(&x).unwrap();
            if order % 2 == 0 {
                graph.upload().unwrap();
            }
            // SAFETY: only the library uses the output.
            let y = unsafe { graph.launch().async_on(&stream) }.unwrap();
            let copied = copy(y.clone(), zeros::<f32>(LEN).sync_on(&stream).unwrap());
            // SAFETY: only the library uses the output.
            let (_, copied) = unsafe { copied.async_on(&stream) }.unwrap();
            let mut parts: Vec<Box<dyn std::any::Any>> =
                vec![Box::new(graph), Box::new(slot), Box::new((a, b, x)), Box::new(y)];
            for (left, digit) in [(4, order / 6), (3, order / 2 % 3), (2, order % 2), (1, 0)] {
                drop(parts.remove(digit % left));
            }
            assert_eq!(to_host(copied).sync_on(&stream).unwrap(), [12.0; LEN]);
        }
        let x = zeros::<f32>(LEN).then(|x| fill(x, 1.0)).sync_on(&stream).unwrap();
        assert_eq!(to_host(x).sync_on(&stream).unwrap(), [1.0; LEN]);
        memory_is_freed(&device, before);
    }
}
