//! Sums the sizes of declared variables, without parsing instructions.
//!
//! These functions accept texts with unknown instructions, directives and types. A declaration that cannot be parsed is not
//! an error. It makes the size of its state space unknown.

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::footprint::Storage;
use crate::lexer::{Kind, Token};
use crate::parser::debug::location;
use crate::parser::declared::{Dimensions, declared_type};
use crate::parser::directive::{skip_attribute, space};
use crate::parser::initializer::initializer;
use crate::types::{ScalarType, Space};

/// Returns the state space of a directive that declares sized variables. `.param` is not one of them.
pub(crate) fn storage_space(token: &Token<'_>) -> Option<Space> {
    let space = space(token).filter(|_| token.kind == Kind::Dot)?;
    (space != Space::Param).then_some(space)
}

/// A variable whose size is known, and which this text defines.
pub(crate) struct DefinedVariable<'a> {
    pub(crate) name: &'a str,
    pub(crate) space: Space,
    pub(crate) bytes: u64,
    pub(crate) align: u32,
    /// The type of the elements, or of their components.
    pub(crate) ty: ScalarType,
}

/// Adds the variables of a declaration, from after its state space to its semicolon, and calls `each` with them. Returns
/// `false` if the declaration cannot be parsed. The cursor is then at the token that is not understood, so every token is
/// read once.
///
/// # Errors
/// If a parenthesis is not closed.
pub(crate) fn declaration<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
    storage: &mut Storage,
    each: &mut dyn FnMut(DefinedVariable<'a>),
) -> Result<bool, Error> {
    match variables(cur, space, external, storage, each) {
        Ok(()) => Ok(true),
        Err(error) => match error.kind {
            ErrorKind::Unterminated(_) => Err(error),
            // References to textures, samplers and surfaces are handles of the driver, without a size.
            ErrorKind::Unsupported(_) => Ok(false),
            _ => {
                storage.add_unknown(space);
                Ok(false)
            }
        },
    }
}

fn variables<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
    storage: &mut Storage,
    each: &mut dyn FnMut(DefinedVariable<'a>),
) -> Result<(), Error> {
    let ty = declared_type(cur)?;
    loop {
        skip_attribute(cur)?;
        let token = cur.ident("the name of a variable")?;
        let dims = Dimensions::parse(cur)?;
        let declared = match dims.bytes(&ty, &token) {
            Err(Error { kind: ErrorKind::Limit { .. }, .. }) => u64::MAX,
            bytes => bytes?,
        };
        let mut bytes = Some(declared).filter(|_| !dims.open);
        if cur.eat("=") {
            match dims.open {
                true => bytes = Some(initializer(cur, &ty, &dims)?.bytes),
                false => skip_initializer(cur)?,
            }
        }
        // An external variable counts in the module that defines it. `.extern .shared` is dynamic.
        if let (Some(bytes), false) = (bytes, external) {
            storage.add(space, bytes, ty.align());
            each(DefinedVariable { name: token.text, space, bytes, align: ty.align(), ty: ty.ty });
        }
        if !cur.eat(",") {
            return cur.semicolon();
        }
    }
}

/// Skips to the `,` or `;` after an initializer.
fn skip_initializer(cur: &mut Cursor<'_>) -> Result<(), Error> {
    let start = cur.peek();
    let mut depth = 0_usize;
    loop {
        let token = cur.peek();
        match token.text {
            _ if token.kind == Kind::End => {
                return Err(Error::at(&start, ErrorKind::Unterminated("an initializer")));
            }
            "{" | "(" => depth += 1,
            "}" | ")" => depth = depth.saturating_sub(1),
            "," | ";" if depth == 0 => return Ok(()),
            _ => {}
        }
        cur.next();
    }
}

/// Adds the variables that a body declares, from its `{` to its `}`.
///
/// # Errors
/// If the body, or a parenthesis in a declaration, is not closed.
pub(crate) fn body(cur: &mut Cursor<'_>, storage: &mut Storage) -> Result<(), Error> {
    cur.inside_block(|cur| {
        while !cur.at_end() {
            statement(cur, storage)?;
        }
        Ok(())
    })
}

/// Skips a label, a directive, or an instruction with its semicolon.
fn statement(cur: &mut Cursor<'_>, storage: &mut Storage) -> Result<(), Error> {
    let token = cur.next();
    match token.kind {
        Kind::Dot if token.text == ".loc" => _ = location(cur, 0),
        Kind::Dot => {
            let external = token.text == ".extern";
            let directive = if external { cur.peek() } else { token };
            if let Some(space) = storage_space(&directive) {
                if external {
                    cur.next();
                }
                declaration(cur, space, external, storage, &mut |_| {})?;
            }
        }
        Kind::Ident if cur.eat(":") => {}
        Kind::Ident => skip_instruction(cur, token),
        _ => {}
    }
    Ok(())
}

/// Skips past the `;` of an instruction, or to a declaration, or to the `}` of the block.
fn skip_instruction(cur: &mut Cursor<'_>, opcode: Token<'_>) {
    let mut depth = 0_usize;
    let mut before = opcode;
    loop {
        let token = cur.peek();
        match token.text {
            _ if token.kind == Kind::End => return,
            "{" => depth += 1,
            "}" if depth == 0 => return,
            "}" => depth -= 1,
            ";" => {
                cur.next();
                return;
            }
            // A modifier, as in `ld.shared`, follows without white space.
            _ if !before.touches(&token) && storage_space(&token).is_some() => return,
            _ => {}
        }
        before = cur.next();
    }
}
