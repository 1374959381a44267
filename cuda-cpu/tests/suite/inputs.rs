//! Inputs by rule: the same bytes on every machine.
//!
//! | rule | elements |
//! |---|---|
//! | `zero`, `iota`, `const:V` | 0; 0, 1, 2, ..; V |
//! | `bits` | random bits |
//! | `below:N` | random integers from 0 to N - 1 (as floats, in types of floats) |
//! | `unit`, `pos` | random in (-1, 1), in (0, 1) |
//! | `lin:A:B` | evenly from A to B |
//! | `wide` | random floats of all magnitudes from 2^-20 to 2^20 |
//! | `special` | zeros, infinities, NaNs, extremes and neighbors of integers, then random bits |
//! | `perm` | a random permutation of 0 .. COUNT - 1 |
//! | `sorted:N` | `below:N`, ascending |
//! | `rows:K` | row offsets of a sparse matrix with 0 to K entries a row |

use half::{bf16, f16};

/// Types of arrays and scalars.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Type {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    Bf16,
    F32,
    F64,
}

const NAMES: [(&str, Type, usize, &str); 12] = [
    ("i8", Type::I8, 1, "|i1"),
    ("u8", Type::U8, 1, "|u1"),
    ("i16", Type::I16, 2, "<i2"),
    ("u16", Type::U16, 2, "<u2"),
    ("i32", Type::I32, 4, "<i4"),
    ("u32", Type::U32, 4, "<u4"),
    ("i64", Type::I64, 8, "<i8"),
    ("u64", Type::U64, 8, "<u8"),
    ("f16", Type::F16, 2, "<f2"),
    ("bf16", Type::Bf16, 2, "<V2"),
    ("f32", Type::F32, 4, "<f4"),
    ("f64", Type::F64, 8, "<f8"),
];

impl Type {
    pub(crate) fn named(name: &str) -> Self {
        NAMES.iter().find(|n| n.0 == name).unwrap_or_else(|| panic!("no type: {name}")).1
    }

    pub(crate) fn name(self) -> &'static str {
        NAMES[self as usize].0
    }

    pub(crate) fn size(self) -> usize {
        NAMES[self as usize].2
    }

    /// Returns the type's name in an `.npy` file.
    pub(crate) fn descr(self) -> &'static str {
        NAMES[self as usize].3
    }

    pub(crate) fn is_float(self) -> bool {
        self as usize >= Self::F16 as usize
    }

    /// Returns the number of mantissa bits without the leading one.
    fn mantissa(self) -> u32 {
        match self {
            Self::F16 => 10,
            Self::Bf16 => 7,
            Self::F32 => 23,
            Self::F64 => 52,
            _ => 0,
        }
    }

    /// Returns the bytes of a number rounded to this type.
    pub(crate) fn bytes_of(self, x: f64) -> Vec<u8> {
        match self {
            Self::F16 => f16::from_f64(x).to_le_bytes().to_vec(),
            Self::Bf16 => bf16::from_f64(x).to_le_bytes().to_vec(),
            Self::F32 => (x as f32).to_le_bytes().to_vec(),
            Self::F64 => x.to_le_bytes().to_vec(),
            _ => (x as i128).to_le_bytes()[..self.size()].to_vec(),
        }
    }

    pub(crate) fn scalar(self, text: &str) -> Vec<u8> {
        if self.is_float() {
            return self.bytes_of(text.parse().unwrap_or_else(|_| panic!("a number: {text}")));
        }
        let hex = text.strip_prefix("0x").map(|digits| i128::from_str_radix(digits, 16));
        let value: i128 = hex.unwrap_or_else(|| text.parse()).unwrap_or_else(|_| panic!("{text}"));
        value.to_le_bytes()[..self.size()].to_vec()
    }

    /// Returns the number that some bytes represent.
    pub(crate) fn value(self, bytes: &[u8]) -> f64 {
        let mut wide = [0; 16];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u128::from_le_bytes(wide);
        let up = 128 - 8 * self.size() as u32;
        match self {
            Self::F16 => f16::from_bits(bits as u16).to_f64(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Self::F32 => f64::from(f32::from_bits(bits as u32)),
            Self::F64 => f64::from_bits(bits as u64),
            Self::I8 | Self::I16 | Self::I32 | Self::I64 => (((bits << up) as i128) >> up) as f64,
            _ => bits as f64,
        }
    }
}

