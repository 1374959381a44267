//! Compares kernels with the same computation in Rust, bit for bit if only IEEE operations are used.

use crate::{
    on_every_device,
    support::{Folder, noise, words},
};

on_every_device! {
    vecadd saxpy daxpy tiled_matmul block_reduction warp_reduction warp_integers histogram softmax stencil
    structs_by_value every_scalar half_precision_passes_through
}

fn vecadd(device: &'static str) {
    let folder = Folder::on(device);
    let (a, b) = (noise(1000, 1), noise(1000, 2));
    folder.save("a.npy", &a);
    folder.save("b.npy", &b);
    let line =
        "K/vecadd.ptx vecadd --grid 4 --block 256 in=@a.npy in=@b.npy out=f32:1000@c.npy u32=1000";
    assert_eq!(folder.run(line).done(), "");
    let sums: Vec<_> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(folder.load::<f32>("c.npy", "(1000,)"), sums);
}

fn saxpy(device: &'static str) {
    let folder = Folder::on(device);
    let (x, y) = (noise(777, 3), noise(777, 4));
    folder.save("x.npy", &x);
    folder.save("y.npy", &y);
    folder
        .run("K/saxpy.ptx saxpy --grid 7 --block 128 in=@x.npy inout=@y.npy@y.npy f32=-2.5 u32=777")
        .done();
    let expected: Vec<_> = x.iter().zip(&y).map(|(x, y)| x.mul_add(-2.5, *y)).collect();
    assert_eq!(folder.load::<f32>("y.npy", "(777,)"), expected);
}

fn daxpy(device: &'static str) {
    let folder = Folder::on(device);
    let wide = |values: Vec<f32>| values.into_iter().map(f64::from).collect::<Vec<_>>();
    let (x, y) = (wide(noise(300, 5)), wide(noise(300, 6)));
    folder.save("x.npy", &x);
    folder.save("y.npy", &y);
    let before = std::fs::read(folder.path("y.npy")).unwrap();
    folder
        .run("K/saxpy.ptx daxpy --grid 3 --block 128 in=@x.npy inout=@y.npy@z.npy f64=1e-3 u32=0x12C")
        .done();
    let expected: Vec<_> = x.iter().zip(&y).map(|(x, y)| x.mul_add(1e-3, *y)).collect();
    assert_eq!(folder.load::<f64>("z.npy", "(300,)"), expected);
    assert!(std::fs::read(folder.path("y.npy")).unwrap() == before);
}

fn tiled_matmul(device: &'static str) {
    let (m, n, k) = (37, 41, 29);
    let folder = Folder::on(device);
    let (a, b) = (noise(m * k, 7), noise(k * n, 8));
    folder.save("a.npy", &a);
    folder.save("b.npy", &b);
    folder
        .run(
            "K/matmul.ptx matmul --grid 3,3 --block 16,16 in=@a.npy in=@b.npy out=f32:37x41@c.npy \
             u32=37 u32=41 u32=29",
        )
        .done();
    let dot = |row: usize, column: usize| {
        (0..k).fold(0.0f32, |sum, i| a[row * k + i].mul_add(b[i * n + column], sum))
    };
    let expected: Vec<_> = (0..m * n).map(|i| dot(i / n, i % n)).collect();
    assert_eq!(folder.load::<f32>("c.npy", "(37, 41)"), expected);
}

/// Adds the upper half of the values to the lower half until one value is left.
fn fold(mut values: Vec<f32>) -> f32 {
    while values.len() > 1 {
        let half = values.len().div_ceil(2);
        for t in half..values.len() {
            values[t - half] += values[t];
        }
        values.truncate(half);
    }
    values[0]
}

/// The partial sum of each thread of each block.
fn shares(x: &[f32], grid: usize, block: usize) -> Vec<Vec<f32>> {
    let share =
        |first: usize| x.iter().skip(first).step_by(grid * block).fold(0.0, |sum, x| sum + x);
    (0..grid).map(|b| (0..block).map(|t| share(b * block + t)).collect()).collect()
}

