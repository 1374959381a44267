//! Directives of module scope: linkage, state spaces, attributes.

use crate::cursor::Cursor;
use crate::error::Error;
use crate::lexer::{Kind, Token};
use crate::types::Space;

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
