//! Every operation of `ops.txt` and `rare.txt` on the same inputs, compared with the results of a GPU.
//!
//! `ops.golden` and `rare.golden` contain a hash of an H200's results for each operation. The operations in `rare` are
//! those that compilers seldom emit: video instructions, packed halfwords, and conversions of small formats. A line
//! starts with the kind of the inputs: integers, f32, f64 or halves. A `~` marks approximations, which are checked in
//! `approximations`. To add operations: add lines, run the ignored test `write`, run `gpu_ops.py` on a machine with a
//! GPU, and run `update`.

use crate::args;
use crate::host::Host;

const OPS: &str = concat!(include_str!("ops.txt"), include_str!("rare.txt"));
const GOLDEN: &str = concat!(include_str!("ops.golden"), include_str!("rare.golden"));

/// Number of inputs per operation.
const COUNT: usize = 1024;

/// The folder in which `write` stores the files for the GPU, and from which the results are read.
fn folder() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("ops")
}

fn ops() -> impl Iterator<Item = (bool, char, &'static str)> {
    OPS.lines().map(|line| {
        let approximate = line.starts_with('~');
        let line = line.trim_start_matches('~');
        (approximate, line.chars().next().unwrap(), &line[2..])
    })
}

/// Returns a kernel that performs one operation with registers of all sizes: `A`, `a`, `x` for the first input in 64,
/// 32 and 16 bits, and so on; shift amounts `s` and `t`; results in `D`, `d`, `w`, `p`, `q`.
fn kernel(op: &str) -> String {
    let op: String = op.split(';').map(|part| format!("{};\n", part.trim())).collect();
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b64 A, B, C, D, E, i, o; .reg .b32 a, b, c, d, e, s, t, m; .reg .b16 x, y, z, w; .reg .pred p, q;
ld.param.u64 i, [in]; ld.param.u64 o, [out];
mov.u32 m, %ctaid.x; mov.u32 a, %ntid.x; mov.u32 b, %tid.x; mad.lo.u32 m, m, a, b;
mad.wide.u32 i, m, 24, i; mad.wide.u32 o, m, 16, o;
ld.global.u64 A, [i]; ld.global.u64 B, [i+8]; ld.global.u64 C, [i+16];
cvt.u32.u64 a, A; cvt.u32.u64 b, B; cvt.u32.u64 c, C;
cvt.u16.u32 x, a; cvt.u16.u32 y, b; cvt.u16.u32 z, c;
shr.u32 s, b, 8; and.b32 s, s, 127; shr.u32 t, c, 16; and.b32 t, t, 63;
mov.u64 D, 0; mov.u64 E, 0; mov.u32 d, 0; mov.u32 e, 0; mov.u16 w, 0;
and.b32 m, c, 1; setp.ne.u32 p, m, 0; setp.eq.u32 q, m, 2;
{op}
selp.u32 m, 1, 0, p; selp.u32 e, 2, 0, q; or.b32 m, m, e;
st.global.u64 [o], D; st.global.u32 [o+8], d; st.global.u16 [o+12], w; st.global.u16 [o+14], m; ret; }}\n"
    )
}