fn block_reduction(device: &'static str) {
    let folder = Folder::on(device);
    let x = noise(5000, 9);
    folder.save("x.npy", &x);
    folder
        .run(
            "K/reduce.ptx block_sum_f32 --grid 5 --block 100 --shared 400 in=@x.npy out=f32:5@sums.npy \
             u32=5000",
        )
        .done();
    let expected: Vec<_> = shares(&x, 5, 100).into_iter().map(fold).collect();
    assert_eq!(folder.load::<f32>("sums.npy", "(5,)"), expected);
}

fn warp_reduction(device: &'static str) {
    let folder = Folder::on(device);
    let x = noise(3000, 10);
    folder.save("x.npy", &x);
    folder
        .run("K/warp_reduce.ptx warp_sum_f32 --grid 3 --block 96 in=@x.npy out=f32:3@sums.npy u32=3000")
        .done();
    let block = |threads: Vec<f32>| {
        let mut warps: Vec<_> = threads.chunks(32).map(|warp| fold(warp.into())).collect();
        warps.resize(32, 0.0);
        fold(warps)
    };
    let expected: Vec<_> = shares(&x, 3, 96).into_iter().map(block).collect();
    assert_eq!(folder.load::<f32>("sums.npy", "(3,)"), expected);
}

fn warp_integers(device: &'static str) {
    let folder = Folder::on(device);
    let x = words(1000, 11);
    let signed: Vec<_> = x.iter().map(|word| *word as i32).collect();
    folder.save("x.npy", &x);
    folder.save("least.npy", &[i32::MIN]);
    folder
        .run("K/warp_reduce.ptx warp_sum_u32 --grid 8 --block 128 in=@x.npy out=u32:1@sum.npy u32=1000")
        .done();
    let sum = x.iter().fold(0u32, |sum, x| sum.wrapping_add(*x));
    assert_eq!(folder.load::<u32>("sum.npy", "(1,)"), [sum]);
    folder
        .run(
            "K/warp_reduce.ptx warp_max_i32 --grid 8 --block 128 in=@x.npy inout=@least.npy@most.npy \
             u32=1000",
        )
        .done();
    assert_eq!(folder.load::<i32>("most.npy", "(1,)"), [*signed.iter().max().unwrap()]);
}

fn histogram(device: &'static str) {
    let folder = Folder::on(device);
    let x: Vec<_> = words(10_000, 12).into_iter().map(|word| (word >> 24) as u8).collect();
    folder.save("x.npy", &x);
    folder
        .run(
            "K/histogram.ptx histogram --grid 6 --block 64 in=@x.npy out=u32:256@counts.npy u32=10000 \
             --repeat 3",
        )
        .done();
    let mut counts = [0u32; 256];
    x.iter().for_each(|byte| counts[usize::from(*byte)] += 3);
    assert_eq!(folder.load::<u32>("counts.npy", "(256,)"), counts);
}

