//! Kernels that NVRTC compiled from `tests/ptx/gemm.cu` and `copies.cu`. The results of every compiler version must
//! equal those of a GPU and of plain Rust.

use std::rc::Rc;

use half::{bf16, f16};

use super::inputs::random;
use super::{Case, golden, hash, run};

const GEMM: [(&str, &str); 2] = [
    ("12_sm_80", include_str!("../../ptx/gemm_12_sm_80.ptx")),
    ("13_sm_120", include_str!("../../ptx/gemm_13_sm_120.ptx")),
];
const COPIES: [(&str, &str); 4] = [
    ("12_sm_80", include_str!("../../ptx/copies_12_sm_80.ptx")),
    ("12_sm_90", include_str!("../../ptx/copies_12_sm_90.ptx")),
    ("13_sm_90", include_str!("../../ptx/copies_13_sm_90.ptx")),
    ("13_sm_120", include_str!("../../ptx/copies_13_sm_120.ptx")),
];

/// The sizes in gemm.cu.
const M: usize = 64;
const N: usize = 64;
const K: usize = 128;

/// A kernel of gemm.cu: the types of factors and sums, and whether A and B are stored by rows.
struct Gemm {
    kernel: &'static str,
    factor: Number,
    sum: Number,
    rows: [bool; 2],
    /// False if the kernel doubles the result and stores it by columns.
    plain: bool,
}

#[derive(Clone, Copy, PartialEq)]
enum Number {
    F16,
    Bf16,
    F32,
    F64,
    S8,
    U8,
    S32,
}

impl Number {
    fn bytes(self, value: f64) -> Vec<u8> {
        match self {
            Self::F16 => f16::from_f64(value).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f64(value).to_le_bytes().to_vec(),
            Self::F32 => (value as f32).to_le_bytes().to_vec(),
            Self::F64 => value.to_le_bytes().to_vec(),
            Self::S8 => ((value * 40.0) as i8).to_le_bytes().to_vec(),
            Self::U8 => ((value.abs() * 40.0) as u8).to_le_bytes().to_vec(),
            Self::S32 => ((value * 1000.0) as i32).to_le_bytes().to_vec(),
        }
    }

    fn read(self, bytes: &[u8]) -> Vec<f64> {
        let size = self.bytes(0.0).len();
        let one = |b: &[u8]| match self {
            Self::F16 => f16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            Self::Bf16 => bf16::from_le_bytes(b.try_into().unwrap()).to_f64(),
            Self::F32 => f32::from_le_bytes(b.try_into().unwrap()).into(),
            Self::F64 => f64::from_le_bytes(b.try_into().unwrap()),
            Self::S8 => (b[0] as i8).into(),
            Self::U8 => b[0].into(),
            Self::S32 => i32::from_le_bytes(b.try_into().unwrap()).into(),
        };
        bytes.chunks(size).map(one).collect()
    }

    /// Returns the permitted error of a sum, relative to its magnitude.
    fn tolerance(self) -> f64 {
        match self {
            Self::F16 => 4e-3,
            Self::F32 => 1e-5,
            _ => 0.0,
        }
    }
}

const GEMMS: [Gemm; 11] = {
    use Number::{Bf16, F16, F32, F64, S8, S32, U8};
    const fn gemm(kernel: &'static str, factor: Number, sum: Number, a: bool, b: bool) -> Gemm {
        Gemm { kernel, factor, sum, rows: [a, b], plain: false }
    }
    [
        gemm("wmma_f16_f32", F16, F32, true, false),
        gemm("wmma_f16_f16", F16, F16, false, true),
        gemm("wmma_f16_wide", F16, F32, true, true),
        gemm("wmma_f16_tall", F16, F16, false, false),
        gemm("wmma_bf16", Bf16, F32, true, true),
        gemm("wmma_bf16_wide", Bf16, F32, false, false),
        gemm("wmma_tf32", F32, F32, true, false),
        gemm("wmma_s8", S8, S32, true, false),
        gemm("wmma_u8_tall", U8, S32, false, true),
        gemm("wmma_f64", F64, F64, true, false),
        Gemm { kernel: "mma_pipelined", factor: F16, sum: F32, rows: [true, true], plain: true },
    ]
};