/// Returns the inputs, which are the same on every machine: first all pairs of special values, then numbers of all
/// sizes.
fn inputs(kind: char) -> Vec<u64> {
    let f = |x: f32| u64::from(x.to_bits());
    let specials: Vec<u64> = match kind {
        'f' => vec![
            f(0.0),
            f(-0.0),
            f(1.0),
            f(-1.5),
            f(f32::INFINITY),
            f(f32::NEG_INFINITY),
            f(f32::NAN),
            f(f32::MAX),
            f(f32::MIN_POSITIVE),
            1,
            0x8000_0001,
            f(0.5),
            f(2.5),
            f(-2_147_483_648.0),
            f(8_388_609.0),
            0xFFC0_1234,
        ],
        'd' => [
            0.0,
            -0.0,
            1.0,
            -1.5,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MAX,
            f64::MIN_POSITIVE,
            f64::from_bits(1),
            -f64::from_bits(3),
            0.5,
            2.5,
            -9.3e18,
            4_503_599_627_370_497.5,
            1e300,
        ]
        .map(f64::to_bits)
        .to_vec(),
        'h' => vec![
            0,
            0x8000_8000,
            0x3C00_3C00,
            0xBE00_3C01,
            0x7C00_FC00,
            0xFC00_7C00,
            0x7E00_7FFF,
            0x7BFF_FBFF,
            0x0400_8400,
            0x0001_8001,
            0x03FF_83FF,
            0x3800_4100,
            0x7F80_FF80,
            0x3F80_BF80,
            0x0080_8080,
            0x7F7F_0001,
        ],
        _ => vec![
            0,
            1,
            2,
            u64::MAX,
            0x7FFF_FFFF,
            0x8000_0000,
            0xFFFF_FFFF,
            1 << 63,
            (1 << 63) - 1,
            0x7FFF,
            0x8000,
            0xFF80,
            31,
            32,
            0xFFFF_FFFF_8000_0000,
            0x1_0000_0001,
        ],
    };
    let mut state = 0x1234_5678_9ABC_DEF1u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut values = Vec::new();
    for i in 0..COUNT {
        if i < 256 {
            values.extend([specials[i / 16], specials[i % 16], specials[(i * 7 + i / 16) % 16]]);
            continue;
        }
        for _ in 0..3 {
            let r = random();
            values.push(match kind {
                'i' => r >> (r & 63) ^ if r & 64 != 0 { u64::MAX } else { 0 },
                // In half of the cases the exponents are close to each other, so that sums round.
                'f' if i % 2 == 0 => r & 0x807F_FFFF | ((120 + r % 16) << 23),
                'd' if i % 2 == 0 => r & 0x800F_FFFF_FFFF_FFFF | ((1010 + r % 32) << 52),
                'd' => r,
                _ => r & 0xFFFF_FFFF,
            });
        }
    }
    values
}

fn run(op: &str, kind: char) -> Vec<u64> {
    let h = Host::new(&kernel(op));
    let (input, out) = (h.upload(&inputs(kind)), h.zeros::<u64>(2 * COUNT));
    h.run("k", (COUNT / 256) as u32, 256, args![input, out]);
    h.download(out, 2 * COUNT)
}

fn hash(values: &[u64]) -> u64 {
    values.iter().fold(0xCBF2_9CE4_8422_2325, |h, v| {
        (h ^ v).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23)
    })
}

#[test]
fn matches_a_gpu() {
    let golden: std::collections::HashMap<&str, u64> = GOLDEN
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(hash, op)| (op, u64::from_str_radix(hash, 16).unwrap()))
        .collect();
    let mut wrong = Vec::new();
    for (_, kind, op) in ops().filter(|o| !o.0) {
        match golden.get(op) {
            Some(&want) if hash(&run(op, kind)) == want => {}
            _ => wrong.push(op),
        }
    }
    assert!(wrong.is_empty(), "not as on a GPU: {wrong:#?}");
}

