//! The kernels of the sweep: inputs computed from their index, one instruction, and a hash of its results.

use std::fmt::Write;

/// Number of threads of a block.
pub(crate) const THREADS: u32 = 256;
/// Number of rounds in which a block processes a chunk of values.
pub(crate) const ROUNDS: u32 = 64;
pub(crate) const CHUNK: u64 = THREADS as u64 * ROUNDS as u64;
/// Number of values for an instruction whose operands have more than 16 bits.
const MANY: u64 = 1 << 22;

/// An instruction and the types of its sources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) name: String,
    pub(crate) sources: Vec<String>,
}

impl Form {
    /// Parses a line as in `cvt.rn.f16.f32 f32`.
    pub(crate) fn new(line: &str) -> Self {
        let mut words = line.split_whitespace().map(str::to_owned);
        Self { name: words.next().unwrap(), sources: words.collect() }
    }

    /// Returns the number of values of a sweep: all 16-bit values, or [`MANY`].
    pub(crate) fn count(&self) -> u64 {
        match Kind::of(&self.sources[0]) {
            Kind::Short | Kind::Pair => 1 << 16,
            _ => MANY,
        }
    }

    /// Returns whether it has 2^32 inputs.
    pub(crate) fn has_32_bits(&self) -> bool {
        self.sources.len() == 1 && bits(&self.sources[0]) == 32
    }

    pub(crate) fn result(&self) -> &str {
        let types = |name: &'_ &str| {
            name.starts_with(['u', 's', 'f', 'b', 'e', 't'])
                && name.ends_with(|c: char| c.is_ascii_digit())
        };
        match self.name.contains(".pack.") {
            true => "b32",
            false => self.name.split('.').skip(1).find(types).unwrap(),
        }
    }

    /// Returns the instruction on `A`, `B` and `C`, with its result in `R`.
    fn text(&self) -> String {
        let mut text = String::new();
        let result = bits(self.result()).max(16);
        let mut operands = vec![format!("r{result}")];
        for (source, from) in self.sources.iter().zip(["A", "B", "C"]) {
            // The register of a byte may be wider.
            let width = bits(source).max(16);
            match width {
                64 => operands.push(from.into()),
                _ => {
                    _ = writeln!(text, "cvt.u{width}.u64 {from}{width}, {from};");
                    operands.push(format!("{from}{width}"));
                }
            }
        }
        _ = writeln!(text, "{} {};", self.name, operands.join(", "));
        text + &match result {
            64 => "mov.b64 R, r64;".into(),
            width => format!("cvt.u64.u{width} R, r{width};"),
        }
    }

    /// Returns the module. `sums` adds up the hashes of each block's chunk of results. `every` does the same with the
    /// indices themselves as inputs. `values` stores operands and results.
    pub(crate) fn module(&self) -> String {
        let kind = Kind::of(&self.sources[0]);
        let edges: Vec<String> = kind.edges().iter().map(|edge| format!("{edge:#x}")).collect();
        let mut inputs = kind.input('A', 0, 0);
        if self.sources.len() > 1 {
            inputs += &kind.input('B', 0x5851_F42D_4C95_7F2D, 6);
        }
        if self.sources.len() > 2 {
            inputs += &Kind::of(&self.sources[2]).input('C', 0x1405_7B7E_F767_814F, 3);
        }
        let text = self.text();
        let (sums, every) =
            (summing("sums", &inputs, &text), summing("every", "mov.b64 A, i;", &text));
        format!(
            ".version 8.4\n.target sm_90\n.address_size 64
.global .align 8 .b64 edges[64] = {{{}}};
{sums}{every}
.visible .entry values(.param .u64 out, .param .u64 first, .param .u32 all) {{
{REGISTERS}
mul.wide.u32 s, block, {THREADS}; add.u64 i, i, s; mov.b64 B, 0;
{inputs}
ld.param.u32 m, [all]; setp.ne.u32 p, m, 0; @p mov.b64 A, i;
{text}
mul.wide.u32 s, block, {THREADS}; cvt.u64.u32 h, thread; add.u64 s, s, h;
mul.lo.u64 s, s, 24; add.u64 o, o, s;
st.global.u64 [o], A; st.global.u64 [o+8], B; st.global.u64 [o+16], R; ret; }}\n",
            edges.join(", ")
        )
    }
}

