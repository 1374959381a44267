//! Parses directives of module scope and of functions: linkage, state spaces, attributes, pragmas and debug
//! information.

use crate::ast::{Location, Position};
use crate::error::Error;
use crate::lexer::{Cursor, Kind, Token};
use crate::words::Space;

/// Returns the state space that a directive such as `.global` names.
pub(crate) fn space(token: &Token<'_>) -> Option<Space> {
    Some(match token.text {
        ".global" => Space::Global,
        ".const" => Space::Const,
        ".shared" => Space::Shared,
        ".local" => Space::Local,
        ".param" => Space::Param,
        _ => return None,
    })
}

/// Whether a directive begins a new item of module scope.
pub(crate) fn starts_item(token: &Token<'_>) -> bool {
    const ITEMS: [&str; 9] =
        [".entry", ".func", ".file", ".section", ".loc", ".alias", ".tex", ".reg", ".weak"];
    token.kind == Kind::Dot
        && (ITEMS.contains(&token.text) || LINKAGE.contains(&token.text) || space(token).is_some())
}

/// The directives of linkage.
const LINKAGE: [&str; 6] = [".visible", ".weak", ".common", ".extern", ".hidden", ".internal"];

/// Skips directives of linkage. Returns whether one of them is `.extern`.
pub(crate) fn linkage(cur: &mut Cursor<'_>) -> bool {
    let mut external = false;
    while LINKAGE.contains(&cur.peek().text) {
        external |= cur.next().text == ".extern";
    }
    external
}

/// Skips an attribute such as `.attribute(.unified(1, 2))` before a name.
pub(crate) fn skip_attribute(cur: &mut Cursor<'_>) -> Result<(), Error> {
    if cur.eat_dot(".attribute") { cur.skip_balanced("(", ")") } else { Ok(()) }
}

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

/// Parses `.pragma "nounroll";` after the directive. Returns the text if there is only one.
pub(crate) fn pragma<'a>(cur: &mut Cursor<'a>) -> Result<Option<&'a str>, Error> {
    let first = cur.string("a string")?.text;
    let mut only = true;
    while cur.eat(",") {
        cur.string("a string")?;
        only = false;
    }
    cur.semicolon()?;
    Ok(Some(first).filter(|_| only))
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
