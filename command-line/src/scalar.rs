//! Converts numbers from text to bytes and back.

use half::{bf16, f16};

use crate::dtype::Dtype;

/// Parses `text` as a `dtype` and returns its bytes. Accepts decimal and `0x` integers, decimal floats, `inf` and
/// `nan`.
///
/// # Errors
/// If the value is out of range. It is never wrapped, and never rounded to infinity.
pub fn parse(dtype: Dtype, text: &str) -> Result<Vec<u8>, String> {
    macro_rules! integer {
        ($ty:ty) => {
            <$ty>::try_from(integer(text)?).map(|value| value.to_le_bytes().to_vec()).map_err(
                |_| {
                    let (least, most) = (<$ty>::MIN, <$ty>::MAX);
                    format!("`{text}` is out of range: {least} to {most}")
                },
            )
        };
    }
    macro_rules! float {
        ($ty:ty, $from:expr) => {{
            let value: $ty = $from;
            finite_if(text, value.is_finite() || value.is_nan())?;
            Ok(value.to_le_bytes().to_vec())
        }};
    }
    match dtype {
        Dtype::I8 => integer!(i8),
        Dtype::U8 => integer!(u8),
        Dtype::I16 => integer!(i16),
        Dtype::U16 => integer!(u16),
        Dtype::I32 => integer!(i32),
        Dtype::U32 => integer!(u32),
        Dtype::I64 => integer!(i64),
        Dtype::U64 => integer!(u64),
        Dtype::F16 => float!(f16, f16::from_f64(float(text)?)),
        Dtype::Bf16 => float!(bf16, bf16::from_f64(float(text)?)),
        Dtype::F32 => float!(f32, float(text)?),
        Dtype::F64 => float!(f64, float(text)?),
        Dtype::Bool => Err("bool is not a scalar type; write `u8=0` or `u8=1`".into()),
    }
}

/// Formats the bytes of a number, so that [`parse`] gives the same bytes for the text (but for the payload of a NaN).
///
/// # Panics
/// If `bytes` has not the size of `dtype`.
pub fn format(dtype: Dtype, bytes: &[u8]) -> String {
    macro_rules! number {
        ($ty:ty) => {{
            let mut array = [0; size_of::<$ty>()];
            array.copy_from_slice(bytes);
            <$ty>::from_le_bytes(array)
        }};
    }
    match dtype {
        Dtype::Bool => (number!(u8) != 0).to_string(),
        Dtype::I8 => number!(i8).to_string(),
        Dtype::U8 => number!(u8).to_string(),
        Dtype::I16 => number!(i16).to_string(),
        Dtype::U16 => number!(u16).to_string(),
        Dtype::I32 => number!(i32).to_string(),
        Dtype::U32 => number!(u32).to_string(),
        Dtype::I64 => number!(i64).to_string(),
        Dtype::U64 => number!(u64).to_string(),
        // `Debug` prints a number without a fraction as `1.0`.
        Dtype::F16 => format!("{:?}", number!(f16).to_f32()),
        Dtype::Bf16 => format!("{:?}", number!(bf16).to_f32()),
        Dtype::F32 => format!("{:?}", number!(f32)),
        Dtype::F64 => format!("{:?}", number!(f64)),
    }
}

fn integer(text: &str) -> Result<i128, String> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (digits, radix) = hex.map_or((digits, 10), |hex| (hex, 16));
    if digits.is_empty() || !digits.chars().all(|digit| digit.is_digit(radix)) {
        return Err(format!("`{text}` is not an integer"));
    }
    let value = i128::from_str_radix(digits, radix);
    let value = value.map_err(|_| format!("`{text}` is out of range"))?;
    Ok(if negative { -value } else { value })
}

fn float<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number"))
}

