//! Declared kernels: checks of their arguments, lazy arguments, an entry for each type, variables and structs.

use std::sync::Arc;

use cuda_async::{
    Device, DeviceBuffer, Error, LaunchConfig, cuda_launch, cuda_launch_async,
    graph::{DeviceScalar, repeat_while},
    kernel::KernelParam,
    memory::{BufferTarget, ScalarMut, fill, upload_into},
    prelude::*,
};

use crate::{
    modules::{load_ptx, prepared},
    on_every_device,
};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    unsafe struct Vectors; // SAFETY: each kernel stays below n, which is the length of both buffers.

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();

    #[entry(f32 = "saxpy", f64 = "daxpy")]
    #[elements(n)]
    safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len()) where x.len() == y.len();
}

cuda_async::kernels! {
    #[ptx = "../kernels/loops.ptx"]
    unsafe struct Loops; // SAFETY: `count_down` reads and writes the first element of each buffer.

    #[config(grid = 1, block = 1)]
    safe fn count_down(go: &mut [u32], x: &mut [u32]) where go.len() > 0, x.len() > 0;
}

cuda_async::kernels! {
    #[ptx = "../kernels/filter.ptx"]
    unsafe struct Filter; // SAFETY: `filter` reads n + 4 elements of `input` and writes n of `out`.

    static taps: [f32; 5];
    static mut limited: u32;

    #[elements(n)]
    safe fn filter(out: &mut [f32], input: &[f32], n: u32 = out.len()) where input.len() == n + 4;
}

cuda_async::kernels! {
    #[ptx = "tests/kernels_macro/padded.ptx"]
    unsafe struct Padded; // SAFETY: `bytes_of_struct` writes three words.

    #[config(grid = 1, block = 1)]
    safe fn bytes_of_struct(p: Step, out: &mut [u64]) where out.len() >= 3;
}

#[derive(Clone, Copy, KernelParam)]
#[repr(C)]
struct Step {
    axis: u8,
    width: f64,
    count: u16,
}

cuda_async::kernels! {
    #[ptx = "tests/suite/variables.ptx"]
    unsafe struct Adder; // SAFETY: `add` reads and writes the first element of each buffer, and writes the counter.

    static taps: [u32; 3];
    static mut counter: u32;
    static mut hidden: [u32; 2];

    #[config(grid = 1, block = 1)]
    safe fn add(to: &mut [u32], from: &[u32]) where to.len() > 0, from.len() > 0;
}

fn vectors(device: &Device) -> Vectors {
    Vectors::of_module(&load_ptx(device, Vectors::PTX).unwrap()).unwrap()
}

/// An operation of which only the output is known.
fn ones(n: usize) -> impl DeviceOp<Output = DeviceBuffer<f32>> + use<> {
    h2d(vec![1.0f32; n])
}

fn lazy_and_ready_arguments_give_their_forms_back(device: &Device) {
    let (vectors, stream) = (vectors(device), device.new_stream().unwrap());
    let x = Arc::new(ones(300).sync_on(&stream).unwrap());
    let op =
        vectors.saxpy(x.clone(), vectors.saxpy(ones(300), zeros(300), 2.0).map(|(_, y)| y), 3.0);
    let (same, mut y) = op.sync_on(&stream).unwrap();
    assert!(Arc::ptr_eq(&x, &same));
    // Borrowed parts, and an argument that needs host data half way.
    let counted = ones(100).then(to_host).then(|host| ones(host.len()));
    vectors.saxpy(counted, y.slice_mut(200..).unwrap(), 1.0).sync_on(&stream).unwrap();
    let expected = [vec![5.0; 200], vec![6.0; 100]].concat();
    assert_eq!(to_host(y).sync_on(&stream).unwrap(), expected);
}

