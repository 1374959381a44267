//! Texts and their symbols: 0 is the line end, and 1 to 95 are the printable characters of ASCII.

use std::fmt;

use super::{Error, SYMBOLS};

/// The text of the training. `data/README.md` names its source.
const TEXT: &str = include_str!("data/holmes.txt");

/// Prompts for batches, one a line.
const PROMPTS: &str = include_str!("data/prompts.txt");

/// A text as symbols of the model. All are below [`SYMBOLS`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbols(Vec<u32>);

impl Symbols {
    /// Encodes a text.
    ///
    /// # Errors
    /// [`Error::Symbol`] for a character that is neither a line end nor printable ASCII.
    pub fn encode(text: &str) -> Result<Self, Error> {
        let symbol = |(position, character)| match character {
            '\n' => Ok(0),
            ' '..='~' => Ok(u32::from(character) - 31),
            _ => Err(Error::Symbol { character, position }),
        };
        text.chars().enumerate().map(symbol).collect::<Result<_, _>>().map(Self)
    }

    /// Wraps symbols from a device. Those that are out of range become line ends.
    pub(super) fn from_device(symbols: &[u32]) -> Self {
        let in_range = |&symbol: &u32| if (symbol as usize) < SYMBOLS { symbol } else { 0 };
        Self(symbols.iter().map(in_range).collect())
    }

    /// The symbols.
    pub fn as_slice(&self) -> &[u32] {
        &self.0
    }

    /// The number of symbols.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no symbols.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Writes the text.
impl fmt::Display for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        let character = |symbol| match symbol {
            0 => '\n',
            _ => char::from_u32(symbol + 31).unwrap_or('?'),
        };
        self.0.iter().try_for_each(|&symbol| f.write_char(character(symbol)))
    }
}

/// Returns the last tenth of the text, which is held out of the training.
///
/// # Errors
/// [`Error::Symbol`] if the embedded text is invalid.
pub fn held_out() -> Result<Symbols, Error> {
    let text = Symbols::encode(TEXT)?;
    Ok(Symbols(text.0[text.len() * 9 / 10..].to_vec()))
}

/// Iterates over the prompts for batches, without an end.
pub fn prompts() -> impl Iterator<Item = &'static str> {
    PROMPTS.lines().cycle()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_survive_encoding() -> Result<(), Error> {
        let text: String = std::iter::once('\n').chain(' '..='~').collect();
        let symbols = Symbols::encode(&text)?;
        assert_eq!(symbols.as_slice(), (0..SYMBOLS as u32).collect::<Vec<_>>());
        assert_eq!(symbols.to_string(), text);
        Ok(())
    }

    #[test]
    fn unknown_characters_are_named() {
        let error = Symbols::encode("The\u{e9}").unwrap_err().to_string();
        let expected = "character '\u{e9}' at position 3 is not a symbol of the model; \
                        write line ends and printable ASCII only";
        assert_eq!(error, expected);
    }
}
