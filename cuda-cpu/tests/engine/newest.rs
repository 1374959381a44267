//! Instructions of GPUs after the H200: packed f32, sums of halves and f32, and `redux` of f32. PTX defines them by
//! scalar operations, which were compared with an H200. Also forms that no GPU supports.

use crate::args;
use crate::host::Host;

const COUNT: usize = 4096;
const ROUNDS: [&str; 5] = ["", ".rn", ".rz", ".rm", ".rp"];

/// Returns a kernel with the 64-bit inputs `A`, `B` and `C` and the results `D` and `E`.
fn kernel(body: &str) -> String {
    format!(
        ".version 8.8\n.target sm_100a\n.address_size 64
.visible .entry k(.param .u64 in, .param .u64 out) {{
.reg .b64 A, B, C, D, E, i, o; .reg .b32 a, b, c, d, e, f, g, h, m; .reg .b16 x, y; .reg .b128 u, v; .reg .pred p;
ld.param.u64 i, [in]; ld.param.u64 o, [out];
mov.u32 m, %ctaid.x; mov.u32 a, %ntid.x; mov.u32 b, %tid.x; mad.lo.u32 m, m, a, b;
mad.wide.u32 i, m, 24, i; mad.wide.u32 o, m, 16, o;
ld.global.u64 A, [i]; ld.global.u64 B, [i+8]; ld.global.u64 C, [i+16];
{body}
st.global.v2.u64 [o], {{D, E}}; ret; }}\n"
    )
}

/// Pairs of numbers: special ones, numbers of similar magnitude, tiny ones, and random bits.
fn inputs() -> Vec<u64> {
    let special = [0, 1, 0x7F_FFFF, 0x80_0000, 0x3F80_0000, 0x7F7F_FFFF, 0x7F80_0000, 0x7FC0_1234];
    let mut state = 0x9E37_79B9_7F4A_7C15u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut word = || {
        let r = random();
        let bits = r as u32;
        let bits = match r >> 32 & 3 {
            0 => special[(r >> 40) as usize & 7] | bits & 1 << 31,
            1 => bits & 0x807F_FFFF | (120 + (r >> 40) as u32 % 16) << 23,
            2 => bits & 0x807F_FFFF | ((r >> 40) as u32 % 64) << 23,
            _ => bits,
        };
        u64::from(bits)
    };
    (0..3 * COUNT).map(|_| word() | word() << 32).collect()
}

/// Returns `D` and `E` of each thread.
fn run(body: &str) -> Vec<u64> {
    let h = Host::new(&kernel(body));
    let (input, out) = (h.upload(&inputs()), h.zeros::<u64>(2 * COUNT));
    h.run("k", (COUNT / 256) as u32, 256, args![input, out]);
    h.download(out, 2 * COUNT)
}

fn assert_same(body: &str) {
    for (i, pair) in run(body).chunks(2).enumerate() {
        assert_eq!(pair[0], pair[1], "thread {i} of {body}");
    }
}

#[test]
fn packed_f32_equals_two_scalars() {
    for (name, round, ftz) in ["add", "sub", "mul", "fma"].iter().flat_map(|name| {
        ROUNDS.iter().flat_map(move |round| ["", ".ftz"].map(move |ftz| (name, round, ftz)))
    }) {
        let fma = *name == "fma";
        if fma && round.is_empty() {
            continue;
        }
        let form = format!("{name}{round}{ftz}");
        let (third, low, high) = if fma { (", C", ", e", ", f") } else { ("", "", "") };
        assert_same(&format!(
            "mov.b64 {{a, b}}, A; mov.b64 {{c, d}}, B; mov.b64 {{e, f}}, C;
            {form}.f32 a, a, c{low}; {form}.f32 b, b, d{high}; mov.b64 E, {{a, b}};
            {form}.f32x2 D, A, B{third};"
        ));
    }
}

#[test]
fn mixed_sums_of_halves_and_f32() {
    for (half, round, sat) in ["f16", "bf16"].iter().flat_map(|half| {
        ROUNDS.iter().flat_map(move |round| ["", ".sat"].map(move |sat| (half, round, sat)))
    }) {
        let form = format!("{round}{sat}.f32");
        let mut body = format!(
            "mov.b64 {{a, b}}, A; mov.b64 {{c, d}}, C; cvt.u16.u32 x, b; shr.u32 b, b, 16; cvt.u16.u32 y, b;
            cvt.f32.{half} e, x; cvt.f32.{half} f, y;
            add{form}.{half} a, x, c; sub{form}.{half} b, y, d; mov.b64 D, {{a, b}};
            add{form} a, e, c; sub{form} b, f, d; mov.b64 E, {{a, b}};"
        );
        if !round.is_empty() {
            body += &format!(
                "fma{form}.{half} a, x, y, d; fma{form} b, e, f, d;
                cvt.u64.u32 A, a; xor.b64 D, D, A; cvt.u64.u32 A, b; xor.b64 E, E, A;"
            );
        }
        assert_same(&body);
    }
}

