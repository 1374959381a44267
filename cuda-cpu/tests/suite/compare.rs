//! Distances between results.

use crate::inputs::Type;

/// The differences between two arrays of results.
#[derive(Clone, Debug, Default)]
pub(crate) struct Difference {
    pub(crate) elements: usize,
    /// Number of elements whose bits differ.
    pub(crate) count: usize,
    /// The largest distance in units of the last place.
    pub(crate) ulp: u64,
    /// The largest such distance among elements that differ by more than the floor.
    pub(crate) ulp_beyond: u64,
    /// The first element with more than the permitted difference.
    pub(crate) first: Option<(usize, String)>,
}

/// Compares `got` with `want`. Elements that differ by at most `floor`, or by at most `ulp`, count as equal.
pub(crate) fn compare(ty: Type, got: &[u8], want: &[u8], ulp: u64, floor: f64) -> Difference {
    let size = ty.size();
    let mut d = Difference { elements: got.len() / size, ..Difference::default() };
    if got.len() != want.len() {
        d.count = d.elements;
        d.first = Some((0, format!("{} bytes, not {}", got.len(), want.len())));
        return d;
    }
    for (i, (g, w)) in got.chunks(size).zip(want.chunks(size)).enumerate() {
        if g == w {
            continue;
        }
        let apart = distance(ty, g, w);
        d.count += 1;
        d.ulp = d.ulp.max(apart);
        if ty.is_float() && (ty.value(g) - ty.value(w)).abs() <= floor {
            continue;
        }
        d.ulp_beyond = d.ulp_beyond.max(apart);
        if (apart > ulp || ulp == 0 && floor == 0.0) && d.first.is_none() {
            let text =
                format!("{:?} ({}) instead of {:?} ({})", ty.value(g), hex(g), ty.value(w), hex(w));
            d.first = Some((i, text));
        }
    }
    d
}

/// Returns the number of steps between two floats, also across zero. Different integers, or a NaN and a number, have
/// the maximum distance. Two NaNs have distance 0, because a function may pass on the NaN of any operand.
fn distance(ty: Type, g: &[u8], w: &[u8]) -> u64 {
    if ty.is_float() && ty.value(g).is_nan() && ty.value(w).is_nan() {
        return 0;
    }
    if !ty.is_float() || ty.value(g).is_nan() != ty.value(w).is_nan() {
        return u64::MAX;
    }
    let order = |bytes: &[u8]| {
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(wide);
        let sign = 1u64 << (8 * ty.size() - 1);
        let magnitude = i128::from(bits & (sign - 1));
        if bits & sign != 0 { -magnitude } else { magnitude }
    };
    u64::try_from(order(g).abs_diff(order(w))).unwrap_or(u64::MAX)
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().rev().map(|b| format!("{b:02x}")).collect()
}

/// Returns a hash of results, for the table of a GPU's results.
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|c| {
        let mut word = [0; 8];
        word[..c.len()].copy_from_slice(c);
        u64::from_le_bytes(word)
    });
    words.fold(0xCBF2_9CE4_8422_2325 ^ bytes.len() as u64, |h, v| {
        (h ^ v).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23)
    })
}

#[test]
fn distances() {
    let f = |x: f32| x.to_le_bytes();
    let ulp = |a: f32, b: f32| distance(Type::F32, &f(a), &f(b));
    assert_eq!(ulp(1.0, f32::from_bits(1f32.to_bits() + 3)), 3);
    assert_eq!(ulp(0.0, -0.0), 0);
    assert_eq!(ulp(f32::from_bits(1), -f32::from_bits(2)), 3);
    assert_eq!(ulp(f32::NAN, 1.0), u64::MAX);
    assert_eq!(ulp(f32::INFINITY, f32::MAX), 1);
    let d = compare(Type::F32, &f(1.0), &f(1.5), 1, 0.0);
    assert!(d.count == 1 && d.first.is_some());
    assert!(compare(Type::F32, &f(1.0), &f(1.5), 1, 0.5).first.is_none());
}
