//! Derived values, launch shapes and conditions of declared kernels, on the CPU device.

use cuda_async::{Device, Error, LaunchConfig, Stream, open_blocking, prelude::*};

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    unsafe struct Vectors; // SAFETY: each kernel stays below n, and each buffer has at least n elements.

    /// y = a x + y
    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len())
    where x.len() == y.len();

    #[entry = "saxpy"]
    #[config(grid = (n / 4, 1), block = 4, shared = 4 * (n + 1))]
    safe fn in_blocks(x: &[f32], y: &mut [f32], a: f32, n: u32)
    where n % 4 == 0 && n <= x.len(), n <= y.len();

    #[entry = "saxpy"]
    safe fn shaped_by_caller(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len() - 1)
    where x.len() / n >= 1;

    #[entry = "saxpy"]
    #[elements(x.len() * 1000000000000 * 1000000000000 * 1000000000000 * 1000000000000)]
    safe fn too_many(x: &[f32], y: &mut [f32], a: f32, n: u32) where n <= x.len(), n <= y.len();
}

cuda_async::kernels! {
    #[ptx = "tests/kernels_macro/plane.ptx"]
    // SAFETY: `plane` writes element y * width + x, for x below width and y below height; `mark` writes element 0.
    unsafe struct Planes;

    #[plane(width, height)]
    safe fn plane(out: &mut [u32], width: u32, height: u32 = out.len() / width)
    where out.len() % width == 0;

    #[entry = "plane"]
    #[plane(width, height)]
    safe fn rows_of_four(out: &mut [u32], width: u32 = 4, height: u32 = out.len() / width);

    #[elements(n)]
    safe fn mark(out: &mut [u32], n: u32) where out.len() > 0;

    #[entry = "mark"]
    #[plane(n, 1)]
    safe fn mark_plane(out: &mut [u32], n: u32) where out.len() > 0;

    #[entry = "mark"]
    #[config(grid = (1, n), block = 32)]
    safe fn mark_blocks(out: &mut [u32], n: u32) where out.len() > 0;
}

fn stream() -> Result<(Device, Stream), Error> {
    let device = open_blocking("cpu")?;
    let stream = device.new_stream()?;
    Ok((device, stream))
}

/// The kernel and the message of an error about arguments.
fn arguments<T>(result: Result<T, Error>) -> (String, String) {
    match result.err() {
        Some(Error::Arguments { kernel, detail }) => (kernel, detail),
        other => (String::new(), format!("not an error about arguments: {other:?}")),
    }
}

#[test]
fn length_and_shape_are_derived() -> Result<(), Error> {
    let (device, stream) = stream()?;
    let vectors = Vectors::for_device(&device)?;
    let x = h2d(vec![2.0f32; 1000]).sync_on(&stream)?;
    let y = h2d(vec![1.0f32; 1000]).sync_on(&stream)?;
    let (_x, y) = vectors.saxpy(x, y, 3.0).sync_on(&stream)?;
    assert_eq!(to_host(y).sync_on(&stream)?, [7.0; 1000]);
    Ok(())
}

#[test]
fn violated_condition_launches_nothing_and_names_both_values() -> Result<(), Error> {
    let (device, stream) = stream()?;
    let vectors = Vectors::for_device(&device)?;
    let x = h2d(vec![2.0f32; 3]).sync_on(&stream)?;
    let mut y = h2d(vec![1.0f32; 4]).sync_on(&stream)?;
    let (kernel, detail) = arguments(vectors.saxpy(&x, &mut y, 3.0).sync_on(&stream));
    assert_eq!(kernel, "saxpy");
    assert_eq!(detail, "`x.len() == y.len()` does not hold: `x.len()` is 3, `y.len()` is 4");
    assert_eq!(to_host(&y).sync_on(&stream)?, [1.0; 4]);
    // A slice has its own length.
    vectors.saxpy(&x, y.slice_mut(1..)?, 3.0).sync_on(&stream)?;
    assert_eq!(to_host(y).sync_on(&stream)?, [1.0, 7.0, 7.0, 7.0]);
    Ok(())
}