/// Returns an entry that adds up hashes. Its parameters are the output, the first index, and the rounds of a block.
fn summing(name: &str, inputs: &str, text: &str) -> String {
    format!(
        ".visible .entry {name}(.param .u64 out, .param .u64 first, .param .u32 rounds) {{
{REGISTERS}
ld.param.u32 left, [rounds];
cvt.u64.u32 s, left; cvt.u64.u32 t, block; mul.lo.u64 s, s, t; mul.lo.u64 s, s, {THREADS};
add.u64 i, i, s; mov.b64 sum, 0;
LOOP:
{inputs}
{text}
mul.lo.u64 h, i, 0xD1342543DE82EF95; xor.b64 h, h, R; mul.lo.u64 h, h, 0xAEF17502108EF2D9;
shr.u64 s, h, 29; xor.b64 h, h, s; add.u64 sum, sum, h;
add.u64 i, i, {THREADS}; sub.u32 left, left, 1; setp.ne.u32 p, left, 0;
@p bra LOOP;
mul.wide.u32 s, block, 8; add.u64 o, o, s; red.global.add.u64 [o], sum; ret; }}\n"
    )
}

const REGISTERS: &str = "\
.reg .b64 A, B, C, R, r64, i, o, h, s, t, z, sum;
.reg .b32 A32, B32, C32, r32, n, m, e, k, left, thread, block;
.reg .b16 A16, B16, C16, r16; .reg .pred p, q, few;
ld.param.u64 o, [out]; ld.param.u64 i, [first];
mov.u32 thread, %tid.x; mov.u32 block, %ctaid.x;
cvt.u64.u32 s, thread; add.u64 i, i, s;";

/// The kind of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// All 16-bit values.
    Short,
    /// All 16-bit values in one half of 32 bits, and arbitrary bits in the other.
    Pair,
    Integer,
    Single,
    Double,
}

impl Kind {
    fn of(ty: &str) -> Self {
        match ty {
            "f32" => Self::Single,
            "f64" => Self::Double,
            "f16x2" | "bf16x2" => Self::Pair,
            _ if bits(ty) > 16 => Self::Integer,
            _ => Self::Short,
        }
    }

    /// Returns code that computes the input of index `i`. The first inputs are edge cases, selected by the 6 bits above
    /// `shift`. The others are hashes of the index, in shapes that are hard to round.
    fn input(self, to: char, key: u64, shift: u32) -> String {
        let hash = format!(
            "add.u64 h, i, {key:#x}; mul.lo.u64 h, h, 0x9E3779B97F4A7C15;
shr.u64 s, h, 32; xor.b64 h, h, s; mul.lo.u64 h, h, 0xD6E8FEB86659FD93;
shr.u64 s, h, 32; xor.b64 h, h, s; mul.lo.u64 h, h, 0xD6E8FEB86659FD93;
shr.u64 s, h, 32; xor.b64 h, h, s; mul.lo.u64 s, h, 0xFF51AFD7ED558CCD; shr.u64 t, s, 33; xor.b64 s, s, t;\n"
        );
        let shaped = match self {
            Self::Short => return format!("mov.b64 {to}, i;\n"),
            Self::Pair => {
                return format!(
                    "{hash}and.b64 {to}, i, 0xFFFF; shl.b64 h, h, 16; or.b64 {to}, {to}, h;\n"
                );
            }
            Self::Integer => INTEGERS.to_owned(),
            // Exponents from far below f16's denormals to above all integers, and from below f32's denormals.
            Self::Single => floats(97, 97, "0x807FFFFF", 23),
            Self::Double => floats(231, 1023 - 160, "0x800FFFFFFFFFFFFF", 52),
        };
        format!(
            "{hash}cvt.u32.u64 m, s;\n{shaped}mov.b64 {to}, z;
setp.lt.u64 few, i, 4096; shr.u64 s, i, {shift}; and.b64 s, s, 63; shl.b64 s, s, 3; mov.u64 t, edges; add.u64 s, s, t;
@few ld.global.u64 {to}, [s];\n"
        )
    }

    fn edges(self) -> [u64; 64] {
        let mut edges = [0; 64];
        let some: Vec<u64> = match self {
            Self::Single => {
                EDGES_32.iter().flat_map(|&e| [e.into(), u64::from(e) | 1 << 31]).collect()
            }
            Self::Double => EDGES_64.iter().flat_map(|&e| [e, e | 1 << 63]).collect(),
            _ => [7, 8, 15, 16, 24, 31, 32, 53, 63]
                .iter()
                .flat_map(|&n| {
                    [1u64 << n, (1 << n) - 1, (1 << n) + 1, !0 << n, (!0 << n) - 1, (!0 << n) + 1]
                })
                .chain([0, 1, 2, 3, !0, 0xFF00, 0x8080, 0x100_0001, 0x1_8000_0000, 0x5555_5555])
                .collect(),
        };
        edges.iter_mut().zip(some).for_each(|(edge, value)| *edge = value);
        edges
    }
}

