//! The type and shape of an array.

use std::fmt;

use crate::dtype::Dtype;

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
