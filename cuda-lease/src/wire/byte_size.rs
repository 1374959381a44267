//! Sizes in bytes, as users write them.

/// A text that is no size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no size in bytes; write a number such as `1048576`, `512MiB` or `8GiB`")]
pub struct ByteSizeError {
    /// The text.
    pub text: String,
}

/// Reads a size: a whole number, with `KiB`, `MiB`, `GiB` or `TiB` behind it, or without.
///
/// ```
/// assert_eq!(cuda_lease::wire::parse_bytes("8GiB"), Ok(8 << 30));
/// ```
///
/// # Errors
/// The text is no size, or above `u64::MAX`.
pub fn parse_bytes(text: &str) -> Result<u64, ByteSizeError> {
    let error = || ByteSizeError { text: text.to_owned() };
    let units = [("KiB", 10), ("MiB", 20), ("GiB", 30), ("TiB", 40), ("", 0)];
    let found = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, shift)));
    let (number, shift) = found.ok_or_else(error)?;
    let number: u64 = number.trim().parse().map_err(|_| error())?;
    number.checked_mul(1 << shift).ok_or_else(error)
}