fn arguments_that_ran_on_other_streams_are_ordered(device: &Device) {
    let vectors = vectors(device);
    let [first, second] = [(); 2].map(|()| device.new_stream().unwrap());
    for round in 0..20 {
        let x = ones(10_000).sync_on(&first).unwrap();
        let y = vectors.saxpy(x, zeros(10_000), 2.0).map(|(_, y)| y);
        // SAFETY: the output is used through the library alone.
        let y = unsafe { y.async_on(&first) }.unwrap();
        let op = vectors.saxpy(ones(10_000), y, round as f32).then(|(_, y)| to_host(y));
        assert_eq!(op.sync_on(&second).unwrap(), vec![2.0 + round as f32; 10_000]);
    }
}

fn conditions_are_checked_when_arguments_are_ready(device: &Device) {
    let (vectors, stream) = (vectors(device), device.new_stream().unwrap());
    for op in [vectors.saxpy(ones(3), zeros(4), 1.0), vectors.saxpy(ones(0), zeros(9), 1.0)] {
        let error = op.sync_on(&stream).unwrap_err();
        assert!(matches!(&error, Error::Arguments { kernel, .. } if kernel == "saxpy"), "{error}");
    }
    // The stream is as usable as before.
    let (_, y) = vectors.saxpy(zeros(0), zeros(0), 1.0).sync_on(&stream).unwrap();
    assert_eq!(y.len(), 0);
    let op = vectors.saxpy(ones(4), zeros(4), 1.0).then(|(_, y)| to_host(y));
    assert_eq!(op.sync_on(&stream).unwrap(), [1.0; 4]);
}

fn each_type_launches_its_entry(device: &Device) {
    let (vectors, stream) = (vectors(device), device.new_stream().unwrap());
    let double = vectors.axpy(h2d(vec![0.1f64; 3]), zeros(3), 1.0).then(|(_, y)| to_host(y));
    assert_eq!(double.sync_on(&stream).unwrap(), [0.1; 3]);
    let single = vectors.axpy(ones(3), zeros(3), 0.1).then(|(_, y)| to_host(y));
    assert_eq!(single.sync_on(&stream).unwrap(), [0.1f32; 3]);
}

fn declared_launches_are_recorded(device: &Device) {
    let (vectors, stream) = (vectors(device), device.new_stream().unwrap());
    let x = Arc::new(ones(100).sync_on(&stream).unwrap());
    let op = vectors.saxpy(x, zeros(100), 2.0).map(|(_, y)| y);
    let op = vectors.saxpy(zeros(100), op, 1.0).map(|(_, y)| y);
    let graph = op.graph_on(&stream).unwrap();
    for _ in 0..2 {
        let y = graph.launch().then(to_host).sync_on(&stream).unwrap();
        assert_eq!(y, [2.0; 100]);
    }
}

fn variables_are_typed_buffers(device: &Device) {
    let filter = Filter::of_module(&load_ptx(device, Filter::PTX).unwrap()).unwrap();
    let stream = device.new_stream().unwrap();
    upload_into(filter.taps().unwrap(), vec![0.25f32; 5]).sync_on(&stream).unwrap();
    let limited = filter.limited().unwrap();
    let op = filter.filter(zeros(3), ones(7)).then(|(out, _)| to_host(out));
    assert_eq!(op.sync_on(&stream).unwrap(), [1.0; 3]);
    assert_eq!(to_host(limited).sync_on(&stream).unwrap(), [3]);
}

fn padding_of_structs_is_zero(device: &Device) {
    let padded = Padded::of_module(&load_ptx(device, Padded::PTX).unwrap()).unwrap();
    let stream = device.new_stream().unwrap();
    let step = Step { axis: 7, width: 0.5, count: 9 };
    let words = padded.bytes_of_struct(step, zeros(3)).then(to_host).sync_on(&stream).unwrap();
    assert_eq!(words, [7, 0.5f64.to_bits(), 9]);
}

