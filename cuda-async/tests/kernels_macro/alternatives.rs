//! Conditions with `||`, launch shapes of partitions, names that are also those of traits, and images, on the CPU
//! device.

use cuda_tensor::{Tensor, TensorOps};

use cuda_async::{Error, open_blocking, prelude::*};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    unsafe struct Either; // SAFETY: both buffers have at least n elements.

    #[entry = "saxpy"]
    #[elements(n)]
    safe fn whole_or_half(x: &[f32], y: &mut [f32], a: f32, n: u32)
    where n <= x.len(), n == 0 || y.len() / n == 1 && y.len() % n == 0 || y.len() / n == 2;

    #[entry = "saxpy"]
    #[tiles(y, 32)]
    safe fn in_tiles(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();

    #[entry = "saxpy"]
    #[tiles(y, (64, x.size(1)), 32 * 2)]
    safe fn in_columns(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.size(0))
    where y.size(1) == 1, x.size(0) == n, x.size(1) == 1;

    /// The type parameter of the buffer has the name of the trait, unless the macro avoids it.
    #[entry(f32 = "saxpy", f64 = "daxpy")]
    #[elements(n)]
    safe fn axpy<T: f32 | f64>(either_axpy: &[T], y: &mut [T], a: T, n: u32 = y.len())
    where either_axpy.len() == y.len();
}

cuda_async::kernels! {
    #[ptx = "../kernels/filter.ptx"]
    #[cubin(sm_90 = "tests/suite/filter_sm_90.cubin")]
    // SAFETY: `filter` reads n + 4 elements and writes n. Both files are `kernels/filter.cu`, compiled by NVRTC.
    unsafe struct Filter;

    static taps: [f32; 5];

    #[elements(n)]
    safe fn filter(out: &mut [f32], input: &[f32], n: u32 = out.len()) where input.len() == n + 4;
}

#[test]
fn one_alternative_has_to_hold() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let either = Either::load(&device).unwrap();
    let run = |n: u32, len: usize| {
        let y = zeros::<f32>(len);
        let op = either.whole_or_half(h2d(vec![1.0f32; 8]), y, 1.0, n);
        op.then(|(_, y)| to_host(y)).sync_on(&stream)
    };
    assert_eq!(run(4, 4).unwrap(), [1.0; 4]);
    assert_eq!(run(2, 4).unwrap(), [1.0, 1.0, 0.0, 0.0]);
    assert_eq!(run(0, 4).unwrap(), [0.0; 4], "the division by zero is not computed");
    let error = run(4, 2).unwrap_err();
    let Error::Arguments { kernel, detail } = &error else { panic!("{error}") };
    assert_eq!(kernel, "whole_or_half");
    let condition = "n == 0 || y.len() / n == 1 && y.len() % n == 0 || y.len() / n == 2";
    let values = "`n` is 4, `y.len() / n` is 0, `y.len() % n` is 2";
    assert_eq!(*detail, format!("`{condition}` does not hold: {values}"));
}

#[test]
fn launch_has_a_block_for_each_tile() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let either = Either::load(&device).unwrap();
    let tensor = |value: f32| Tensor::full(value, 100).sync_on(&stream).unwrap();
    let y = tensor(1.0).partition(32).unwrap();
    let (_, y) = either.in_tiles(tensor(2.0), y, 3.0).sync_on(&stream).unwrap();
    assert_eq!(y.tiles(), [4]);
    assert_eq!(y.unpartition().to_host_vec().sync_on(&stream).unwrap(), [7.0; 100]);
    // Blocks of 32 threads would leave out elements of larger tiles.
    let y = tensor(1.0).partition(40).unwrap();
    let error = either.in_tiles(tensor(2.0), y, 3.0).sync_on(&stream).unwrap_err();
    let why = "`y` is divided into tiles of [40], and the kernel is for tiles of [32]";
    assert!(error.to_string().ends_with(why), "{error}");
    let error = either.in_tiles(tensor(2.0), tensor(1.0), 3.0).sync_on(&stream).unwrap_err();
    let why = "`y` is not divided into tiles, and the launch has a block for each tile; pass `tensor.partition([32])?`";
    assert!(error.to_string().ends_with(why), "{error}");
}

#[test]
fn tiles_have_the_declared_shape() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let either = Either::load(&device).unwrap();
    let run = |shape: [usize; 2], tile: [usize; 2]| {
        let tensor = |value: f32| Tensor::full(value, shape).sync_on(&stream).unwrap();
        let y = tensor(1.0).partition(tile)?;
        let (_, y) = either.in_columns(tensor(2.0), y, 3.0).sync_on(&stream)?;
        y.unpartition().to_host_vec().sync_on(&stream)
    };
    assert_eq!(run([100, 1], [64, 1]).unwrap(), [7.0; 100]);
    // One thread after another would write the same elements: the kernel uses only `x` of the grid.
    let error = run([2, 50], [64, 1]).unwrap_err().to_string();
    assert!(error.contains("`y.size(1) == 1` does not hold: `y.size(1)` is 50"), "{error}");
    let error = run([100, 1], [1, 1]).unwrap_err().to_string();
    assert!(
        error.ends_with("is divided into tiles of [1, 1], and the kernel is for tiles of [64, 1]"),
        "{error}"
    );
    let flat = Tensor::<f32>::ones(100).sync_on(&stream).unwrap();
    let error = either.in_columns(h2d(vec![1.0; 100]), flat.partition(64).unwrap(), 1.0);
    let error = error.sync_on(&stream).unwrap_err().to_string();
    assert!(
        error.contains("`y.size(1)` names a dimension that the buffer does not have"),
        "{error}"
    );
}

#[test]
fn argument_may_have_the_name_of_the_trait() {
    let device = open_blocking("cpu").unwrap();
    let stream = device.new_stream().unwrap();
    let either = Either::load(&device).unwrap();
    let y = either.axpy(h2d(vec![1.0f64; 3]), zeros(3), 2.0).then(|(_, y)| to_host(y));
    assert_eq!(y.sync_on(&stream).unwrap(), [2.0; 3]);
}

#[test]
fn ptx_is_loaded_where_no_image_fits() {
    let devices = [open_blocking("cpu").unwrap()];
    Filter::warm_up(&devices).unwrap();
    let stream = devices[0].new_stream().unwrap();
    for filter in [Filter::load(&devices[0]).unwrap(), Filter::for_device(&devices[0]).unwrap()] {
        assert_eq!(filter.taps().unwrap().len(), 5);
        let out = filter.filter(zeros(3), h2d(vec![1.0; 7])).then(|(out, _)| to_host(out));
        assert_eq!(out.sync_on(&stream).unwrap(), [0.0; 3]);
    }
}