/// Returns a struct's bytes: each field at its own alignment, the whole padded to the largest.
pub(crate) fn layout(fields: &[(Type, String)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (ty, value) in fields {
        bytes.resize(bytes.len().next_multiple_of(ty.size()), 0);
        bytes.extend(ty.scalar(value));
    }
    let align = fields.iter().map(|(ty, _)| ty.size()).max().unwrap_or(1);
    bytes.resize(bytes.len().next_multiple_of(align), 0);
    bytes
}

/// Returns the `index`-th number of a random sequence (splitmix64).
pub(crate) fn random(seed: u64, index: u64) -> u64 {
    let mut z = (seed << 32).wrapping_add(index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns the array for a rule.
pub(crate) fn make(ty: Type, rule: &str, count: usize, seed: u64) -> Vec<u8> {
    let mut words = rule.split(':');
    let rule = words.next().unwrap_or_default();
    let parameters: Vec<f64> = words.map(|w| w.parse().unwrap()).collect();
    let r = |i: usize| random(seed, i as u64);
    let numbers = |f: &dyn Fn(usize) -> f64| (0..count).flat_map(|i| ty.bytes_of(f(i))).collect();
    let below = |i: usize| (r(i) >> 11).checked_rem(parameters[0] as u64).unwrap_or(0);
    match rule {
        "zero" => vec![0; count * ty.size()],
        "iota" => numbers(&|i| i as f64),
        "const" => numbers(&|_| parameters[0]),
        "bits" => (0..count).flat_map(|i| r(i).to_le_bytes()[..ty.size()].to_vec()).collect(),
        "below" => numbers(&|i| below(i) as f64),
        "unit" => numbers(&|i| fraction(ty, r(i)) * if r(i) & 1 != 0 { -1.0 } else { 1.0 }),
        "pos" => numbers(&|i| fraction(ty, r(i))),
        "lin" => {
            let [from, to] = parameters[..] else { panic!("lin:A:B") };
            let step = (to - from) / (count.max(2) - 1) as f64;
            numbers(&|i| from + i as f64 * step)
        }
        "wide" => numbers(&|i| {
            let sign = if r(i) & 1 != 0 { -1.0 } else { 1.0 };
            let exponent = ((r(i) >> 1) % 41) as i32 - 20;
            sign * (1.0 + fraction(ty, r(i))) * 2f64.powi(exponent)
        }),
        "special" => special(ty, count, &r),
        "perm" => permutation(count, &r).into_iter().flat_map(|x| ty.bytes_of(x as f64)).collect(),
        "sorted" => {
            let mut values: Vec<u64> = (0..count).map(below).collect();
            values.sort_unstable();
            values.into_iter().flat_map(|x| ty.bytes_of(x as f64)).collect()
        }
        "rows" => {
            let mut sum = 0;
            let most = parameters[0] as u64 + 1;
            let offsets = (0..count).map(|i| {
                sum += if i == 0 { 0 } else { (r(i) >> 11) % most };
                sum
            });
            offsets.flat_map(|x| ty.bytes_of(x as f64)).collect()
        }
        _ => panic!("no rule: {rule}"),
    }
}

/// Returns a number in (0, 1) with as many bits as the type has, so that nothing is rounded.
fn fraction(ty: Type, r: u64) -> f64 {
    let bits = ty.mantissa().max(1);
    ((r >> (64 - bits)) as f64 + 0.5) / 2f64.powi(bits as i32)
}

fn permutation(count: usize, r: &dyn Fn(usize) -> u64) -> Vec<u64> {
    let mut values: Vec<u64> = (0..count as u64).collect();
    for i in (1..count).rev() {
        values.swap(i, ((r(i) >> 11) % (i as u64 + 1)) as usize);
    }
    values
}

/// Returns the elements of the rule `special`.
fn special(ty: Type, count: usize, r: &dyn Fn(usize) -> u64) -> Vec<u8> {
    let top = 8 * ty.size() as u32 - 1;
    let sign = 1u64 << top;
    let list: Vec<u64> = if ty.is_float() {
        let m = ty.mantissa();
        let exponent = (sign - 1) & !((1 << m) - 1);
        let number = |x: f64| {
            let mut wide = [0; 8];
            let bytes = ty.bytes_of(x);
            wide[..bytes.len()].copy_from_slice(&bytes);
            u64::from_le_bytes(wide)
        };
        let mut list = vec![
            0,
            exponent,
            exponent - 1,
            exponent | 1 << (m - 1),
            1,
            (1 << m) - 1,
            1 << m,
            (1 << m) + 1,
        ];
        list.extend([exponent | 3, 2 << m]);
        for x in [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 127.5, 128.0, 255.5, 32767.5, 65504.0] {
            list.extend([number(x) - 1, number(x), number(x) + 1]);
        }
        for x in [
            2147483647.0,
            2147483648.0,
            4294967295.0,
            4294967296.0,
            9.3e18,
            1.8e19,
            1e-7,
            1e-30,
            1e30,
        ] {
            list.extend([number(x).saturating_sub(1), number(x), number(x) + 1]);
        }
        list.iter().flat_map(|&x| [x & (sign - 1), x | sign]).collect()
    } else {
        let edges = (0..=top).flat_map(|i| [1u64 << i, (1u64 << i) - 1, (1u64 << i) + 1]);
        edges.flat_map(|x| [x, x.wrapping_neg()]).collect()
    };
    let value = |i: usize| list.get(i).copied().unwrap_or_else(|| r(i));
    (0..count).flat_map(|i| value(i).to_le_bytes()[..ty.size()].to_vec()).collect()
}