fn eager_launches_are_ordered_with_operations(device: &Device) {
    let module = load_ptx(device, Vectors::PTX).unwrap();
    let [first, second] = [(); 2].map(|()| device.new_stream().unwrap());
    let config = LaunchConfig::for_num_elems(10_000);
    let x = ones(10_000).sync_on(&first).unwrap();
    let mut y = zeros::<f32>(10_000).sync_on(&second).unwrap();
    for stream in [&first, &second, &first] {
        // SAFETY: both have 10,000 elements.
        unsafe {
            cuda_launch! {
                kernel: saxpy, stream: stream, module: module, config: config,
                args: [slice(x), slice_mut(y), 1.0f32, 10_000u32]
            }
        }
        .unwrap();
    }
    // SAFETY: both have 10,000 elements.
    let op = unsafe {
        cuda_launch_async! {
            kernel: saxpy, module: module, config: config, args: [slice(&x), slice_mut(y), 1.0f32, 10_000u32]
        }
    };
    let y = op.then(|(_, y)| to_host(y)).sync_on(&second).unwrap();
    assert_eq!(y, vec![4.0; 10_000]);
}

on_every_device! {
    lazy_and_ready_arguments_give_their_forms_back
    arguments_that_ran_on_other_streams_are_ordered
    conditions_are_checked_when_arguments_are_ready
    each_type_launches_its_entry
    declared_launches_are_recorded
    variables_are_typed_buffers
    padding_of_structs_is_zero
    eager_launches_are_ordered_with_operations
    declared_kernel_writes_the_condition_of_a_loop
    scalars_are_outputs_in_every_form
    scalar_is_not_two_arguments
    input_is_no_variable_that_the_kernel_writes
}

fn loops(device: &Device) -> Loops {
    Loops::of_module(&load_ptx(device, Loops::PTX).unwrap()).unwrap()
}

fn declared_kernel_writes_the_condition_of_a_loop(device: &Device) {
    let (loops, stream) = (loops(device), device.new_stream().unwrap());
    let go = DeviceScalar::new(1u32).sync_on(&stream).unwrap();
    let op = || {
        let (loops, again) = (loops.clone(), go.clone());
        let begin = go.set(1);
        let x = begin.then(|()| zeros::<u32>(1)).then(|x| fill(x, 5));
        let pass = move |x| loops.count_down(again.writable(), x).map(|(_, x)| x);
        let condition = go.clone();
        x.then(move |x| repeat_while(&condition, x, pass))
    };
    assert_eq!(op().then(to_host).sync_on(&stream).unwrap(), [0]);
    assert_eq!(go.read().sync_on(&stream).unwrap(), 0);
    let graph = match op().graph_on(&stream) {
        Ok(graph) => prepared(graph),
        Err(error) => return assert!(matches!(error, Error::Unsupported { .. }), "{error}"),
    };
    for _ in 0..2 {
        assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [0]);
    }
}

fn scalars_are_outputs_in_every_form(device: &Device) {
    let (loops, stream) = (loops(device), device.new_stream().unwrap());
    let scalar = |value: u32| DeviceScalar::new(value).sync_on(&stream).unwrap();
    let (go, x) = (scalar(9), scalar(4));
    // The handle itself, and an operation that gives one. Each comes back.
    let lazy = x.set(3).map({
        let x = x.clone();
        move |()| x.writable()
    });
    let (out, left): (ScalarMut<u32>, ScalarMut<u32>) =
        loops.count_down(go.writable(), lazy).sync_on(&stream).unwrap();
    assert_eq!(out.scalar().read().sync_on(&stream).unwrap(), 2);
    assert_eq!(to_host(left).sync_on(&stream).unwrap(), [2]);
    // A slice of it.
    let mut writable = go.writable();
    loops
        .count_down(writable.as_slice_mut(), &mut h2d([8]).sync_on(&stream).unwrap())
        .sync_on(&stream)
        .unwrap();
    assert_eq!(go.read().sync_on(&stream).unwrap(), 7);
    // An input of the same launch is another scalar.
    let (vectors, stream) = (vectors(device), device.new_stream().unwrap());
    let [a, b] = [2.0f32, 10.0].map(|number| DeviceScalar::new(number).sync_on(&stream).unwrap());
    vectors.saxpy(&a, b.writable(), 3.0).sync_on(&stream).unwrap();
    assert_eq!(b.read().sync_on(&stream).unwrap(), 16.0);
}

