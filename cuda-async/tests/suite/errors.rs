//! Bad input gives an error that says what to do.

use cuda_async::{Device, Error, LaunchConfig, graph::GraphExt, launch, prelude::*};

use crate::{kernels::Kernels, modules::load_ptx, on_every_device};

on_every_device! {
    out_of_memory_error_has_the_sizes
    invalid_ptx_is_an_error
    missing_kernel_error_lists_the_kernels
    arguments_are_checked
    integer_argument_for_a_float_is_an_error
    launch_shapes_are_checked
    buffer_of_another_device_is_an_error
}

const VECADD: &str = include_str!("../../../kernels/vecadd.ptx");

fn out_of_memory_error_has_the_sizes(device: &Device) {
    let stream = device.new_stream().unwrap();
    let bytes = 1usize << 50;
    match zeros::<u8>(bytes).sync_on(&stream) {
        Err(Error::OutOfMemory { requested, total, .. }) => {
            assert_eq!(requested, bytes as u64);
            assert!(total > 0);
        }
        other => panic!("{other:?}"),
    }
    assert!(matches!(zeros::<u64>(usize::MAX).sync_on(&stream), Err(Error::OutOfMemory { .. })));
    assert_eq!(zeros::<u8>(3).then(to_host).sync_on(&stream).unwrap(), [0; 3]);
}

fn invalid_ptx_is_an_error(device: &Device) {
    for text in ["", "int main() {}", ".version 7.0\n.target sm_50\n.entry k() { nonsense.f32 x; }"]
    {
        let error = load_ptx(device, text).unwrap_err();
        assert!(matches!(error, Error::InvalidPtx { .. } | Error::LoadFailed { .. }), "{error:?}");
    }
}

fn missing_kernel_error_lists_the_kernels(device: &Device) {
    let module = load_ptx(device, VECADD).unwrap();
    let error = module.function("vecsub").unwrap_err();
    assert_eq!(error.to_string(), "no kernel `vecsub` in the module; it has `vecadd`");
}

fn arguments_are_checked(device: &Device) {
    let vecadd = load_ptx(device, VECADD).unwrap().function("vecadd").unwrap();
    let stream = device.new_stream().unwrap();
    let config = LaunchConfig::new(1, 32);
    // SAFETY: refused before anything runs.
    let too_few = unsafe { launch(&vecadd, config, (1u64, 2u64)) }.sync_on(&stream);
    // SAFETY: refused before anything runs.
    let too_wide = unsafe { launch(&vecadd, config, (1u64, 2u64, 3u64, 4u64)) }.sync_on(&stream);
    for (refused, why) in [
        (too_few.map(drop), "takes 4 arguments (u64, u64, u64, u32), the launch has 2"),
        (too_wide.map(drop), "4 bytes"),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Arguments { .. }), "{error:?}");
        assert!(error.to_string().contains(why), "{error}");
    }
}

fn integer_argument_for_a_float_is_an_error(device: &Device) {
    let scale = load_ptx(device, include_str!("../../../kernels/basic.ptx")).unwrap();
    let scale = scale.function("scale").unwrap();
    let stream = device.new_stream().unwrap();
    let x = zeros::<f32>(4).sync_on(&stream).unwrap();
    // SAFETY: refused before anything runs.
    let op = unsafe { launch(&scale, LaunchConfig::new(1, 32), (x, 3i32, 4u32)) };
    let error = op.sync_on(&stream).map(drop).unwrap_err();
    let advice = "has type f32, the argument is an integer; pass an `f32`: `1.0f32`, or `x as f32`";
    assert!(error.to_string().contains(advice), "{error}");
}

fn launch_shapes_are_checked(device: &Device) {
    let kernels = load_ptx(device, include_str!("../../../kernels/basic.ptx")).unwrap();
    let empty = kernels.function("empty").unwrap();
    let stream = device.new_stream().unwrap();
    let shapes = [
        LaunchConfig::new(0, 32),
        LaunchConfig::new(1, 0),
        LaunchConfig::new(1, 1025),
        LaunchConfig::new(1, 1).block(1 << 20, 1 << 20, 1 << 20),
        LaunchConfig::new(1, 1).shared_bytes(u32::MAX),
        LaunchConfig::new(1 << 31, 1),
        LaunchConfig::new(1, 1).grid(1, 1 << 16, 1),
        LaunchConfig::new(1, 1).grid(1, 1, 1 << 16),
    ];
    for shape in shapes {
        // SAFETY: the kernel does nothing.
        let op = || unsafe { launch(&empty, shape, ()) };
        for error in
            [op().sync_on(&stream).unwrap_err(), op().graph_on(&stream).map(drop).unwrap_err()]
        {
            assert!(matches!(error, Error::InvalidLaunch { .. }), "{shape:?}: {error:?}");
        }
    }
    // SAFETY: the kernel does nothing.
    unsafe { launch(&empty, LaunchConfig::new(3, 1024), ()) }.sync_on(&stream).unwrap();
}

fn buffer_of_another_device_is_an_error(device: &Device) {
    let other = Device::open(&cuda_cpu::CpuProvider::default(), 0).unwrap();
    let foreign = h2d(vec![1.0f32; 8]).sync_on(&other.new_stream().unwrap()).unwrap();
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let error = kernels.scale(foreign, 2.0).sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error:?}");
}

#[test]
fn unknown_address_error_lists_the_devices() {
    for address in ["tpu", "cpu:7", "cuda:99", "cpu:x", "", ":", "cuda:-1"] {
        let error = cuda_async::open_blocking(address).unwrap_err();
        assert!(
            matches!(error, Error::NoDevice { .. } | Error::NoDriver { .. }),
            "{address}: {error:?}"
        );
    }
    assert!(cuda_async::open_blocking("tpu").unwrap_err().to_string().contains("`cpu`"));
}
