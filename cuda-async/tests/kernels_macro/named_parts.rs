//! `cuda_launch!` and `cuda_launch_async!`, on the CPU device.

use std::sync::Arc;

use cuda_async::{
    Device, DeviceBuffer, Error, LaunchConfig, Module, Stream, cuda_launch, cuda_launch_async,
    open_blocking, prelude::*,
};

fn loaded() -> Result<(Device, Stream, Module), Error> {
    let device = open_blocking("cpu")?;
    let stream = device.new_stream()?;
    let module = device.load_ptx_blocking(include_str!("../../../kernels/vecadd.ptx"))?;
    Ok((device, stream, module))
}

fn config() -> LaunchConfig {
    LaunchConfig::for_num_elems(4)
}

#[test]
fn eager_launch_borrows_its_buffers() -> Result<(), Error> {
    let (_, stream, module) = loaded()?;
    let a = Arc::new(h2d([1.0f32; 4]).sync_on(&stream)?);
    let b = h2d([2.0f32; 4]).sync_on(&stream)?;
    let mut c = zeros::<f32>(8).sync_on(&stream)?;
    let (stream, module) = (&stream, Arc::new(module));
    let mut half = c.slice_mut(4..)?;
    // SAFETY: each has four elements.
    unsafe {
        cuda_launch! {
            kernel: vecadd, stream: stream, module: module, config: config(),
            args: [slice(a), slice(&b), slice_mut(half), 4u32],
        }
    }?;
    assert_eq!(to_host(c).sync_on(stream)?, [0.0, 0.0, 0.0, 0.0, 3.0, 3.0, 3.0, 3.0]);
    Ok(())
}

#[test]
fn kernel_is_a_path_a_string_or_a_function() -> Result<(), Error> {
    let (_, stream, module) = loaded()?;
    let x = h2d([1.0f32; 4]).sync_on(&stream)?;
    let mut c = zeros::<f32>(4).sync_on(&stream)?;
    let function = module.function("vecadd")?;
    // SAFETY: each has four elements.
    unsafe {
        cuda_launch! { kernel: kernels::vectors::vecadd, stream: stream, module: module, config: config(), args: [slice(x), slice(x), slice_mut(c), 4u32] }?;
        cuda_launch! { kernel: "vecadd", stream: stream, module: &module, config: config(), args: [slice(x), slice(c), slice_mut(zeros::<f32>(4).sync_on(&stream)?), 4u32] }?;
        cuda_launch! { kernel: function, stream: stream, config: config(), args: [&x, slice(x), slice_mut(c), 4u32] }?;
    }
    assert_eq!(to_host(c).sync_on(&stream)?, [2.0; 4]);
    Ok(())
}

#[test]
fn missing_kernel_is_an_error() -> Result<(), Error> {
    let (_, stream, module) = loaded()?;
    // SAFETY: refused before anything runs.
    let eager = unsafe {
        cuda_launch! { kernel: vecsub, stream: stream, module: module, config: config(), args: [] }
    };
    assert!(matches!(eager, Err(Error::NoSuchKernel { .. })), "{eager:?}");
    // SAFETY: refused before anything runs.
    let lazy = unsafe {
        cuda_launch_async! { kernel: vecsub, module: module, config: config(), args: [] }
    };
    assert!(matches!(lazy.sync_on(&stream), Err(Error::NoSuchKernel { .. })));
    Ok(())
}

#[test]
fn lazy_launch_gives_back_the_forms_of_its_buffers() -> Result<(), Error> {
    let (_, stream, module) = loaded()?;
    let a = Arc::new(h2d([1.0f32; 4]).sync_on(&stream)?);
    let mut c = zeros::<f32>(4).sync_on(&stream)?;
    // SAFETY: each has four elements.
    let op = unsafe {
        cuda_launch_async! {
            kernel: vecadd, module: module, config: config(),
            args: [slice(a.clone()), slice(a), slice_mut(&mut c), 4u32]
        }
    };
    let _: (Arc<DeviceBuffer<f32>>, Arc<DeviceBuffer<f32>>, &mut DeviceBuffer<f32>) =
        op.sync_on(&stream)?;
    assert_eq!(to_host(&c).sync_on(&stream)?, [2.0; 4]);
    let function = module.function("vecadd")?;
    // SAFETY: each has four elements.
    let op = unsafe {
        cuda_launch_async! { kernel: function, config: config(), args: [slice(&c), &c, slice_mut(zeros::<f32>(4).sync_on(&stream)?), 4u32] }
    };
    assert_eq!(op.then(|(_, _, c)| to_host(c)).sync_on(&stream)?, [4.0; 4]);
    Ok(())
}

/// More arguments than a tuple has.
#[test]
fn arguments_may_be_many() -> Result<(), Error> {
    let (device, stream, _) = loaded()?;
    let module = device.load_ptx_blocking(include_str!("many.ptx"))?;
    let mut out = zeros::<u32>(18).sync_on(&stream)?;
    // SAFETY: `out` has eighteen elements.
    unsafe {
        cuda_launch! {
            kernel: many, stream: stream, module: module, config: LaunchConfig::new(1, 1),
            args: [slice_mut(out), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17]
        }
    }?;
    assert_eq!(to_host(out).sync_on(&stream)?, (0..18).collect::<Vec<_>>());
    Ok(())
}
