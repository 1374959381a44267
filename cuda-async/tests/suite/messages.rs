//! The messages of mistakes that a user makes. Each names the object and the limit, and says what to do.

use std::time::Duration;

use cuda_async::{
    Device, Error, Op,
    cuda_core::Feature,
    cuda_cpu::CpuProvider,
    memory::{copy, upload_into},
    ops::Value,
    policy::SingleStream,
    prelude::*,
};
use futures::{FutureExt, executor::block_on};

const BASIC: &str = include_str!("../../../kernels/basic.ptx");

fn device() -> Device {
    Device::open(&CpuProvider::default(), 0).unwrap()
}

/// Runs the operation of a mistake on a device of its own.
#[track_caller]
fn message<O: DeviceOp>(mistake: impl FnOnce(&Device) -> O) -> String {
    let device = device();
    let op = mistake(&device);
    let error = op.map(drop).sync_on(&device.new_stream().unwrap()).unwrap_err();
    error.to_string()
}

fn launched(device: &Device, kernel: &str, config: LaunchConfig) -> impl DeviceOp + use<> {
    let kernel = device.load_ptx_blocking(BASIC).unwrap().function(kernel).unwrap();
    // SAFETY: refused before anything runs.
    unsafe { launch(&kernel, config, ()) }
}

fn scaled<A: cuda_async::kernel::KernelArgs + 'static>(
    device: &Device,
    args: A,
) -> impl DeviceOp + use<A> {
    let kernel = device.load_ptx_blocking(BASIC).unwrap().function("scale").unwrap();
    // SAFETY: refused before anything runs.
    unsafe { launch(&kernel, LaunchConfig::new(1, 32), args) }
}

fn load(ptx: &'static str) -> String {
    message(|device| {
        value(()).try_map({
            let device = device.clone();
            move |()| device.load_ptx_blocking(ptx)
        })
    })
}

#[test]
fn every_mistake_has_a_message_that_says_what_to_do() {
    let one = LaunchConfig::new(1, 32);
    let zeros_of =
        |device: &Device, len| zeros::<f32>(len).sync_on(&device.new_stream().unwrap()).unwrap();
    let mistakes = [
        (
            "an integer for a float",
            message(|device| scaled(device, (zeros_of(device, 4), 2i32, 4u32))),
            "has type f32, the argument is an integer; pass an `f32`: `1.0f32`, or `x as f32`",
        ),
        (
            "too few arguments",
            message(|device| scaled(device, (2.0f32,))),
            "it takes 3 arguments (u64, f32, u32), the launch has 1",
        ),
        (
            "an argument of another size",
            message(|device| scaled(device, (zeros_of(device, 4), 2.0f64, 4u32))),
            "has type f32 (4 bytes), the argument has 8; pass an `f32`: `1.0f32`, or `x as f32`",
        ),
        (
            "a buffer of another device",
            message(|own| scaled(own, (zeros_of(&device(), 4), 2.0f32, 4u32))),
            "use the `Device` that made it",
        ),
        (
            "an unknown kernel",
            message(|device| {
                value(device.load_ptx_blocking(BASIC).unwrap())
                    .try_map(|module| module.function("scael"))
            }),
            "it has",
        ),
        (
            "an empty grid",
            message(|device| launched(device, "empty", LaunchConfig::new(0, 32))),
            "skip the launch",
        ),
        (
            "a block that is too large",
            message(|device| launched(device, "empty", LaunchConfig::new(1, 4096))),
            "the limit is 1024; use a smaller block",
        ),
        (
            "too much shared memory",
            message(|device| launched(device, "empty", one.shared_bytes(1 << 30))),
            "; use less",
        ),
        (
            "a negative size",
            message(|device| launched(device, "empty", LaunchConfig::for_num_elems(-1))),
            "use fewer blocks",
        ),
        ("a path as PTX", load("kernels/basic.ptx"), "pass the text"),
        ("CUDA C as PTX", load("__global__ void k() {}"), "compile it to PTX first"),
        (
            "PTX with a mistake",
            load(".version 8.0\n.target sm_80\n.entry k() { add.s32 %r1; }"),
            "line 3",
        ),
        ("more memory than the device has", message(|_| zeros::<u8>(1 << 50)), "split the work"),
        (
            "an upload of another length",
            message(|device| upload_into(zeros_of(device, 4), vec![1.0f32])),
            "an upload: the number of elements is 1 and must be 4; use the same length on both sides",
        ),
        (
            "a copy of another length",
            message(|device| copy(zeros_of(device, 4), zeros_of(device, 5))),
            "use the same length on both sides",
        ),
        (
            "a slice that is too long",
            message(|device| value(zeros_of(device, 4)).try_map(|x| x.slice(2..9).map(drop))),
            "4",
        ),
        (
            "an Arc with other owners",
            message(|_| {
                let op = value(1).shared();
                let kept = op.clone().sync();
                op.unwrap_arc().map(move |_| drop(kept))
            }),
            "drop the other clones",
        ),
        (
            "a time limit",
            message(|_| h2d(vec![0u8; 1 << 20]).then(to_host).timeout(Duration::ZERO)),
            "allow more time",
        ),
        (
            "nested boxes",
            message(|_| (0..20_000).fold(value(1).boxed(), |op, _| op.map(|x| x).boxed())),
            "use `iterate`",
        ),
        (
            "an unknown device",
            cuda_async::open_blocking("gpu").unwrap_err().to_string(),
            "available: ",
        ),
        (
            "a wait in `async_on`",
            {
                // SAFETY: nothing is submitted.
                let refused =
                    unsafe { h2d([1u8]).then(to_host).async_on(&device().new_stream().unwrap()) };
                refused.unwrap_err().to_string()
            },
            "use `.await`",
        ),
        (
            "a poll after the end",
            {
                let mut future = value(1).schedule(&SingleStream::new(&device()).unwrap());
                assert_eq!(block_on(&mut future), Ok(1));
                future.now_or_never().unwrap().unwrap_err().to_string()
            },
            "build a new one",
        ),
        (
            "an unsupported operation",
            Error::unsupported(Feature::GrowableBuffer, "cuda:0").to_string(),
            "is not supported on `cuda:0`; use another device",
        ),
        (
            "a panic in a shared operation",
            {
                let op = value(1).map(|_| -> u8 { panic!("on purpose") }).shared();
                let run = || op.clone().sync_on(&device().new_stream().unwrap());
                assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
                run().unwrap_err().to_string()
            },
            "fix the cause of the panic",
        ),
        (
            "an error of the program",
            message(|_| value(()).then(|()| Err::<Op<Value<u8>>, _>(Error::other("no weights")))),
            "no weights",
        ),
    ];
    for (mistake, message, _) in &mistakes {
        println!("| {mistake} | {message} |");
    }
    let unclear = mistakes.iter().filter(|(_, message, advice)| !message.contains(advice));
    assert_eq!(unclear.map(|(mistake, ..)| mistake).collect::<Vec<_>>(), <[&&str; 0]>::default());
}
