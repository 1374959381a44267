//! Integer arithmetic and atomics.

use super::{Data, Reference, bytes, of_i32, of_u32, of_u64};

pub(super) const ALL: &[(&str, Reference)] = &[
    ("dot_products", dot_products),
    ("wide_integers", wide_integers),
    ("divisions", divisions),
    ("atomic_integers", atomic_integers),
    ("atomic_loops", atomic_loops),
    ("function_pointers", function_pointers),
    ("virtual_calls", virtual_calls),
    ("heap", heap),
];

/// Returns rows of results, one for each result of `f`, over all elements.
fn rows<T: Copy, R>(inputs: &[T], f: impl Fn(T) -> Vec<R>) -> Vec<R> {
    let mut columns: Vec<_> = inputs.iter().map(|&x| f(x).into_iter()).collect();
    let mut all = Vec::new();
    while let Some(row) = columns.iter_mut().map(Iterator::next).collect::<Option<Vec<R>>>() {
        all.extend(row);
    }
    all
}

fn dot_products(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, b) = (d.u32s(0), d.u32s(1));
    let inputs: Vec<(usize, u32, u32)> = (0..a.len()).map(|i| (i, a[i], b[i])).collect();
    let signed = |x: u32, i: usize| i32::from(x.to_le_bytes()[i] as i8);
    let plain = |x: u32, i: usize| i32::from(x.to_le_bytes()[i]);
    let s16 = |x: u32, i: usize| i32::from((x >> (16 * i)) as i16);
    let u16 = |x: u32, i: usize| i32::from((x >> (16 * i)) as u16);
    let one = |(i, x, y): (usize, u32, u32)| {
        let four = (0..4).map(|k| signed(x, k) * signed(y, k)).sum::<i32>();
        let two = |h: usize| (0..2).map(|k| s16(x, k) * signed(y, 2 * h + k)).sum::<i32>();
        let plain_two = |h: usize| (0..2).map(|k| u16(x, k) * plain(y, 2 * h + k)).sum::<i32>();
        let plain_four = (0..4).map(|k| plain(x, k) * plain(y, k)).sum::<i32>();
        let i = i as i32;
        vec![
            four + i,
            plain_four + i,
            two(0) + 7,
            two(1) + 7,
            plain_two(0) + 7,
            plain_two(1) + 7,
            four - 1,
            two(0) - 1,
        ]
    };
    vec![of_i32(&rows(&inputs, one))]
}

fn wide_integers(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, b) = (d.u64s(0), d.u64s(1));
    let inputs: Vec<(u64, u64)> = a.into_iter().zip(b).collect();
    let one = |(p, q): (u64, u64)| {
        let x = u128::from(p) << 64 | u128::from(q);
        let y = u128::from(q >> 40) << 64 | u128::from(p | 1);
        let (s, t) = (x as i128, y as i128);
        let tests = u128::from(x < y) | u128::from(s < t) << 1 | u128::from(x == y) << 2;
        let by = (q & 127) as u32;
        let all = [
            x.wrapping_mul(y),
            x / y,
            x % y,
            s.wrapping_div(t) as u128,
            x << by,
            (s >> by) as u128,
            u128::from(p) * u128::from(q),
            tests,
        ];
        all.into_iter().flat_map(|w| [w as u64, (w >> 64) as u64]).collect()
    };
    vec![of_u64(&rows(&inputs, one))]
}

fn divisions(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (a, b) = (d.i64s(0), d.i64s(1));
    let inputs: Vec<(i64, i64)> = a.into_iter().zip(b).collect();
    let one = |(x, y): (i64, i64)| {
        let y = match y >> (y & 63) {
            0 | -1 => 3,
            y => y,
        };
        let (p, q) = (
            x as i32,
            match y as i32 {
                0 => 5,
                -1 => 7,
                q => q,
            },
        );
        let (ux, uy, up, uq) = (x as u64, y as u64, p as u32, q as u32);
        vec![
            x.wrapping_div(y),
            x.wrapping_rem(y),
            (ux / uy) as i64,
            (ux % uy) as i64,
            i64::from(p / q),
            i64::from(p % q),
            i64::from(up / uq),
            i64::from(up % uq),
            i64::from(p / 7),
            i64::from(p % 10),
            x / 1_000_000_007,
            (ux % 641) as i64,
            i64::from(p as i16 / 3),
            i64::from(p as u8 % 11),
        ]
    };
    vec![bytes(&rows(&inputs, one), i64::to_le_bytes)]
}