fn softmax(device: &'static str) {
    let folder = Folder::on(device);
    let x: Vec<_> = noise(7 * 90, 13).into_iter().map(|x| 20.0 * x).collect();
    folder.save("x.npy", &x);
    folder
        .run("K/softmax.ptx softmax --grid 7 --block 64 in=@x.npy out=f32:7x90@y.npy u32=7 u32=90")
        .done();
    let y = folder.load::<f32>("y.npy", "(7, 90)");
    for (x, y) in x.chunks(90).zip(y.chunks(90)) {
        let largest = x.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponentials: Vec<_> = x.iter().map(|x| f64::from(x - largest).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        for (exponential, y) in exponentials.iter().zip(y) {
            let (expected, y) = (exponential / sum, f64::from(*y));
            assert!((y - expected).abs() <= 2e-6 * expected + 1e-38, "{y} is not {expected}");
        }
    }
}

fn stencil(device: &'static str) {
    let (width, height) = (50, 33);
    let folder = Folder::on(device);
    let u = noise(width * height, 14);
    folder.save("u.npy", &u);
    folder
        .run(
            "K/stencil.ptx stencil5 --grid 4,5 --block 16,8 in=@u.npy out=f32:33x50@out.npy u32=50 u32=33 \
             f32=0.5 f32=0.125",
        )
        .done();
    let step = |i: usize| {
        let (x, y) = (i % width, i / width);
        if x == 0 || y == 0 || x == width - 1 || y == height - 1 {
            return u[i];
        }
        0.5 * u[i] + 0.125 * (u[i - width] + u[i + width] + u[i - 1] + u[i + 1])
    };
    let expected: Vec<_> = (0..width * height).map(step).collect();
    assert_eq!(folder.load::<f32>("out.npy", "(33, 50)"), expected);
}

fn structs_by_value(device: &'static str) {
    let folder = Folder::on(device);
    let bytes =
        [&1.5f32.to_le_bytes()[..], &(-3i32).to_le_bytes(), &0.25f64.to_le_bytes()].concat();
    std::fs::write(folder.path("mixed"), bytes).unwrap();
    folder
        .run("K/params.ptx struct_by_value --grid 1 --block 32 bytes=@mixed out=f64:10@out.npy u32=10")
        .done();
    let expected: Vec<_> = (0..10).map(|i| 1.5 * f64::from(i) - 3.0 + 0.25).collect();
    assert_eq!(folder.load::<f64>("out.npy", "(10,)"), expected);

    let bytes = [7.0f64.to_le_bytes(), 9.0f64.to_le_bytes()].concat();
    std::fs::write(folder.path("pair"), bytes).unwrap();
    folder
        .run("K/params.ptx double2_by_value --grid 1 --block 32 bytes=@pair out=f64:3x2@out.npy u32=3")
        .done();
    assert_eq!(folder.load::<f64>("out.npy", "(3, 2)"), [7.0, 9.0, 8.0, 8.0, 9.0, 7.0]);

    let table = noise(256, 15);
    let bytes: Vec<_> = table.iter().flat_map(|value| value.to_le_bytes()).collect();
    std::fs::write(folder.path("table"), bytes).unwrap();
    folder
        .run("K/params.ptx table_by_value --grid 2 --block 128 bytes=@table out=f32:256@out.npy")
        .done();
    assert_eq!(folder.load::<f32>("out.npy", "(256,)"), table);
}

fn every_scalar(device: &'static str) {
    let folder = Folder::on(device);
    folder
        .run(
            "K/params.ptx every_scalar --grid 1 --block 1 i8=-128 u16=65535 u8=0xff i32=-7 u8=1 \
             i64=-9007199254740992 f32=-inf f64=1e300 out=f64:8@out.npy",
        )
        .done();
    let expected =
        [-128.0, 65535.0, 255.0, -7.0, 1.0, -9007199254740992.0, f64::NEG_INFINITY, 1e300];
    assert_eq!(folder.load::<f64>("out.npy", "(8,)"), expected);
}

/// An array of a type that the kernel does not interpret keeps its type, shape and bytes.
fn half_precision_passes_through(device: &'static str) {
    let folder = Folder::on(device);
    for descr in ["<f2", "<V2", "<i2"] {
        let file = crate::npy::file(&format!("'{descr}'"), "False", "(1, 3)", b"abcdef");
        std::fs::write(folder.path("x.npy"), file).unwrap();
        folder
            .run("K/basic.ptx fill_u32 --grid 1 --block 1 inout=@x.npy@y.npy u32=0x64636261 u32=1")
            .done();
        let file = std::fs::read(folder.path("y.npy")).unwrap();
        let expected = format!("'descr': '{descr}', 'fortran_order': False, 'shape': (1, 3), ");
        assert!(crate::npy::header(&file).contains(&expected));
        assert!(file.ends_with(b"abcdef"));
    }
}
