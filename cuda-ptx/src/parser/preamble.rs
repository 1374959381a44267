//! Parses the first lines of a module: `.version`, `.target` and `.address_size`.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::lexer::{Kind, Token};

/// The address size without an `.address_size` directive.
const DEFAULT_ADDRESS_SIZE: u32 = 32;

/// The first version of PTX with `.address_size`.
const ADDRESS_SIZE_SINCE: (u32, u32) = (2, 3);

/// The first lines of a module.
pub(crate) struct Preamble {
    pub(crate) version: (u32, u32),
    pub(crate) target: Vec<String>,
    pub(crate) address_size: u32,
}

impl Preamble {
    /// Parses the preamble. The cursor must be at the start of the text.
    pub(crate) fn parse(cur: &mut Cursor<'_>) -> Result<Self, Error> {
        if !cur.eat_dot(".version") {
            return Err(Error::expected("`.version` at the start of a PTX text", &cur.peek()));
        }
        let version = version(&cur.of_kind(Kind::Number, "a version such as 8.7")?)?;
        if !cur.eat_dot(".target") {
            return Err(Error::expected("`.target`", &cur.peek()));
        }
        let mut target = vec![cur.ident("an architecture such as sm_80")?.text.to_owned()];
        while cur.eat(",") {
            target.push(cur.ident("a target option")?.text.to_owned());
        }
        let mut address_size = DEFAULT_ADDRESS_SIZE;
        if cur.eat_dot(".address_size") {
            let token = cur.peek();
            if version < ADDRESS_SIZE_SINCE {
                let why = "`.address_size` needs `.version 2.3`";
                return Err(Error::invalid(why, &token));
            }
            address_size = cur.integer32("32 or 64")?;
            if !matches!(address_size, 32 | 64) {
                return Err(Error::expected("32 or 64", &token));
            }
        }
        Ok(Self { version, target, address_size })
    }
}

fn version(token: &Token<'_>) -> Result<(u32, u32), Error> {
    let parts = token.text.split_once('.');
    let numbers = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.ok_or_else(|| Error::expected("a version such as 8.7", token))
}
