//! CUDA C in `kernels!`: compiled by NVRTC where it is installed, else the PTX beside the source.

use cuda_async::{open_blocking, prelude::*};

cuda_async::kernels! {
    #[cuda = "tests/kernels_macro/cuda/typed.cu"]
    #[nvrtc("-DSCALE=1.0f", "--fmad=false")]
    unsafe struct Typed; // SAFETY: all accesses are below n, the length of both buffers.

    #[elements(n)]
    safe fn axpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();

    #[entry = "_Z4bitsPKfPjj"]
    #[elements(n)]
    safe fn bits(x: &[f32], out: &mut [u32], n: u32 = out.len()) where x.len() == out.len();

    /// `void *` takes any element.
    #[elements(bytes)]
    safe fn copy_bytes(input: &[f64], out: &mut [u8], bytes: u32 = out.len())
    where input.len() * 8 == out.len();
}

#[test]
fn kernels_of_a_source_run() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let typed = Typed::load(&device).unwrap();
    let (_, y) = typed.axpy(h2d(vec![1.0; 5]), h2d(vec![2.0; 5]), 3.0).sync_on(&stream).unwrap();
    assert_eq!(to_host(y).sync_on(&stream).unwrap(), [5.0; 5]);
    let bits = typed.bits(h2d(vec![1.0]), zeros(1)).then(|(_, out)| to_host(out));
    assert_eq!(bits.sync_on(&stream).unwrap(), [0x3f80_0000]);
    let copied = typed.copy_bytes(h2d(vec![0.5]), zeros(8)).then(|(_, out)| to_host(out));
    assert_eq!(copied.sync_on(&stream).unwrap(), 0.5_f64.to_le_bytes());
}

#[test]
fn loads_of_one_device_share_the_module() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let loaded = Typed::loaded().sync_on(&stream).unwrap();
    let again = Typed::for_device(&device).unwrap();
    let y = loaded.axpy(h2d(vec![1.0]), zeros(1), 2.0).then(|(_, y)| to_host(y));
    assert_eq!(y.sync_on(&stream).unwrap(), [2.0]);
    drop(again);
    assert!(Typed::SOURCE.text().contains("#include \"index.cuh\""));
    assert!(Typed::SOURCE.built_ptx().is_some_and(|ptx| ptx.contains(".entry axpy")));
}
