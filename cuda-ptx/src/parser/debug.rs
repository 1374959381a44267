//! Parses directives for debuggers (`.file`, `.loc`, `.section`) and the pragma `used_bytes_mask`.

use crate::ast::{Location, Position};
use crate::cursor::Cursor;
use crate::error::Error;
use crate::lexer::Kind;

/// Parses `.file 1 "path"` after the directive, with an optional time stamp and size.
pub(crate) fn file(cur: &mut Cursor<'_>) -> Result<(u32, String), Error> {
    let index = cur.integer32("the index of a file")?;
    let path = cur.string("the path of a file")?.text;
    while cur.peek().is_punct(",") && cur.peek_at(1).kind == Kind::Number {
        cur.next();
        cur.integer("a number")?;
    }
    Ok((index, path.trim_matches('"').to_owned()))
}

/// Parses `.loc 1 20 3` after the directive, with optional `function_name` and `inlined_at`.
pub(crate) fn location(cur: &mut Cursor<'_>, instruction: u32) -> Result<Location, Error> {
    let Position { file, line, column } = position(cur)?;
    let mut inlined_at = None;
    while cur.eat(",") {
        match cur.ident("`function_name` or `inlined_at`")? {
            token if token.text == "function_name" => {
                cur.ident("a label")?;
                if cur.eat("+") {
                    cur.integer("a number")?;
                }
            }
            token if token.text == "inlined_at" => inlined_at = Some(position(cur)?),
            token => return Err(Error::expected("`function_name` or `inlined_at`", &token)),
        }
    }
    Ok(Location { instruction, file, line, column, inlined_at })
}

fn position(cur: &mut Cursor<'_>) -> Result<Position, Error> {
    let file = cur.integer32("the index of a file")?;
    let line = cur.integer32("a line")?;
    Ok(Position { file, line, column: cur.integer32("a column")? })
}

/// Returns the mask of a pragma `used_bytes_mask 0xF0F`. Returns `None` for other pragmas and for invalid masks.
pub(crate) fn used_bytes(pragma: &str) -> Option<u64> {
    let mask = pragma.trim_matches('"').strip_prefix("used_bytes_mask")?.trim();
    match mask.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => mask.parse().ok(),
    }
}

/// Skips `.section .debug_str { .. }` after the directive.
pub(crate) fn skip_section(cur: &mut Cursor<'_>) -> Result<(), Error> {
    if !matches!(cur.peek().kind, Kind::Dot | Kind::Ident) {
        return Err(Error::expected("the name of a section", &cur.peek()));
    }
    cur.next();
    cur.skip_balanced("{", "}")
}