#[test]
fn no_elements_launch_nothing_and_give_the_buffers_back() -> Result<(), Error> {
    let (device, stream) = stream()?;
    let vectors = Vectors::for_device(&device)?;
    let (x, y) = vectors.saxpy(zeros(0), zeros(0), 1.0).sync_on(&stream)?;
    assert_eq!((x.len(), y.len()), (0, 0));
    let planes = Planes::for_device(&device)?;
    // Each thread of a launch writes the element, so an empty launch shows.
    let marked = |n| {
        zip!(
            planes.mark(zeros(1), n),
            planes.mark_plane(zeros(1), n),
            planes.mark_blocks(zeros(1), n)
        )
        .then(|(a, b, c)| zip!(to_host(a), to_host(b), to_host(c)))
        .map(|(a, b, c)| [a, b, c].concat())
    };
    assert_eq!(marked(0).sync_on(&stream)?, [0, 0, 0]);
    assert_eq!(marked(1).sync_on(&stream)?, [1, 1, 1]);
    // The conditions hold for an empty launch too.
    assert!(matches!(planes.mark(zeros(0), 0).sync_on(&stream), Err(Error::Arguments { .. })));
    Ok(())
}

#[test]
fn config_attribute_gives_grid_block_and_shared_memory() -> Result<(), Error> {
    let (device, stream) = stream()?;
    let vectors = Vectors::for_device(&device)?;
    let run = |n| vectors.in_blocks(h2d([1.0f32; 8]), zeros(8), 2.0, n).then(|(_, y)| to_host(y));
    // Two blocks of four threads: the kernel covers eight elements only with the whole grid.
    assert_eq!(run(8).sync_on(&stream)?, [2.0; 8]);
    let detail = arguments(run(3).sync_on(&stream)).1;
    assert_eq!(detail, "`n % 4 == 0` does not hold: `n % 4` is 3");
    let detail = arguments(run(12).sync_on(&stream)).1;
    assert_eq!(detail, "`n <= x.len()` does not hold: `n` is 12, `x.len()` is 8");
    assert_eq!(run(0).sync_on(&stream)?, [0.0; 8]);
    Ok(())
}

#[test]
fn undefined_arithmetic_is_an_error() -> Result<(), Error> {
    let (device, stream) = stream()?;
    let vectors = Vectors::for_device(&device)?;
    let config = LaunchConfig::new(1, 32);
    let run = |n| vectors.shaped_by_caller(config, zeros(n), zeros(n), 1.0).sync_on(&stream);
    let detail = arguments(run(0)).1;
    assert_eq!(detail, "`n = y.len() - 1` is -1, which does not fit `u32`");
    let detail = arguments(run(1)).1;
    assert_eq!(detail, "`x.len() / n` divides by zero");
    run(2)?;
    let detail = arguments(vectors.too_many(zeros(9), zeros(9), 1.0, 9).sync_on(&stream)).1;
    assert!(detail.ends_with("overflows 128 bits"), "{detail}");
    Ok(())
}

#[test]
fn plane_attribute_gives_a_two_dimensional_shape() -> Result<(), Error> {
    let (device, stream) = stream()?;
    let planes = Planes::for_device(&device)?;
    let out = planes.plane(zeros(20 * 17), 20).then(to_host).sync_on(&stream)?;
    assert_eq!(out, (0..20 * 17).collect::<Vec<u32>>());
    let rows = planes.rows_of_four(zeros(10)).then(to_host).sync_on(&stream)?;
    assert_eq!(rows, [0, 1, 2, 3, 4, 5, 6, 7, 0, 0]);
    let detail = arguments(planes.plane(zeros(7), 0).sync_on(&stream)).1;
    assert_eq!(detail, "`out.len() / width` divides by zero");
    Ok(())
}
