//! Declared kernels on the CPU device.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};
use cuda_async::{Device, Error, LaunchConfig, Stream, open_blocking, prelude::*};

#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
struct Mixed {
    a: f32,
    b: i32,
    c: f64,
}

cuda_async::kernels! {
    #[ptx = "../kernels/vecadd.ptx"]
    struct Vectors;

    #[entry = "vecadd"]
    unsafe fn add(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
}

cuda_async::kernels! {
    #[ptx = "../kernels/params.ptx"]
    struct Params;

    unsafe fn struct_by_value(p: Mixed, out: &mut [f64], n: u32);
    // Aligned to 8 here and to 16 there.
    unsafe fn double2_by_value(p: [f64; 2], out: &mut [[f64; 2]], n: u32);
    unsafe fn every_scalar(
        i8: i8, u16: u16, u8: u8, i32: i32, flag: bool, i64: i64, f32: f32, f64: f64, out: &mut [f64],
    );
}

cuda_async::kernels! {
    #[ptx = "tests/kernels_macro/many.ptx"]
    struct Many;

    unsafe fn many(
        out: &mut [u32],
        a: u32, b: u32, c: u32, d: u32, e: u32, f: u32, g: u32, h: u32, i: u32,
        j: u32, k: u32, l: u32, m: u32, n: u32, o: u32, p: u32, q: u32, r: u32,
    );
}

fn cpu() -> Result<(Device, Stream), Error> {
    let device = open_blocking("cpu")?;
    let stream = device.new_stream()?;
    Ok((device, stream))
}

#[test]
fn buffers_are_returned_in_the_form_in_which_they_were_given() -> Result<(), Error> {
    let (device, stream) = cpu()?;
    let vectors = Vectors::for_device(&device)?;
    let a = Arc::new(h2d(vec![1.0f32; 300]).sync_on(&stream)?);
    let b = h2d(vec![2.0f32; 300]).sync_on(&stream)?;
    let mut c = zeros::<f32>(300).sync_on(&stream)?;
    let config = LaunchConfig::for_num_elems(300);
    // SAFETY: each has 300 elements.
    let op = unsafe { vectors.add(config, a.clone(), &b, &mut c, 300) };
    let (same_a, same_b, same_c): (
        Arc<DeviceBuffer<f32>>,
        &DeviceBuffer<f32>,
        &mut DeviceBuffer<f32>,
    ) = op.sync_on(&stream)?;
    assert!(Arc::ptr_eq(&a, &same_a));
    assert!(std::ptr::eq(same_b, &b));
    assert_eq!(to_host(&*same_c).sync_on(&stream)?, [3.0; 300]);
    Ok(())
}

#[test]
fn owned_inputs_are_read_and_returned() -> Result<(), Error> {
    let (device, stream) = cpu()?;
    let vectors = Vectors::load(&device)?;
    let op = zip!(h2d([1.0f32, 2.0]), h2d([10.0f32, 20.0]), zeros(2)).then(move |(a, b, c)| {
        // SAFETY: each has two elements.
        unsafe { vectors.add(LaunchConfig::for_num_elems(2), a, b, c, 2) }
    });
    let (a, _, c) = op.sync_on(&stream)?;
    assert_eq!(to_host(a).sync_on(&stream)?, [1.0, 2.0]);
    assert_eq!(to_host(c).sync_on(&stream)?, [11.0, 22.0]);
    Ok(())
}

#[test]
fn values_arrive_unchanged() -> Result<(), Error> {
    let (device, stream) = cpu()?;
    let params = Params::load(&device)?;
    let config = LaunchConfig::for_num_elems(3);
    let mixed = Mixed { a: 2.0, b: 10, c: 0.5 };
    let out = zeros::<f64>(3).sync_on(&stream)?;
    // SAFETY: `out` has three elements.
    let out = unsafe { params.struct_by_value(config, mixed, out, 3) }.sync_on(&stream)?;
    assert_eq!(to_host(out).sync_on(&stream)?, [10.5, 12.5, 14.5]);

    let out = zeros::<[f64; 2]>(2).sync_on(&stream)?;
    // SAFETY: `out` has two elements.
    let out = unsafe { params.double2_by_value(config, [7.0, 9.0], out, 2) }.sync_on(&stream)?;
    assert_eq!(to_host(out).sync_on(&stream)?, [[7.0, 9.0], [8.0, 8.0]]);

    let out = zeros::<f64>(8).sync_on(&stream)?;
    let one = LaunchConfig::new(1, 1);
    // SAFETY: `out` has eight elements.
    let op = unsafe { params.every_scalar(one, -1, 2, 3, -4, true, -5, 0.5, 0.25, out) };
    let out = op.sync_on(&stream)?;
    assert_eq!(to_host(out).sync_on(&stream)?, [-1.0, 2.0, 3.0, -4.0, 1.0, -5.0, 0.5, 0.25]);
    Ok(())
}

#[test]
fn kernels_take_more_arguments_than_a_tuple() -> Result<(), Error> {
    let (device, stream) = cpu()?;
    let (many, one) = (Many::load(&device)?, LaunchConfig::new(1, 1));
    let out = zeros::<u32>(18).sync_on(&stream)?;
    let op =
        // SAFETY: `out` has eighteen elements.
        unsafe { many.many(one, out, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17) };
    let out = op.sync_on(&stream)?;
    assert_eq!(to_host(out).sync_on(&stream)?, (0..18).collect::<Vec<_>>());
    Ok(())
}

cuda_async::kernels! {
    #[ptx = "tests/kernels_macro/buffers.ptx"]
    struct Buffers;

    #[allow(clippy::many_single_char_names)]
    unsafe fn buffers(b0: &mut [u32], b1: &mut [u32], b2: &mut [u32], b3: &mut [u32], b4: &mut [u32], b5: &mut [u32], b6: &mut [u32], b7: &mut [u32], b8: &mut [u32], b9: &mut [u32], b10: &mut [u32], b11: &mut [u32], b12: &mut [u32], b13: &mut [u32], b14: &mut [u32], b15: &mut [u32], b16: &mut [u32], b17: &mut [u32], b18: &mut [u32], b19: &mut [u32], b20: &mut [u32], b21: &mut [u32], b22: &mut [u32], b23: &mut [u32], b24: &mut [u32], b25: &mut [u32], b26: &mut [u32], b27: &mut [u32], b28: &mut [u32], b29: &mut [u32], b30: &mut [u32], b31: &mut [u32], b32: &mut [u32]);
}

/// The first buffer stands beside the tuple of the other 32.
#[test]
fn output_nests_beyond_32_buffers() -> Result<(), Error> {
    let (device, stream) = cpu()?;
    let buffers = Buffers::load(&device)?;
    let b = || zeros::<u32>(1).sync_on(&stream);
    // SAFETY: each has one element.
    let op = unsafe {
        buffers.buffers(
            LaunchConfig::new(1, 1),
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
            b()?,
        )
    };
    let (first, rest) = op.sync_on(&stream)?;
    assert_eq!(to_host(first).sync_on(&stream)?, [0]);
    assert_eq!(to_host(rest.31).sync_on(&stream)?, [7]);
    Ok(())
}

#[test]
fn debug_output_lists_the_kernels() -> Result<(), Error> {
    let (device, _) = cpu()?;
    let vectors = Vectors::load(&device)?;
    assert_eq!(format!("{:?}", vectors.clone()), "Vectors { add: Function(vecadd) }");
    assert!(Vectors::PTX.contains(".entry vecadd"));
    Ok(())
}