/// Compares approximations with f64, within the error bounds of the PTX manual.
#[test]
fn approximations() {
    type Case = (&'static str, fn(f64) -> f64, f64);
    let cases: [Case; 9] = [
        ("rcp.approx.f32 d, a", |x| 1.0 / x, 1.2e-7),
        ("sqrt.approx.f32 d, a", |x| x.abs().sqrt(), 1.2e-7),
        ("rsqrt.approx.f32 d, a", |x| 1.0 / x.abs().sqrt(), 2.4e-7),
        ("ex2.approx.f32 d, a", f64::exp2, 2.4e-7),
        ("lg2.approx.f32 d, a", |x| x.abs().log2(), 2.4e-7),
        ("sin.approx.f32 d, a", f64::sin, 5e-7),
        ("cos.approx.f32 d, a", f64::cos, 5e-7),
        ("tanh.approx.f32 d, a", f64::tanh, 5e-4),
        ("div.full.f32 d, a, b", |x| x / 0.3f32 as f64, 2.4e-7),
    ];
    for (op, truth, allowed) in cases {
        let root = op.contains("sqrt") || op.contains("lg2");
        let xs: Vec<f32> = (1..=COUNT).map(|i| (i as f32 - 512.5) * 0.0061).collect();
        let xs: Vec<f32> = xs.iter().map(|x| if root { x.abs() } else { *x }).collect();
        let words = xs.iter().flat_map(|x| [x.to_bits().into(), 0.3f32.to_bits().into(), 0u64]);
        let h = Host::new(&kernel(op));
        let (input, out) = (h.upload(&words.collect::<Vec<u64>>()), h.zeros::<u64>(2 * COUNT));
        h.run("k", (COUNT / 256) as u32, 256, args![input, out]);
        for (x, got) in xs.iter().zip(h.download::<u64>(out, 2 * COUNT).chunks(2)) {
            let (got, want) = (f64::from(f32::from_bits(got[1] as u32)), truth(f64::from(*x)));
            let error = (got - want).abs() / want.abs().max(1.0);
            assert!(error <= allowed, "{op} of {x}: {got}, not {want}");
        }
    }
}

#[test]
#[ignore = "a tool: writes kernels and inputs for a GPU"]
fn write() {
    std::fs::create_dir_all(folder()).unwrap();
    for kind in ['i', 'f', 'd', 'h'] {
        let bytes: Vec<u8> = inputs(kind).into_iter().flat_map(u64::to_le_bytes).collect();
        std::fs::write(folder().join(format!("{kind}.in")), bytes).unwrap();
    }
    for (i, (_, kind, op)) in ops().enumerate() {
        std::fs::write(folder().join(format!("{i:04}{kind}.ptx")), kernel(op)).unwrap();
    }
}

#[test]
#[ignore = "a tool: compares with a GPU's results and writes ops.golden"]
fn update() {
    let common = include_str!("ops.txt").lines().count();
    let mut golden = [String::new(), String::new()];
    for (i, (approximate, kind, op)) in ops().enumerate() {
        let Ok(bytes) = std::fs::read(folder().join(format!("{i:04}{kind}.out"))) else {
            println!("no result: {op}");
            continue;
        };
        let want: Vec<u64> =
            bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
        let (got, input) = (run(op, kind), inputs(kind));
        if approximate {
            println!("{:>10} ulp {op}", worst_ulp(&got, &want));
            continue;
        }
        golden[usize::from(i >= common)] += &format!("{:016x} {op}\n", hash(&want));
        let differ: Vec<usize> =
            (0..COUNT).filter(|&i| got[2 * i..][..2] != want[2 * i..][..2]).collect();
        if let Some(&i) = differ.first() {
            println!(
                "{op}: {} differ; {:x?} gives {:x?}, not {:x?}",
                differ.len(),
                &input[3 * i..][..3],
                &got[2 * i..][..2],
                &want[2 * i..][..2]
            );
        }
    }
    for (name, golden) in ["ops", "rare"].iter().zip(golden) {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/");
        std::fs::write(format!("{folder}{name}.golden"), golden).unwrap();
    }
}

/// Returns the largest distance of f32 results in units of the last place.
fn worst_ulp(got: &[u64], want: &[u64]) -> u32 {
    let order = |bits: u64| {
        let bits = bits as u32 as i32;
        if bits < 0 { i32::MIN - bits } else { bits }
    };
    let pairs = got.iter().zip(want).skip(1).step_by(2);
    pairs.map(|(&g, &w)| order(g).abs_diff(order(w))).max().unwrap_or(0)
}

#[test]
#[ignore = "a tool: lists the operations that do not load"]
fn unknown() {
    for (_, _, op) in ops() {
        match cuda_ptx::parse(&kernel(op)) {
            Err(error) => println!("{op}: {error}"),
            Ok(module) => {
                let memory = cuda_cpu::Memory::new(1 << 20);
                if let Err(error) = cuda_cpu::Program::load(&module, &memory) {
                    println!("{op}: {}", error.problems[0].reason);
                }
            }
        }
    }
}