/// Two directed roundings in the same direction equal one, so the results are those of f32, rounded again.
#[test]
fn directed_fma_of_bf16() {
    for (round, relu, oob) in ["rz", "rm", "rp"].iter().flat_map(|round| {
        [("", ""), (".relu", ""), ("", ".oob"), (".relu", ".oob")].map(|(a, b)| (round, a, b))
    }) {
        let form = format!("fma.{round}{oob}{relu}");
        let clamp = if relu.is_empty() { "" } else { "max.NaN.f32 F0, F0, 0f00000000;" };
        let mut body = String::from(
            ".reg .b16 X<8>; .reg .b32 F<4>;
            mov.b64 {a, b}, A; mov.b64 {c, d}, B; mov.b64 {e, f}, C;
            and.b32 g, m, 7; setp.eq.u32 p, g, 1; @p or.b32 a, a, 0xFFFF;
            setp.eq.u32 p, g, 2; @p or.b32 c, c, 0xFFFF0000;
            mov.b32 {X0, X1}, a; mov.b32 {X2, X3}, c; mov.b32 {X4, X5}, e;",
        );
        for (a, b, c, d) in [("X0", "X2", "X4", "X6"), ("X1", "X3", "X5", "X7")] {
            body += &format!(
                "cvt.f32.bf16 F0, {a}; cvt.f32.bf16 F1, {b}; cvt.f32.bf16 F2, {c};
                fma.{round}.f32 F0, F0, F1, F2; {clamp} cvt.{round}.bf16.f32 {d}, F0;"
            );
            if !oob.is_empty() {
                body += &format!(
                    "setp.eq.u16 p, {a}, 0xFFFF; @p mov.b16 {d}, 0;
                    setp.eq.u16 p, {b}, 0xFFFF; @p mov.b16 {d}, 0;"
                );
            }
        }
        body += &format!(
            "mov.b64 E, {{X6, X7, X6, X7}}; {form}.bf16x2 d, a, c, e;
            {form}.bf16 X0, X0, X2, X4; {form}.bf16 X1, X1, X3, X5; mov.b32 f, {{X0, X1}};
            mov.b64 D, {{d, f}};"
        );
        assert_same(&body);
    }
}

#[test]
fn redux_of_f32() {
    let values: Vec<f32> =
        inputs().chunks(3).map(|three| f32::from_bits((three[0] >> 32) as u32)).collect();
    for (max, abs, nan) in (0..8).map(|i| (i & 1 != 0, i & 2 != 0, i & 4 != 0)) {
        let form = format!(
            "{}{}{}",
            if max { "max" } else { "min" },
            if abs { ".abs" } else { "" },
            if nan { ".NaN" } else { "" }
        );
        let got = run(&format!(
            "mov.b64 {{a, b}}, A; redux.sync.{form}.f32 c, b, -1; cvt.u64.u32 D, c; mov.u64 E, 0;"
        ));
        for (warp, got) in values.chunks(32).zip(got.chunks(64)) {
            // Zeros are ordered by their signs.
            let order =
                |x: f32| (x.to_bits() as i32) ^ (((x.to_bits() as i32) >> 31) as u32 >> 1) as i32;
            let numbers = warp.iter().map(|x| if abs { x.abs() } else { *x });
            let numbers: Vec<f32> = numbers.filter(|x| !x.is_nan()).collect();
            let best = match max {
                true => numbers.iter().copied().max_by_key(|x| order(*x)),
                false => numbers.iter().copied().min_by_key(|x| order(*x)),
            };
            let lost = nan && numbers.len() < warp.len();
            let want = best.filter(|_| !lost).map_or(0x7FFF_FFFF, f32::to_bits);
            assert!(got.iter().step_by(2).all(|&g| g == u64::from(want)), "{form} of {warp:?}");
        }
    }
}

