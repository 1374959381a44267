//! Linear algebra, reductions, stencils and images.

use super::{Data, Reference, of_f32, of_u64};

pub(super) const ALL: &[(&str, Reference)] = &[
    ("gemv", gemv),
    ("gemm", gemm),
    ("gemv_transposed", gemv_transposed),
    ("transpose", transpose),
    ("spmv", spmv),
    ("argmax", argmax),
    ("extremes", extremes),
    ("life", life),
    ("sobel", sobel),
    ("wmma_half", wmma_half),
    ("number_transform", number_transform),
];

/// Each lane adds every 32nd column. The sums are folded by halves.
fn gemv(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, x, rows, columns) = (d.f32s(0), d.f32s(1), d.scalar(3), d.scalar(4));
    let row = |r: usize| {
        let lane = |l: usize| {
            (l..columns).step_by(32).fold(0f32, |sum, c| a[r * columns + c].mul_add(x[c], sum))
        };
        let mut sums: Vec<f32> = (0..32).map(lane).collect();
        for step in [16, 8, 4, 2, 1] {
            (0..step).for_each(|l| sums[l] += sums[l + step]);
        }
        sums[0]
    };
    vec![of_f32(&(0..rows).map(row).collect::<Vec<_>>())]
}

fn gemm(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, b, m, n, k) = (d.f32s(0), d.f32s(1), d.scalar(3), d.scalar(4), d.scalar(5));
    let cell = |i: usize| {
        let (row, column) = (i / n, i % n);
        (0..k).fold(0f32, |sum, j| a[row * k + j].mul_add(b[j * n + column], sum))
    };
    vec![of_f32(&(0..m * n).map(cell).collect::<Vec<_>>())]
}

/// The values are small integers, so the order does not matter.
fn gemv_transposed(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, x, mut y, alpha) = (d.f32s(0), d.f32s(1), d.f32s(2), d.f32s(3)[0]);
    let columns = y.len();
    for (i, &value) in a.iter().enumerate() {
        y[i % columns] += alpha * value * x[i / columns];
    }
    vec![of_f32(&y)]
}

fn transpose(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, rows, columns) = (d.u64s(0), d.scalar(2), d.scalar(3));
    let cell = |i: usize| a[i % rows * columns + i / rows];
    vec![of_u64(&(0..rows * columns).map(cell).collect::<Vec<_>>())]
}

fn spmv(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (rows, columns, values, x) = (d.u32s(0), d.u32s(1), d.f32s(2), d.f32s(3));
    let row = |r: usize| {
        let range = rows[r] as usize..rows[r + 1] as usize;
        range.fold(0f32, |sum, i| values[i].mul_add(x[columns[i] as usize], sum))
    };
    vec![of_f32(&(0..d.scalar(5)).map(row).collect::<Vec<_>>())]
}

fn argmax(d: &Data<'_>) -> Vec<Vec<u8>> {
    let packed =
        |(i, &x): (usize, &i32)| u64::from(x as u32 ^ 0x8000_0000) << 32 | u64::from(!(i as u32));
    vec![of_u64(&[d.i32s(0).iter().enumerate().map(packed).max().unwrap()])]
}

/// The second one starts at 0, so it is the smallest value if that is negative.
fn extremes(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.f32s(0);
    vec![of_f32(&[x.iter().copied().fold(0.0, f32::max), x.iter().copied().fold(0.0, f32::min)])]
}

fn life(d: &Data<'_>) -> Vec<Vec<u8>> {
    let mut rows = d.u64s(0);
    for _ in 0..d.scalar(1) {
        let alive = |y: usize, x: usize| rows[y % 64] >> (x % 64) & 1;
        let row = |y: usize| {
            (0..64).fold(0u64, |row, x| {
                let near = [(63, 63), (63, 0), (63, 1), (0, 63), (0, 1), (1, 63), (1, 0), (1, 1)];
                let count: u64 = near.iter().map(|&(dy, dx)| alive(y + dy, x + dx)).sum();
                row | u64::from(count == 3 || count == 2 && alive(y, x) == 1) << x
            })
        };
        rows = (0..64).map(row).collect();
    }
    vec![of_u64(&rows)]
}

fn sobel(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (image, width, height) = (d.u8s(0), d.scalar(2) as i32, d.scalar(3) as i32);
    let at = |x: i32, y: i32| {
        i32::from(image[(y.clamp(0, height - 1) * width + x.clamp(0, width - 1)) as usize])
    };
    let pixel = |i: i32| {
        let (x, y) = (i % width, i / width);
        let sum = |f: &dyn Fn(i32, i32) -> i32| {
            f(-1, 1) + 2 * f(0, 1) + f(1, 1) - f(-1, -1) - 2 * f(0, -1) - f(1, -1)
        };
        let (gx, gy) = (sum(&|a, b| at(x + b, y + a)), sum(&|a, b| at(x + a, y + b)));
        (gx.abs() + gy.abs()).min(255) as u8
    };
    vec![(0..width * height).map(pixel).collect()]
}

/// Small integers in halves.
fn wmma_half(d: &Data<'_>) -> Vec<Vec<u8>> {
    let half = |i: usize| -> Vec<f32> {
        let bytes = d.case.input(i);
        bytes.chunks(2).map(|c| half::f16::from_le_bytes([c[0], c[1]]).to_f32()).collect()
    };
    let (a, b, n) = (half(0), half(1), d.scalar(3));
    let cell = |i: usize| (0..n).map(|k| a[i / n * n + k] * b[k * n + i % n]).sum::<f32>();
    vec![of_f32(&(0..n * n).map(cell).collect::<Vec<_>>())]
}

/// Returns sums of powers of a root of unity, modulo a prime.
fn number_transform(d: &Data<'_>) -> Vec<Vec<u8>> {
    const PRIME: u128 = 0xFFFF_FFFF_0000_0001;
    let power = |base: u128, exponent: u128| {
        (0..128).rev().fold(1u128, |r, bit| {
            let r = r * r % PRIME;
            if exponent >> bit & 1 != 0 { r * base % PRIME } else { r }
        })
    };
    let x = d.u64s(0);
    let root = power(7, (PRIME - 1) / 128);
    let powers: Vec<u128> = (0..128).map(|k| power(root, k)).collect();
    let one = |block: &[u64], k: usize| {
        let terms =
            block.iter().enumerate().map(|(j, &v)| u128::from(v) * powers[j * k % 128] % PRIME);
        (terms.sum::<u128>() % PRIME) as u64
    };
    let all = x.chunks(128).flat_map(|block| (0..128).map(move |k| one(block, k)));
    vec![of_u64(&all.collect::<Vec<_>>())]
}
