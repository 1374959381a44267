//! Parses addresses in packed structures, which are written byte by byte: `{0xFF(x), 0xFF00(x), ..}`.

use crate::error::{Error, ErrorKind};
use crate::lexer::Token;

/// The size of an address in bytes.
const BYTES: u32 = 8;

/// An address: the name, the addend, and whether it is generic.
pub(crate) type Address<'a> = (Token<'a>, i64, bool);

/// An address of which some bytes are parsed.
pub(crate) struct MaskedAddress<'a> {
    /// The offset of the first byte in the variable.
    pub(crate) at: u64,
    pub(crate) address: Address<'a>,
    first: Token<'a>,
    written: u32,
}

impl<'a> MaskedAddress<'a> {
    /// Creates an address from its lowest byte.
    pub(crate) fn start(
        at: u64,
        first: Token<'a>,
        mask: u64,
        address: Address<'a>,
    ) -> Result<Self, Error> {
        Self { at, address, first, written: 0 }.extend(at, &first, mask, address)
    }

    /// Adds the next byte.
    pub(crate) fn extend(
        mut self,
        at: u64,
        token: &Token<'a>,
        mask: u64,
        (name, addend, generic): Address<'a>,
    ) -> Result<Self, Error> {
        let (first, first_addend, first_generic) = self.address;
        let same = (name.text, addend, generic) == (first.text, first_addend, first_generic);
        let next = self.at.saturating_add(u64::from(self.written));
        if !same || at != next || mask != 0xFF << (8 * self.written) {
            return Err(unsupported(token));
        }
        self.written += 1;
        Ok(self)
    }

    pub(crate) fn is_complete(&self) -> bool {
        self.written == BYTES
    }

    /// Returns the error for an incomplete address.
    pub(crate) fn incomplete(&self) -> Error {
        unsupported(&self.first)
    }
}

fn unsupported(token: &Token<'_>) -> Error {
    Error::at(token, ErrorKind::Unsupported("masks other than the eight bytes of one address"))
}