impl Gemm {
    fn matrix(seed: u64, ty: Number, count: usize) -> Rc<Vec<u8>> {
        let value = |i: usize| (random(seed << 32 | i as u64) % 4001) as f64 / 1000.0 - 2.0;
        Rc::new((0..count).flat_map(|i| ty.bytes(value(i))).collect())
    }

    fn case(&self, ptx: &Rc<String>) -> Case {
        let inputs = [
            Self::matrix(1, self.factor, M * K),
            Self::matrix(2, self.factor, K * N),
            Self::matrix(3, self.sum, M * N),
        ];
        let (blocks, threads) = if self.plain { (4, 128) } else { (1, 32) };
        let out = M * N * self.sum.bytes(0.0).len();
        let name = format!("kernel {}", self.kernel);
        Case { name, ptx: ptx.clone(), kernel: self.kernel, inputs, blocks, threads, out }
    }

    /// Returns the expected products by row, each with the permitted error.
    fn expected(&self, case: &Case) -> Vec<(f64, f64)> {
        let [a, b] = [0, 1].map(|i| {
            let truncated = |x: f64| match self.kernel {
                "wmma_tf32" => f64::from(f32::from_bits((x as f32).to_bits() & !0x1FFF)),
                _ => x,
            };
            self.factor.read(&case.inputs[i]).into_iter().map(truncated).collect::<Vec<f64>>()
        });
        let c = self.sum.read(&case.inputs[2]);
        let at_a = |i: usize, k: usize| a[i * K + k];
        let at_b = |k: usize, j: usize| if self.rows[1] { b[k * N + j] } else { b[j * K + k] };
        let one = |i: usize, j: usize| {
            let scale = if self.plain { 1.0 } else { 2.0 };
            let sum = (0..K).fold(c[i * N + j], |sum, k| at_a(i, k).mul_add(at_b(k, j), sum));
            let size: f64 = (0..K).map(|k| (at_a(i, k) * at_b(k, j)).abs()).sum();
            (scale * sum, scale * size * self.sum.tolerance())
        };
        (0..M * N).map(|at| one(at / N, at % N)).collect()
    }

    fn check(&self, case: &Case, compiler: &str) {
        let got = self.sum.read(&run(case));
        for (at, (want, off)) in self.expected(case).into_iter().enumerate() {
            let (i, j) = (at / N, at % N);
            let got = if self.plain { got[at] } else { got[j * M + i] };
            assert!(
                (got - want).abs() <= off,
                "{} of {compiler}: {i}, {j}: {got}, not {want}",
                self.kernel
            );
        }
    }
}

