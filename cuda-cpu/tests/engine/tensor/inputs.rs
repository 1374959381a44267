//! Inputs for fragments that reveal the summation of a tensor core. They are the same on every machine.

/// The type of a matrix element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Elem {
    /// Random bits, for integers of any width.
    Bits,
    /// A float: the number of exponent bits and mantissa bits, and its size in bits. Unused low bits are ignored.
    Float(u32, u32, u32),
}

pub(crate) const F16: Elem = Elem::Float(5, 10, 16);
pub(crate) const BF16: Elem = Elem::Float(8, 7, 16);
pub(crate) const TF32: Elem = Elem::Float(8, 10, 32);
pub(crate) const F32: Elem = Elem::Float(8, 23, 32);
pub(crate) const F64: Elem = Elem::Float(11, 52, 64);
pub(crate) const E4M3: Elem = Elem::Float(4, 3, 8);
pub(crate) const E5M2: Elem = Elem::Float(5, 2, 8);

/// Maximum number of registers of a fragment.
pub(crate) const REGISTERS: usize = 8;

/// Returns a random number for an index.
pub(crate) fn random(index: u64) -> u64 {
    let mut z = index.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0x1234_5678_9ABC_DEF1);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Returns registers in memory order: by tile, register and lane. They have 64 bits for f64, otherwise 32.
pub(crate) fn fragments(elem: Elem, role: u8, tiles: usize) -> Vec<u8> {
    let wide = elem == F64;
    let mut bytes = Vec::new();
    for tile in 0..tiles {
        for register in 0..REGISTERS {
            for lane in 0..32 {
                let at = Place { tile, register, lane, role };
                let word = word(elem, &at, wide);
                bytes.extend(&word.to_le_bytes()[..if wide { 8 } else { 4 }]);
            }
        }
    }
    bytes
}

/// As [`fragments`], with the metadata of a sparse matrix in the last register: four bits for the two positions that
/// are present in each group of four.
pub(crate) fn with_metadata(elem: Elem, role: u8, tiles: usize, pairs: &[u64]) -> Vec<u8> {
    let mut bytes = fragments(elem, role, tiles);
    for tile in 0..tiles {
        for lane in 0..32 {
            let r = random(1 << 60 | (tile * 32 + lane) as u64);
            let nibble = |i: u64| pairs[(r >> (8 * i) & 0xFF) as usize % pairs.len()] << (4 * i);
            let word = (0..8).fold(0, |word, i| word | nibble(i));
            let at = ((tile * REGISTERS + REGISTERS - 1) * 32 + lane) * 4;
            bytes[at..at + 4].copy_from_slice(&(word as u32).to_le_bytes());
        }
    }
    bytes
}

struct Place {
    tile: usize,
    register: usize,
    lane: usize,
    role: u8,
}

fn word(elem: Elem, at: &Place, wide: bool) -> u64 {
    let bits = if wide { 64 } else { 32 };
    let place = ((at.tile * REGISTERS + at.register) * 32 + at.lane) as u64 * 4;
    let key = place + (u64::from(at.role) << 40);
    let Elem::Float(exponent, mantissa, size) = elem else {
        return integers(at, random(key));
    };
    (0..bits / size).fold(0, |word, i| {
        let r = random(key + u64::from(i));
        // Elements of the same row, for sums that cancel.
        let row = (at.tile * 64 + at.lane / 4 * 2 + at.register % 2) as u64;
        let shared = random((row << 8 | u64::from(at.role)) + (1 << 50));
        let odd = (at.lane as u64 + u64::from(i)) & 1;
        let one = float((exponent, mantissa), at, r, shared, odd);
        let unused = if size == 32 { 31 - exponent - mantissa } else { 0 };
        let noise = if at.tile & 1 == 1 { r >> 40 & ((1 << unused) - 1) } else { 0 };
        word | (one << unused | noise) << (i * size)
    })
}

/// Returns a number of the kind that this tile tests.
fn float((e, m): (u32, u32), at: &Place, r: u64, shared: u64, odd: u64) -> u64 {
    let bias = (1i64 << (e - 1)) - 1;
    let (top, fraction) = ((1i64 << e) - 1, r & ((1 << m) - 1));
    let (sign, pick) = (r >> 63, (r >> 52 & 0x7FF) as i64);
    let make = |sign: u64, exponent: i64, fraction: u64| {
        sign << (e + m) | (exponent.clamp(0, top) as u64) << m | fraction
    };
    let accumulator = at.role == 2;
    // The square of this number is near the smallest result, if results are as wide as factors or have 32 bits.
    let least = bias - if e == 8 { 75 } else { bias / 2 + i64::from(m) / 2 };
    match at.tile % 13 {
        0 => r & (u64::MAX >> (63 - e - m)),
        1 => make(sign, bias - 3 + pick % 7, fraction),
        2 => make(sign, pick % top, fraction),
        3 if accumulator => make(sign, bias - 20 + pick % 24, fraction),
        3 => {
            let fraction = (shared ^ (r & u64::from(r >> 20 & 3 == 0))) & ((1 << m) - 1);
            make((at.role as u64 & 1) * odd, bias - 2 + (shared >> 58 & 3) as i64, fraction)
        }
        4 => make(sign, if pick % 4 == 0 { bias - 8 + pick / 4 % 16 } else { pick % 3 }, fraction),
        5 if pick % 4 != 0 => make(sign, 0, 0),
        5 => make(sign, bias - 12 + pick % 24, fraction),
        6 => make(sign, bias - 14 + pick % 24, 0),
        7 if accumulator => make(sign, bias - 32 + pick % 44, fraction),
        7 => make(sign, bias, fraction),
        8 => make(sign, top - 1 - pick % 4, fraction),
        // Infinities, NaNs and zeros among other numbers.
        9 if pick % 16 < 3 => {
            let (exponent, fraction) = [(top, 0), (top, fraction | 1), (0, 0)][pick as usize % 16];
            make(sign, exponent, fraction)
        }
        9 => make(sign, bias - 8 + pick / 16 % 16, fraction),
        // Results near zero, of either sign.
        10 | 11 if accumulator => make(sign, 0, fraction & (pick as u64 & 7)),
        10 => make(sign, least - 4 + pick % 8, fraction),
        11 => make(u64::from(at.role), least - 8 + pick % 7, fraction),
        _ if accumulator => make(sign, bias - 26 + pick % 52, fraction),
        _ => make(sign, bias - 13 + pick % 26, fraction),
    }
}

/// Returns random bits, or extreme bytes with accumulators near the bounds.
fn integers(at: &Place, r: u64) -> u64 {
    match (at.tile % 4, at.role) {
        (0, _) | (1, 2) => r,
        (_, 2) => [0x7FFF_FFFF, 0x8000_0000][(r >> 33 & 1) as usize] ^ (r >> 40 & 0x7FFF),
        _ => (0..4).fold(0, |w, i| w << 8 | [0x80, 0x7F, 0xFF, 0x88][(r >> (i * 2) & 3) as usize]),
    }
}
