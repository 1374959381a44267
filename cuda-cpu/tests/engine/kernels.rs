//! End-to-end tests of kernels compiled by NVRTC.

use crate::args;
use crate::host::Host;

fn host(ptx: &str) -> Host {
    Host::with_pool(ptx, 2)
}

#[test]
fn vecadd() {
    let h = host(include_str!("../../../kernels/vecadd.ptx"));
    let n = 10_007u32;
    let a: Vec<f32> = (0..n).map(|i| i as f32 * 0.5).collect();
    let b: Vec<f32> = (0..n).map(|i| 3.0 - i as f32).collect();
    let (da, db, out) = (h.upload(&a), h.upload(&b), h.zeros::<f32>(n as usize));
    h.run("vecadd", n.div_ceil(256), 256, args![da, db, out, n]);
    let want: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(h.download::<f32>(out, n as usize), want);
}

fn reference(a: &[f32], b: &[f32], m: usize, n: usize, k: usize) -> Vec<f32> {
    let at = |i: usize, j: usize| (0..k).fold(0.0, |s, x| a[i * k + x].mul_add(b[x * n + j], s));
    (0..m * n).map(|i| at(i / n, i % n)).collect()
}

#[test]
fn matmul() {
    let h = host(include_str!("../../../kernels/matmul.ptx"));
    let (m, n, k) = (70usize, 45usize, 33usize);
    let a: Vec<f32> = (0..m * k).map(|i| (i as f32 * 0.37).sin()).collect();
    let b: Vec<f32> = (0..k * n).map(|i| (i as f32 * 0.11).cos()).collect();
    let (da, db, c) = (h.upload(&a), h.upload(&b), h.zeros::<f32>(m * n));
    let want = reference(&a, &b, m, n, k);
    for kernel in ["matmul", "matmul_naive"] {
        let grid = ((n as u32).div_ceil(16), (m as u32).div_ceil(16));
        h.run(kernel, grid, (16, 16), args![da, db, c, m as u32, n as u32, k as u32]);
        assert_eq!(h.download::<f32>(c, m * n), want, "{kernel}");
    }
}

#[test]
fn warp_reductions() {
    let h = host(include_str!("../../../kernels/warp_reduce.ptx"));
    let n = 5_000u32;
    let x: Vec<u32> = (0..n).map(|i| i.wrapping_mul(2_654_435_761) >> 7).collect();
    let total = h.zeros::<u32>(1);
    h.run("warp_sum_u32", n.div_ceil(128), 128, args![h.upload(&x), total, n]);
    let want = x.iter().fold(0u32, |s, &x| s.wrapping_add(x));
    assert_eq!(h.download::<u32>(total, 1), [want]);

    let signed: Vec<i32> = x.iter().map(|&x| x as i32 - 1_000_000_000).collect();
    let largest = h.upload(&[i32::MIN]);
    h.run("warp_max_i32", n.div_ceil(128), 128, args![h.upload(&signed), largest, n]);
    assert_eq!(h.download::<i32>(largest, 1)[0], *signed.iter().max().unwrap());

    let floats: Vec<f32> = (0..n).map(|i| (i % 17) as f32).collect();
    let count = h.zeros::<u32>(1);
    h.run("count_above", n.div_ceil(128), 128, args![h.upload(&floats), count, 8.5f32, n]);
    let want = floats.iter().filter(|&&x| x > 8.5).count() as u32;
    assert_eq!(h.download::<u32>(count, 1), [want]);

    let partials = h.zeros::<f32>(4);
    h.run("warp_sum_f32", 4, 256, args![h.upload(&floats), partials, n]);
    let sum: f32 = h.download::<f32>(partials, 4).iter().sum();
    assert_eq!(sum, floats.iter().sum::<f32>());
}

#[test]
fn block_sums() {
    let h = host(include_str!("../../../kernels/reduce.ptx"));
    let n = 3_000u32;
    let x: Vec<f64> = (0..n).map(f64::from).collect();
    for block in [1u32, 7, 32, 96, 1000] {
        let partials = h.zeros::<f64>(3);
        let args = args![h.upload(&x), partials, n];
        h.launch_shared("block_sum_f64", 3, block, block * 8, args).unwrap();
        let sum: f64 = h.download::<f64>(partials, 3).iter().sum();
        assert_eq!(sum, x.iter().sum::<f64>(), "block of {block}");
    }
}

#[test]
fn histogram() {
    let h = host(include_str!("../../../kernels/histogram.ptx"));
    let info = &h.program.entries()[0];
    assert_eq!(info.name, "histogram");
}

#[test]
fn all_kernels_load() {
    for ptx in [
        include_str!("../../../kernels/basic.ptx"),
        include_str!("../../../kernels/faults.ptx"),
        include_str!("../../../kernels/histogram.ptx"),
        include_str!("../../../kernels/params.ptx"),
        include_str!("../../../kernels/print.ptx"),
        include_str!("../../../kernels/saxpy.ptx"),
        include_str!("../../../kernels/softmax.ptx"),
        include_str!("../../../kernels/spin.ptx"),
        include_str!("../../../kernels/stencil.ptx"),
        include_str!("../../../examples/digits/kernels/mlp.ptx"),
    ] {
        host(ptx);
    }
}