/// The kernels of copies.cu: name, whether it needs sm_90, blocks, threads, number of results, and expected results.
type Expected = fn(&[i32], usize, usize) -> Vec<i32>;
const COPYING: [(&str, bool, usize, usize, usize, Expected); 7] = [
    ("pipeline", false, 3, 128, 3, |x, blocks, _| {
        let term = |block: usize, part: usize, i: usize| {
            x[block * 1024 + part * 256 + 255 - i].wrapping_mul((i + part) as i32)
        };
        let parts = |block| (0..4).flat_map(move |part| (0..256).map(move |i| (block, part, i)));
        let sum = |block| {
            parts(block).fold(-0x5555_5556i32, |s, (b, p, i)| s.wrapping_add(term(b, p, i)))
        };
        (0..blocks).map(sum).collect()
    }),
    ("own_pipeline", false, 2, 128, 4096, |x, _, _| {
        x[..4096].chunks(4).flat_map(|v| [v[3], v[2], v[1], v[0]]).collect()
    }),
    ("ring", false, 2, 96, 192, |x, blocks, threads| {
        let mut values: Vec<i32> = x[..threads].to_vec();
        for round in 0..10 {
            let seen = values.clone();
            for (t, value) in values.iter_mut().enumerate() {
                let other = seen[(t + 1 + round) % threads];
                *value = value.wrapping_mul(3).wrapping_add(round as i32) ^ other;
            }
        }
        values.repeat(blocks)
    }),
    ("copy_and_wait", false, 3, 128, 1536, |x, _, _| {
        x[..1536].chunks(512).flat_map(|part| part.iter().rev().copied()).collect()
    }),
    ("there_and_back", true, 3, 128, 3072, |x, _, _| {
        x[..3072].iter().map(|v| v.wrapping_mul(2).wrapping_add(1)).collect()
    }),
    ("specialised", true, 2, 160, 320, |x, blocks, threads| {
        let one = |block: usize, t: usize| {
            let value = |part: usize| x[block * 3072 + part * 128 + (t * 7 + part) % 128];
            (0..24).fold(0i32, |sum, part| sum.wrapping_mul(5).wrapping_add(value(part)))
        };
        let all = (0..blocks * threads).map(|i| (i / threads, i % threads));
        all.map(|(block, t)| if t < 32 { -0x5555_5556 } else { one(block, t) }).collect()
    }),
    ("cluster", true, 2, 128, 256, |x, blocks, _| {
        let value: Vec<i32> = (0..128).map(|t| x[127 - t].wrapping_add(1 + t as i32)).collect();
        let mut room: Vec<u16> =
            x[..128].iter().flat_map(|v| [*v as u16, (*v >> 16) as u16]).collect();
        // A matrix of 8 x 8 halves, transposed. Lane `l` holds two of row `l / 4`.
        for (lane, value) in value.iter().enumerate().take(32) {
            for half in 0..2 {
                let (row, column) = (lane / 4, lane % 4 * 2 + half);
                room[column * 8 + row] = (value >> (16 * half)) as u16;
            }
        }
        let word = |t: usize| i32::from(room[2 * t]) & 0xFFFF | i32::from(room[2 * t + 1]) << 16;
        let out: Vec<i32> = (0..128).map(|t| value[t] ^ word(t)).collect();
        out.repeat(blocks)
    }),
];

fn copying(ptx: &Rc<String>, index: usize) -> Case {
    let (kernel, _, blocks, threads, count, _) = COPYING[index];
    let data: Vec<u8> = (0..8192).flat_map(|i| (random(i << 8) as u32).to_le_bytes()).collect();
    let nothing = Rc::new(vec![0; 64]);
    let inputs = [Rc::new(data), nothing.clone(), nothing];
    let (blocks, threads) = (blocks as u32, threads as u32);
    let name = format!("kernel {kernel}");
    Case { name, ptx: ptx.clone(), kernel, inputs, blocks, threads, out: 4 * count }
}

fn words(bytes: &[u8]) -> Vec<i32> {
    bytes.chunks(4).map(|w| i32::from_le_bytes(w.try_into().unwrap())).collect()
}

/// Returns the cases that an sm_90 GPU can run.
pub(super) fn cases() -> Vec<Case> {
    let [gemm, sm_80, sm_90] =
        [GEMM[0].1, COPIES[0].1, COPIES[1].1].map(|ptx| Rc::new(ptx.to_owned()));
    let mut cases: Vec<Case> = GEMMS.iter().map(|one| one.case(&gemm)).collect();
    cases
        .extend((0..COPYING.len()).map(|i| copying(if COPYING[i].1 { &sm_90 } else { &sm_80 }, i)));
    cases
}

#[test]
fn products_of_every_compiler() {
    let golden = golden();
    for (compiler, ptx) in GEMM {
        let ptx = Rc::new(ptx.to_owned());
        for gemm in &GEMMS {
            let case = gemm.case(&ptx);
            gemm.check(&case, compiler);
            assert_eq!(
                golden.get(&*case.name),
                Some(&hash(&run(&case))),
                "{} of {compiler}",
                case.name
            );
        }
    }
}

#[test]
fn copies_of_every_compiler() {
    for (compiler, ptx) in COPIES {
        let ptx = Rc::new(ptx.to_owned());
        for (i, (kernel, modern, blocks, threads, _, expected)) in COPYING.into_iter().enumerate() {
            if modern && compiler.ends_with("sm_80") {
                continue;
            }
            let case = copying(&ptx, i);
            let want = expected(&words(&case.inputs[0]), blocks, threads);
            assert_eq!(words(&run(&case)), want, "{kernel} of {compiler}");
        }
    }
}
