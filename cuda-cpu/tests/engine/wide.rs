//! `tests/ptx/wide.cu`: calls, recursion, divergence, locks, halves and mathematics.

use crate::args;
use crate::host::Host;

fn host() -> Host {
    Host::with_pool(include_str!("../ptx/wide.ptx"), 2)
}

#[test]
fn mandelbrot() {
    let h = host();
    let (width, height, limit) = (100u32, 60u32, 200u32);
    let out = h.zeros::<u32>((width * height) as usize);
    h.run("mandelbrot", (7, 8), (16, 8), args![out, width, height, limit]);
    let got = h.download::<u32>(out, (width * height) as usize);
    assert!(got.contains(&limit) && got.contains(&1), "inside and outside");
    assert_eq!(got[(30 * width + 66) as usize], limit, "the origin is inside");
}

#[test]
fn recursion() {
    let h = host();
    let out = h.zeros::<u32>(64);
    h.run("recursion", 1, 64, args![out]);
    let fibonacci = [0u32, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144];
    let want: Vec<u32> = (0..64).map(|i| fibonacci[i % 13]).collect();
    assert_eq!(h.download::<u32>(out, 64), want);
}

#[test]
fn function_pointers() {
    let h = host();
    let out = h.zeros::<i32>(64);
    h.run("pointers", 1, 64, args![out]);
    let want: Vec<i32> = (0..64).map(|i| [2 * i, i * i, -i][i as usize % 3]).collect();
    assert_eq!(h.download::<i32>(out, 64), want);
}

#[test]
fn spin_locks_make_progress() {
    let h = host();
    let (lock, count) = (h.zeros::<u32>(1), h.zeros::<u32>(1));
    h.run("spin_lock", 4, 64, args![lock, count, 3u32]);
    assert_eq!(h.download::<u32>(count, 1), [4 * 64 * 3]);
}

#[test]
fn blocks_that_wait_for_each_other_take_turns() {
    let h = host();
    let (arrived, out) = (h.zeros::<u32>(1), h.zeros::<u32>(50));
    h.run("grid_barrier", 50, 64, args![arrived, out]);
    assert_eq!(h.download::<u32>(out, 50), [50; 50]);
}

#[test]
fn lanes_meet_by_mask() {
    let h = host();
    let out = h.zeros::<i32>(32);
    h.run("divergent_shuffle", 1, 32, args![out]);
    let peers = |lane: i32| if lane < 30 { 5 } else { 2 };
    let want: Vec<i32> =
        (0..32).map(|l| if l % 2 == 1 { 50 } else { 400 } + peers(l) * 100_000).collect();
    assert_eq!(h.download::<i32>(out, 32), want);
}

#[test]
fn halves() {
    use half::{bf16, f16};
    let h = host();
    let n = 100u32;
    let x: Vec<f32> = (0..n).map(|i| i as f32 * 0.173 - 8.0).collect();
    let out = h.zeros::<f32>(n as usize);
    h.run("halves", 4, 32, args![h.upload(&x), out, n]);
    let fma = |p: f16, b: f16| {
        let (p, b) = (p.to_f64(), b.to_f64());
        // f64 is exact for these magnitudes.
        f16::from_f64(p * p + b)
    };
    let want: Vec<f32> = (0..n as usize)
        .map(|i| {
            let (a, b) = (f16::from_f32(x[i]), f16::from_f32(x[n as usize - 1 - i]));
            let c = bf16::from_f32(x[i]);
            let c = bf16::from_f32(c.to_f32() * c.to_f32());
            let sum = fma(a, b).to_f32() + fma(b, b).to_f32();
            sum + c.to_f32() + if a < b { 1.0 } else { 0.0 }
        })
        .collect();
    assert_eq!(h.download::<f32>(out, n as usize), want);
}

#[test]
fn mathematics() {
    let h = host();
    let n = 64u32;
    let x: Vec<f64> = (0..n).map(|i| f64::from(i) * 0.07 - 1.5).collect();
    let out = h.zeros::<f64>(n as usize);
    h.run("doubles", 2, 32, args![h.upload(&x), out, n]);
    for (x, got) in x.iter().zip(h.download::<f64>(out, n as usize)) {
        // tgamma(1 + |x|), by recurrence on a series of sufficient precision.
        let want = x.sin() * (-x).exp() + x.abs().powf(1.5) + (1.0 + x * x).ln() / (2.0 + x).sqrt();
        let gamma = got - want;
        assert!((gamma_of(1.0 + x.abs()) - gamma).abs() < 1e-9, "{x}: {gamma}");
    }
    let x32: Vec<f32> = x.iter().map(|&x| x as f32).collect();
    let out = h.zeros::<f32>(n as usize);
    h.run("floats", 2, 32, args![h.upload(&x32), out, n]);
    assert!(h.download::<f32>(out, n as usize).iter().all(|x| x.is_finite()));
}

/// Lanczos' approximation of the gamma function.
fn gamma_of(x: f64) -> f64 {
    const G: f64 = 7.0;
    const C: [f64; 9] = [
        0.999_999_999_999_809_9,
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let t = x + G + 0.5;
    let sum = C.iter().enumerate().skip(1).fold(C[0], |s, (i, c)| s + c / (x + i as f64));
    (2.0 * std::f64::consts::PI).sqrt() * t.powf(x + 0.5) * (-t).exp() * sum
}

#[test]
fn local_memory_and_switches() {
    let h = host();
    let x: Vec<u32> = (0..64 * 64).map(|i: u32| i.wrapping_mul(2_654_435_761) >> 9).collect();
    let out = h.zeros::<u32>(64);
    h.run("local_array", 1, 64, args![h.upload(&x), out]);
    let want: Vec<u32> = x
        .chunks(64)
        .map(|chunk| {
            let mut digits = [0u32; 16];
            chunk.iter().for_each(|&d| digits[d as usize & 15] += 1);
            let best = (1..16).fold(0, |b, i| if digits[i] > digits[b] { i } else { b });
            best as u32 * 1000 + digits[best]
        })
        .collect();
    assert_eq!(h.download::<u32>(out, 64), want);

    let out = h.zeros::<u32>(96);
    h.run("switches", 1, 96, args![out]);
    let want: Vec<u32> = (0..96u32)
        .map(|r| match r % 8 {
            0 => r * 3,
            1 => r ^ 77,
            2 => r + 1000,
            3 => !r,
            4 => r << 4,
            5 => r.reverse_bits(),
            6 => r.leading_zeros(),
            _ => r * r,
        })
        .collect();
    assert_eq!(h.download::<u32>(out, 96), want);
}

#[test]
fn wide_integers() {
    let h = host();
    let n = 50usize;
    let x: Vec<u64> =
        (0..n as u64).map(|i| (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (i % 40)).collect();
    let out = h.zeros::<u64>(4 * n);
    h.run("wide_ints", 1, 64, args![h.upload(&x), out, n as u32]);
    let got = h.download::<u64>(out, 4 * n);
    for i in 0..n {
        let (a, b) = (x[i], x[(i + 1) % n] | 1);
        let p = u128::from(a).wrapping_mul(u128::from(b)).wrapping_add(u128::from(a));
        let quotient = (a as i64).wrapping_div(((b >> 3) | 1) as i64) as u64;
        let high = ((u128::from(a) * u128::from(b)) >> 64) as u64;
        let want = [(p >> 64) as u64, p as u64, a / b + a % b, high.wrapping_add(quotient)];
        assert_eq!(got[4 * i..][..4], want, "{i}");
    }
}