/// Integers of all sizes. Half of them end in zeros or are adjacent to such a number.
const INTEGERS: &str = "\
and.b32 n, m, 63; shr.s64 h, h, n; shr.u32 n, m, 8; and.b32 n, n, 63; shr.u64 t, h, n; shl.b64 z, t, n;
shr.u32 n, m, 14; and.b32 n, n, 3; cvt.u64.u32 t, n; sub.u64 t, t, 1; add.u64 z, z, t;
and.b32 n, m, 64; setp.ne.u32 p, n, 0; @p mov.b64 z, h;\n";

/// Floats: random bits, `exponents` exponents from `lowest` on, the same with zeros at the end of the fraction, and
/// numbers adjacent to those.
fn floats(exponents: u32, lowest: u32, keep: &str, fraction: u32) -> String {
    // For 32-bit numbers, the upper bits of the hash.
    let place = if fraction == 23 { "shr.u64 h, h, 32;" } else { "" };
    format!(
        "{place} shr.u32 e, m, 16; mul.lo.u32 e, e, {exponents}; shr.u32 e, e, 16; add.u32 e, e, {lowest};
cvt.u64.u32 t, e; shl.b64 t, t, {fraction}; and.b64 z, h, {keep}; or.b64 z, z, t;
shr.u32 n, m, 8; and.b32 n, n, 255; mul.lo.u32 n, n, {fraction}; shr.u32 n, n, 8;
and.b32 k, m, 3; setp.lt.u32 p, k, 2; @p mov.u32 n, 0; shr.u64 z, z, n; shl.b64 z, z, n;
and.b32 n, m, 4; shr.u32 n, n, 1; cvt.u64.u32 t, n; sub.u64 t, t, 1; setp.eq.u32 q, k, 3; @q add.u64 z, z, t;
setp.eq.u32 p, k, 0; @p mov.b64 z, h;\n"
    )
}

/// With and without a sign: zero, denormals, the largest and smallest numbers, infinity, NaN; 1 and its neighbors; the
/// bounds of integers, of f16, and of the numbers that `.ftz` and the function unit scale.
#[rustfmt::skip]
const EDGES_32: [u32; 32] = [
    0, 1, 0x7F_FFFF, 0x80_0000, 0x80_0001, 0x7F7F_FFFF, 0x7F80_0000, 0x7F80_0001, 0x7FC0_0000, 0x7FFF_FFFF,
    0x3F80_0000, 0x3F80_0001, 0x3F7F_FFFF, 0x3F00_0000, 0x3F7F_FFFE, 0x4B00_0001, 0x4F00_0000, 0x4EFF_FFFF,
    0x4F80_0000, 0x5F00_0000, 0x5F80_0000, 0x477F_E000, 0x477F_F000, 0x3880_0000, 0x3300_0000, 0x3300_0001,
    0x7E80_0000, 0x7E80_0001, 0x42FC_0000, 0x4300_0000, 0x7F7F_8000, 0x4020_0000,
];

/// The same for f64, with the bounds of conversions to f32 and halves.
#[rustfmt::skip]
const EDGES_64: [u64; 32] = [
    0, 1, 0xF_FFFF_FFFF_FFFF, 1 << 52, 0x7FEF_FFFF_FFFF_FFFF, 0x7FF << 52, (0x7FF << 52) + 1, 0xFFF << 51,
    !0 >> 1, 0x3FF << 52, (0x3FF << 52) + 1, (0x3FF << 52) - 1, 0x3FE << 52, 0x41DF_FFFF_FFC0_0000,
    0x41E0 << 48, 0x41F0 << 48, 0x43E0 << 48, 0x43F0 << 48, 0x4330_0000_0000_0001, 0x40EF_FC00_0000_0000,
    0x40EF_FE00_0000_0000, 0x3E60 << 48, (0x3E60 << 48) + 1, 0x47EF_FFFF_E000_0000, 0x47EF_FFFF_F000_0000,
    0x36A0 << 48, 0x3690 << 48, 0x380F_FFFF_E000_0000, 0x380F_FFFF_EFFF_FFFF, 0x380F_FFFF_F000_0000,
    0x7FD0 << 48, 0x7FE0 << 48,
];

/// Returns the size of a type in bits.
fn bits(ty: &str) -> u32 {
    match ty {
        "f16x2" | "bf16x2" | "tf32" => 32,
        "e4m3x2" | "e5m2x2" => 16,
        _ => ty.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap(),
    }
}