fn atomic_integers(d: &Data<'_>) -> Vec<Vec<u8>> {
    let (x, start, n) = (d.u32s(0), d.u32s(1), 256u32);
    let fold = |from: u32, f: &dyn Fn(u32, u32) -> u32| x.iter().fold(from, |a, &b| f(a, b));
    let s = start[0];
    let signed = || x.iter().map(|&v| v as i32);
    let count = |f: &dyn Fn(u32) -> u32| (0..n).fold(s, |a, _| f(a));
    let words = [
        fold(s, &u32::wrapping_add),
        fold(s, &u32::wrapping_sub).wrapping_add(0),
        fold(s, &u32::min),
        fold(s, &u32::max),
        fold(s, &|a, b| a & (b | 0xF_FFF0)),
        fold(s, &|a, b| a | b & 0xFF_00FF),
        fold(s, &|a, b| a ^ b),
        count(&|a| if a >= 99 { 0 } else { a + 1 }),
        count(&|a| if a == 0 || a > 77 { 77 } else { a - 1 }),
        42,
        7,
        s + n,
        s + 2 * n,
        fold(s, &|a, b| a.max(b >> 8)),
        s,
        s,
    ];
    let integers = [
        signed().fold(0, i32::wrapping_add),
        signed().min().unwrap().min(0),
        signed().max().unwrap().max(0),
        -5 * n as i32,
        0,
        signed().fold(0, |a, b| a ^ b),
        -3,
        -9,
    ];
    vec![of_u32(&words), of_i32(&integers)]
}

fn atomic_loops(d: &Data<'_>) -> Vec<Vec<u8>> {
    let x = d.u32s(0);
    let sum: u32 = 1 + x.iter().sum::<u32>();
    let product = x.iter().fold(1u64, |p, &x| p * u64::from(x + 1) % 1_000_003);
    let half = (x.iter().sum::<u32>() & 0xFFFF) << 16 | 1;
    vec![of_u32(&[sum.min(50_000), half, 1]), of_u64(&[product])]
}

fn function_pointers(d: &Data<'_>) -> Vec<Vec<u8>> {
    let all: [fn(i32) -> i32; 4] =
        [|x| 2 * x, |x| x * x, |x| -x, |x| if x & 1 != 0 { 3 * x + 1 } else { x / 2 }];
    let x = d.i32s(0);
    let first = x.iter().enumerate().map(|(i, &x)| all[i % 4](x));
    let times = |(i, &x): (usize, &i32)| {
        let f = if i % 3 != 0 { all[0] } else { all[3] };
        (0..i % 5).fold(x, |x, _| f(x))
    };
    let second = x.iter().enumerate().map(times);
    vec![of_i32(&first.chain(second).collect::<Vec<_>>())]
}

fn virtual_calls(d: &Data<'_>) -> Vec<Vec<u8>> {
    let one = |(i, &age): (usize, &i32)| {
        let i = i as i32;
        let score = if age & 1 != 0 { (age * i + 6) * 4 } else { age * i + 2 };
        score + 1000 * if i & 1 != 0 { 6 } else { 2 }
    };
    vec![of_i32(&d.i32s(0).iter().enumerate().map(one).collect::<Vec<_>>())]
}

fn heap(d: &Data<'_>) -> Vec<Vec<u8>> {
    let one = |&n: &u32| (0..n).rev().fold(0u32, |sum, k| sum.wrapping_mul(3).wrapping_add(k * k));
    vec![of_u32(&d.u32s(0).iter().map(one).collect::<Vec<_>>())]
}