/// Returns an error if the value does not fit, unless `text` names infinity.
fn finite_if(text: &str, fits: bool) -> Result<(), String> {
    let digits = text.trim_start_matches(['+', '-']);
    let says_infinity = ["inf", "infinity"].iter().any(|word| digits.eq_ignore_ascii_case(word));
    if fits || says_infinity { Ok(()) } else { Err(format!("`{text}` is out of range")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(dtype: Dtype, text: &str) -> Option<Vec<u8>> {
        parse(dtype, text).ok()
    }

    #[test]
    fn integers_parse_up_to_their_limits() {
        assert_eq!(bytes(Dtype::I8, "-128"), Some(vec![0x80]));
        assert_eq!(bytes(Dtype::U8, "0xff"), Some(vec![0xff]));
        assert_eq!(bytes(Dtype::I16, "-0x10"), Some((-16i16).to_le_bytes().into()));
        assert_eq!(bytes(Dtype::U16, "+65535"), Some(vec![0xff; 2]));
        assert_eq!(bytes(Dtype::I32, "-7"), Some((-7i32).to_le_bytes().into()));
        assert_eq!(bytes(Dtype::U32, "0XFFFFFFFF"), Some(vec![0xff; 4]));
        assert_eq!(bytes(Dtype::I64, "-9223372036854775808"), Some(i64::MIN.to_le_bytes().into()));
        assert_eq!(bytes(Dtype::U64, "18446744073709551615"), Some(vec![0xff; 8]));
    }

    #[test]
    fn invalid_and_out_of_range_integers_are_refused() {
        let huge = "9".repeat(60);
        for text in ["", "-", "0x", "0x-1", "--1", "+-1", "1.0", "1e3", " 1", "1_0", "inf", "٣"] {
            assert!(parse(Dtype::I32, text).unwrap_err().contains("not an integer"), "{text}");
        }
        for (dtype, text) in [
            (Dtype::I8, "128"),
            (Dtype::U8, "-1"),
            (Dtype::I32, "0xffffffff"),
            (Dtype::U64, "18446744073709551616"),
            (Dtype::U64, &huge),
        ] {
            assert!(parse(dtype, text).unwrap_err().contains("out of range"), "{text}");
        }
    }

    #[test]
    fn floats_parse_in_every_width() {
        assert_eq!(bytes(Dtype::F32, "2.5"), Some(2.5f32.to_le_bytes().into()));
        assert_eq!(bytes(Dtype::F64, "-1e300"), Some((-1e300f64).to_le_bytes().into()));
        assert_eq!(bytes(Dtype::F16, "65504"), Some(f16::MAX.to_le_bytes().into()));
        assert_eq!(bytes(Dtype::Bf16, "1"), Some(bf16::ONE.to_le_bytes().into()));
        assert_eq!(bytes(Dtype::F32, "-inf"), Some(f32::NEG_INFINITY.to_le_bytes().into()));
        assert_eq!(bytes(Dtype::F16, "Infinity"), Some(f16::INFINITY.to_le_bytes().into()));
        let nan = bytes(Dtype::F32, "nan").and_then(|nan| nan.try_into().ok());
        assert!(f32::from_le_bytes(nan.unwrap()).is_nan());
    }

    #[test]
    fn invalid_and_out_of_range_floats_are_refused() {
        for text in ["", "x", "0x10", "1,5", " 1"] {
            assert!(parse(Dtype::F32, text).unwrap_err().contains("not a number"), "{text}");
        }
        for (dtype, text) in [
            (Dtype::F32, "1e39"),
            (Dtype::F64, "-1e309"),
            (Dtype::F16, "65520"),
            (Dtype::Bf16, "3.4e38"),
        ] {
            assert!(parse(dtype, text).unwrap_err().contains("out of range"), "{text}");
        }
        assert!(parse(Dtype::Bool, "1").is_err());
    }

    #[test]
    fn formatted_numbers_parse_to_the_same_bytes() {
        for (dtype, text) in [
            (Dtype::I8, "-128"),
            (Dtype::U16, "65535"),
            (Dtype::I64, "-9223372036854775808"),
            (Dtype::U64, "18446744073709551615"),
            (Dtype::F16, "0.33325195"),
            (Dtype::Bf16, "-2.0"),
            (Dtype::F32, "256.0"),
            (Dtype::F32, "inf"),
            (Dtype::F64, "1e-300"),
        ] {
            assert_eq!(format(dtype, &parse(dtype, text).unwrap()), text);
        }
        assert_eq!(format(Dtype::Bool, &[1]), "true");
    }
}