/// All handles of a scalar are the same memory, so safe code can name it twice.
fn scalar_is_not_two_arguments(device: &Device) {
    let stream = device.new_stream().unwrap();
    let (loops, vectors) = (loops(device), vectors(device));
    let go = DeviceScalar::new(7u32).sync_on(&stream).unwrap();
    let x = DeviceScalar::new(1.0f32).sync_on(&stream).unwrap();
    let [mut one, mut two] = [go.writable(), go.writable()];
    for (refused, expected) in [
        (
            loops.count_down(go.writable(), go.writable()).sync_on(&stream).map(drop),
            "wrong arguments for kernel `count_down`: the kernel writes parameter 0 (`count_down_param_0`), and parameter 1 (`count_down_param_1`) is the same scalar; pass another scalar",
        ),
        (
            loops.count_down(one.as_slice_mut(), two.as_slice_mut()).sync_on(&stream).map(drop),
            "is the same scalar",
        ),
        (
            loops.count_down(one.as_slice_mut(), go.writable()).sync_on(&stream).map(drop),
            "is the same scalar",
        ),
        (
            vectors.saxpy(&x, x.writable(), 1.0).sync_on(&stream).map(drop),
            "wrong arguments for kernel `saxpy`: the kernel writes parameter 1 (`saxpy_param_1`), and parameter 0 (`saxpy_param_0`) is the same scalar; pass another scalar",
        ),
        (
            vectors.saxpy(x.as_slice(), x.writable(), 1.0).sync_on(&stream).map(drop),
            "is the same scalar",
        ),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Arguments { .. }), "{error:?}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    let recorded = vectors.saxpy(&x, x.writable(), 1.0).graph_on(&stream).map(drop);
    assert!(recorded.unwrap_err().to_string().contains("is the same scalar"));
    assert_eq!(go.read().sync_on(&stream).unwrap(), 7);
    assert_eq!(x.read().sync_on(&stream).unwrap(), 1.0);
}

/// Every call of a getter gives another handle of the same memory, so safe code can pass a variable that the kernel
/// writes.
fn input_is_no_variable_that_the_kernel_writes(device: &Device) {
    let adder = || Adder::of_module(&load_ptx(device, Adder::PTX).unwrap()).unwrap();
    let (adder, other, stream) = (adder(), adder(), device.new_stream().unwrap());
    let mut counter = adder.counter().unwrap();
    let shared = Arc::new(adder.counter().unwrap());
    let expected = "wrong arguments for kernel `add`: parameter 1 (`from`) is the variable `counter`, which the kernel may write; copy the variable into a buffer, and pass that";
    for refused in [
        adder.add(zeros(1), &counter).sync_on(&stream).map(drop),
        adder.add(zeros(1), shared.clone()).sync_on(&stream).map(drop),
        adder.add(zeros(1), shared.share(..).unwrap()).sync_on(&stream).map(drop),
        adder.add(zeros(1), counter.as_slice()).sync_on(&stream).map(drop),
        adder.add(zeros(1), counter.as_slice_mut()).sync_on(&stream).map(drop),
        adder.add(zeros(1), value(()).map(|()| shared.clone())).sync_on(&stream).map(drop),
        adder.add(zeros(1), &counter).graph_on(&stream).map(drop),
        adder.add(zeros(1), counter).sync_on(&stream).map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Arguments { .. }), "{error:?}");
        assert_eq!(error.to_string(), expected);
    }
    // A constant, a variable that the kernel does not use, and one of another module are read only.
    upload_into(adder.taps().unwrap(), vec![4u32; 3]).sync_on(&stream).unwrap();
    let add = |from| adder.add(zeros(1), from).then(|(to, _)| to_host(to)).sync_on(&stream);
    assert_eq!(add(adder.taps().unwrap()).unwrap(), [4]);
    assert_eq!(add(adder.hidden().unwrap()).unwrap(), [7]);
    assert_eq!(add(other.counter().unwrap()).unwrap(), [5]);
    assert_eq!(to_host(&*shared).sync_on(&stream).unwrap(), [5]);
}
