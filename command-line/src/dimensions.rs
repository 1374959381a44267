//! The shape of a launch: `X[,Y[,Z]]`.

/// The sizes in x, y and z.
pub type Dimensions = [u32; 3];

/// Parses `X`, `X,Y` or `X,Y,Z`. Omitted numbers are 1.
///
/// # Errors
/// The part that is not a size, in words.
pub fn dimensions(text: &str) -> Result<Dimensions, String> {
    let mut dimensions = [1; 3];
    let parts: Vec<_> = text.split(',').collect();
    if parts.len() > dimensions.len() {
        return Err(format!("{} dimensions given, the limit is 3", parts.len()));
    }
    for (dimension, part) in dimensions.iter_mut().zip(parts) {
        let number = |_| {
            format!(
                "`{part}` is not an integer from 1 to {}; separate dimensions by commas, as in 4,4",
                u32::MAX
            )
        };
        *dimension = part.parse().map_err(number)?;
        if *dimension == 0 {
            return Err("a dimension cannot be 0; the least is 1".into());
        }
    }
    Ok(dimensions)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_dimensions_are_1() {
        assert_eq!(dimensions("4"), Ok([4, 1, 1]));
        assert_eq!(dimensions("4,5"), Ok([4, 5, 1]));
        assert_eq!(dimensions("4,5,4294967295"), Ok([4, 5, u32::MAX]));
    }

    #[test]
    fn invalid_dimensions_are_refused() {
        for text in ["", "0", "1,0", "1,2,3,4", "1,", "-1", "4x4", " 4", "4294967296"] {
            assert!(dimensions(text).is_err(), "{text:?}");
        }
    }
}