#[test]
fn halves_of_the_timer() {
    let got = run("mov.u32 b, %globaltimer_hi; mov.u32 a, %globaltimer_lo; mov.b64 D, {a, b};
        mov.u64 E, %globaltimer;");
    for pair in got.chunks(2) {
        // The kernel takes less than a minute. The halves may be read on both sides of a carry.
        assert!(pair[1].abs_diff(pair[0]) < 60_000_000_000, "{pair:?}");
    }
}

/// Two workers increment a number at the same time. No increment is lost, and no half-written value is read.
#[test]
fn exchanges_of_128_bits_are_atomic() {
    let module = kernel(
        "ld.param.u64 i, [in]; mov.u64 D, 0; mov.u64 E, 0; ld.relaxed.gpu.global.b128 u, [i];
        LOOP: mov.b128 {A, B}, u; add.u64 C, A, 1; sub.u64 o, B, 1; mov.b128 v, {C, o};
        atom.global.cas.b128 v, [i], u, v; mov.b128 {C, o}, v;
        xor.b64 C, C, A; xor.b64 o, o, B; or.b64 C, C, o; mov.b128 u, v;
        setp.ne.u64 p, C, 0; @p bra LOOP; add.u64 D, A, B;
        ld.param.u64 o, [out]; mad.wide.u32 o, m, 16, o;",
    );
    let h = Host::with_pool(&module, 2);
    // Threads also read their 24 input bytes.
    let (input, out) = (h.zeros::<u64>(3 * COUNT), h.zeros::<u64>(2 * COUNT));
    h.run("k", (COUNT / 256) as u32, 256, args![input, out]);
    let counted = h.download::<u64>(input, 2);
    assert_eq!(counted, [COUNT as u64, (COUNT as u64).wrapping_neg()]);
    assert!(h.download::<u64>(out, 2 * COUNT).iter().all(|&sum| sum == 0));
}

#[test]
fn invalid_forms_are_rejected() {
    for body in [
        "add.sat.f32x2 D, A, B;",
        "min.f32x2 D, A, B;",
        "neg.f32x2 D, A;",
        "mad.rn.f32x2 D, A, B, C;",
        "mov.f32x2 D, A;",
        "mul.f32.f16 a, x, y;",
        "add.ftz.f32.f16 a, x, b;",
        "add.f32.f64 a, A, b;",
        "add.f32.f32 a, b, c;",
        "min.f32.f16 a, x, b;",
        "add.rz.ftz.f64 D, A, B;",
        "redux.sync.add.f32 a, b, -1;",
        "redux.sync.min.ftz.f32 a, b, -1;",
        "redux.sync.min.abs.s32 a, b, -1;",
        "set.lt.and.f16x2.f16x2 a, b, c;",
        "red.global.min.noftz.f16 [A], x;",
        "red.global.and.v2.f16 [A], {x, y};",
        "red.global.min.v2.f32 [A], {a, b};",
        "red.global.exch.b128 [A], u;",
        "atom.global.add.b128 u, [A], v;",
        "atom.global.exch.b128 u, [A], B;",
        "ld.global.v2.b128 {u, v}, [A];",
        "ld.global.b128 A, [B];",
        "st.global.b64 [A], u;",
        "mov.b128 u, {a, b, c};",
        "mov.v2.u32 {a, b}, %tid;",
        "mov.v4.u32 {a, b, c, d}, %laneid;",
        "mov.v4.pred {p, p, p, p}, %tid;",
        "mov.u16x2 a, b;",
        "selp.u16x2 a, b, c, p;",
        "fma.rz.f16 x, x, y, y;",
        "fma.rz.ftz.bf16 x, x, y, y;",
        "fma.rz.sat.bf16x2 a, b, c, d;",
        "add.rz.bf16 x, x, y;",
        "mov.b128 u, A;",
        "mov.b64 A, u;",
        "vadd.s32.s32.s32.min d, a, b;",
        "vadd.s32.s32.s32.min d.b0, a, b, c;",
        "vadd.s32.s32.s32 d, a, b, c;",
        "vset.s32.s32.lt.sat d, a, b;",
        "vmad.s32.s32.s32.shr8 d, a, b, c;",
        "vmad.s32.s32.s32.po d, -a, b, c;",
        "vmad.s32.s32.s32 d.b0, a, b, c;",
        "vadd2.s32.s32.s32.min d, a, b, c;",
        "mov.u64 D, %globaltimer_lo;",
    ] {
        assert!(Host::try_new(&kernel(body)).is_err(), "accepted: {body}");
    }
}
