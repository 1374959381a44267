//! Sizes in bytes as text, for URLs and configuration files.

use thiserror::Error;

/// The longest text that [`parse_bytes`] accepts, in bytes. An error quotes at most this much.
const MAX_TEXT: usize = 32;

/// The text is not a size in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ByteSizeError {
    /// The text is empty.
    #[error("the size is empty; write a number with a unit, for example 8GiB")]
    Empty,
    /// The text is longer than any size.
    #[error("the size has {length} bytes of text, the limit is 32; write for example 8GiB")]
    TooLong {
        /// The length of the text in bytes.
        length: usize,
    },
    /// The text does not begin with a whole number.
    #[error(
        "size {text:?} is not a whole number with an optional unit; write for example 8GiB, 1536MiB or 1000000"
    )]
    NotANumber {
        /// The text.
        text: String,
    },
    /// The unit is unknown.
    #[error(
        "size {text:?} has the unknown unit {unit:?}; use B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000)"
    )]
    UnknownUnit {
        /// The text.
        text: String,
        /// The part after the number.
        unit: String,
    },
    /// The size does not fit 64 bits.
    #[error("size {text:?} exceeds 18446744073709551615 bytes, the largest size")]
    TooLarge {
        /// The text.
        text: String,
    },
}

/// The number of bytes that the text states: a whole number, then an optional unit.
///
/// `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024. `KB`, `MB`, `GB`, `TB` are powers of 1000. No unit and `B` are
/// bytes. Upper and lower case are equal. Spaces around the text and before the unit are ignored. Fractions and
/// signs are errors.
///
/// ```
/// use cuda_lease::wire::parse_bytes;
///
/// assert_eq!(parse_bytes("512MiB"), Ok(512 << 20));
/// assert_eq!(parse_bytes("2GB"), Ok(2_000_000_000));
/// assert_eq!(parse_bytes("1000000"), Ok(1_000_000));
/// assert!(parse_bytes("1.5GiB").is_err());
/// ```
///
/// # Errors
/// See [`ByteSizeError`].
pub fn parse_bytes(text: &str) -> Result<u64, ByteSizeError> {
    let text = text.trim();
    if text.is_empty() {
        return Err(ByteSizeError::Empty);
    }
    if text.len() > MAX_TEXT {
        return Err(ByteSizeError::TooLong { length: text.len() });
    }
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let unit = unit.trim_start();
    if digits.is_empty() || unit.starts_with(['.', ',', '_']) {
        return Err(ByteSizeError::NotANumber { text: text.into() });
    }
    let scale: u64 = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        _ => return Err(ByteSizeError::UnknownUnit { text: text.into(), unit: unit.into() }),
    };
    // The digits are ASCII digits, so the only possible error is an overflow.
    let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(scale));
    bytes.ok_or_else(|| ByteSizeError::TooLarge { text: text.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_scale_the_number() {
        for (text, bytes) in [
            ("0", 0),
            ("1000000", 1_000_000),
            ("7B", 7),
            ("1KiB", 1 << 10),
            ("512MiB", 512 << 20),
            ("1GiB", 1 << 30),
            ("2TiB", 2 << 40),
            ("3kB", 3_000),
            ("4MB", 4_000_000),
            ("5gb", 5_000_000_000),
            ("6TB", 6_000_000_000_000),
            (" 8 GiB ", 8 << 30),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text), Ok(bytes), "{text:?}");
        }
    }

    #[test]
    fn nonsense_is_rejected() {
        for text in ["GiB", "-1", "+1", "1.5GiB", "1_000", "1,5", "0x10", "1e9", "8G", "1 2", "٣"]
        {
            assert!(parse_bytes(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_bytes("  "), Err(ByteSizeError::Empty));
        assert_eq!(parse_bytes(&"1".repeat(33)), Err(ByteSizeError::TooLong { length: 33 }));
    }

    #[test]
    fn overflow_is_an_error() {
        for text in ["18446744073709551616", "16777216TiB", "99999999999999999999999"] {
            assert_eq!(parse_bytes(text), Err(ByteSizeError::TooLarge { text: text.into() }));
        }
    }

    #[test]
    fn the_message_states_the_remedy() {
        let message = |text| parse_bytes(text).unwrap_err().to_string();
        assert!(message("1.5GiB").contains("1536MiB"));
        assert!(message("8G").contains("unknown unit \"G\""));
    }
}
