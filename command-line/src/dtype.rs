//! The types of scalars and of arrays.

use std::fmt;

/// A numeric type that the command line and `.npy` files can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    /// A byte that is 0 or 1.
    Bool,
    /// A signed integer of 8 bits.
    I8,
    /// An unsigned integer of 8 bits.
    U8,
    /// A signed integer of 16 bits.
    I16,
    /// An unsigned integer of 16 bits.
    U16,
    /// A signed integer of 32 bits.
    I32,
    /// An unsigned integer of 32 bits.
    U32,
    /// A signed integer of 64 bits.
    I64,
    /// An unsigned integer of 64 bits.
    U64,
    /// A float of 16 bits.
    F16,
    /// A bfloat16: the upper half of an `f32`.
    Bf16,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
}

/// Each type with its name on the command line and its `descr` in `.npy` files, in the order of the variants.
const NAMES: [(Dtype, &str, &str); 13] = [
    (Dtype::Bool, "bool", "|b1"),
    (Dtype::I8, "i8", "|i1"),
    (Dtype::U8, "u8", "|u1"),
    (Dtype::I16, "i16", "<i2"),
    (Dtype::U16, "u16", "<u2"),
    (Dtype::I32, "i32", "<i4"),
    (Dtype::U32, "u32", "<u4"),
    (Dtype::I64, "i64", "<i8"),
    (Dtype::U64, "u64", "<u8"),
    (Dtype::F16, "f16", "<f2"),
    // numpy has no name for the `bfloat16` of ml_dtypes and writes a void type of 2 bytes.
    (Dtype::Bf16, "bf16", "<V2"),
    (Dtype::F32, "f32", "<f4"),
    (Dtype::F64, "f64", "<f8"),
];

impl Dtype {
    /// Returns all names on the command line, separated by spaces.
    pub fn all() -> String {
        NAMES.map(|(_, name, _)| name).join(" ")
    }

    /// Returns the type with this name on the command line.
    pub fn named(name: &str) -> Option<Self> {
        NAMES.iter().find(|(_, known, _)| *known == name).map(|(dtype, ..)| *dtype)
    }

    /// Returns the type with this `descr` in an `.npy` file.
    ///
    /// # Errors
    /// The reason why there is none, in words.
    pub fn described(descr: &str) -> Result<Self, String> {
        let unsupported = || format!("the dtype `{descr}` is not supported");
        let kind = descr.strip_prefix(['<', '>', '|', '=']).ok_or_else(unsupported)?;
        let known = NAMES.iter().find(|(.., known)| known[1..] == *kind);
        let dtype = known.map(|(dtype, ..)| *dtype).ok_or_else(unsupported)?;
        if descr.starts_with('>') && dtype.size() > 1 {
            return Err(format!("the dtype `{descr}` is big-endian; save it as little-endian"));
        }
        Ok(dtype)
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.names().1
    }

    /// The `descr` in an `.npy` file.
    pub fn descr(self) -> &'static str {
        self.names().2
    }

    /// The size of one element in bytes.
    pub const fn size(self) -> usize {
        match self {
            Dtype::Bool | Dtype::I8 | Dtype::U8 => 1,
            Dtype::I16 | Dtype::U16 | Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::I32 | Dtype::U32 | Dtype::F32 => 4,
            Dtype::I64 | Dtype::U64 | Dtype::F64 => 8,
        }
    }

    fn names(self) -> (Self, &'static str, &'static str) {
        // The table is in the order of the variants, as a test checks.
        NAMES[self as usize]
    }
}

/// The maximum number of dimensions of an array, which is the limit of numpy 1.
pub const MAX_DIMENSIONS: usize = 32;

/// The type and shape of an array. The size in bytes fits in `isize`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArrayType {
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: usize,
}

impl ArrayType {
    /// Creates an array type. Like numpy, refuses a shape that is too large even if one of its dimensions is 0.
    ///
    /// # Errors
    /// The limit that the shape exceeds, in words.
    pub fn new(dtype: Dtype, shape: Vec<usize>) -> Result<Self, String> {
        if shape.len() > MAX_DIMENSIONS {
            return Err(format!("more than {MAX_DIMENSIONS} dimensions, which is the limit"));
        }
        let whole = shape
            .iter()
            .try_fold(dtype.size(), |bytes, &length| bytes.checked_mul(length.max(1)))
            .filter(|bytes| isize::try_from(*bytes).is_ok());
        let whole = whole
            .ok_or_else(|| format!("the array is larger than the limit of {} bytes", isize::MAX))?;
        let bytes = if shape.contains(&0) { 0 } else { whole };
        Ok(Self { dtype, shape, bytes })
    }

    /// The type of the elements.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The length of each dimension.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The size of the array in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl fmt::Display for ArrayType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<_> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "{}:{}", self.dtype.name(), shape.join("x"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_matches_variants_and_sizes() {
        for (index, (dtype, name, descr)) in NAMES.into_iter().enumerate() {
            assert_eq!(dtype as usize, index);
            assert_eq!(Dtype::named(name), Some(dtype));
            assert_eq!(Dtype::described(descr), Ok(dtype));
            assert_eq!(descr[2..], dtype.size().to_string());
        }
    }

    #[test]
    fn unsupported_descrs_are_refused() {
        for descr in ["", "<", "é4", "<c8", "|S4", "<U3", "|O", "<f16", "V2", "|V8", "<M8[ns]"] {
            let error = Dtype::described(descr).unwrap_err();
            assert!(error.contains("not supported"), "{error}");
        }
        assert!(Dtype::described(">f4").unwrap_err().contains("big-endian"));
        assert_eq!(Dtype::described(">i1"), Ok(Dtype::I8));
        assert_eq!(Dtype::described("=i4"), Ok(Dtype::I32));
        assert_eq!(Dtype::named("f8"), None);
    }

    fn bytes(shape: &[usize]) -> Option<usize> {
        ArrayType::new(Dtype::F32, shape.to_vec()).ok().map(|array| array.bytes())
    }

    #[test]
    fn size_in_bytes_does_not_overflow() {
        assert_eq!(bytes(&[]), Some(4));
        assert_eq!(bytes(&[3, 5]), Some(60));
        assert_eq!(bytes(&[3, 0, 5]), Some(0));
        assert_eq!(bytes(&[usize::MAX]), None);
        assert_eq!(bytes(&[usize::MAX, usize::MAX, 0]), None);
        assert_eq!(bytes(&[0, 1 << 61]), None);
        assert_eq!(bytes(&[1; MAX_DIMENSIONS]), Some(4));
        assert_eq!(bytes(&[1; MAX_DIMENSIONS + 1]), None);
    }

    #[test]
    fn displays_as_on_the_command_line() {
        let array = ArrayType::new(Dtype::Bf16, vec![32, 8]).unwrap();
        assert_eq!(array.to_string(), "bf16:32x8");
    }
}
