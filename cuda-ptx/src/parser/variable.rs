//! Parses declarations of variables, at module scope and in functions.

use crate::ast::Variable;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::lexer::Token;
use crate::limits::MAX_VARIABLE_BYTES;
use crate::parser::declared::{DeclaredType, Dimensions, declared_type};
use crate::parser::directive::skip_attribute;
use crate::parser::initializer::{RawInit, initializer};
use crate::types::Space;

/// A variable with its name token and its unresolved initializer.
pub(crate) struct DeclaredVariable<'a> {
    pub(crate) token: Token<'a>,
    /// The variable, with an empty `init`.
    pub(crate) variable: Variable,
    pub(crate) init: Vec<RawInit<'a>>,
}

/// Parses `.align 4 .b8 a[8] = {1, 2}, b;` after the state space, with the semicolon.
pub(crate) fn variables<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
) -> Result<Vec<DeclaredVariable<'a>>, Error> {
    let ty = declared_type(cur)?;
    let mut list = Vec::new();
    loop {
        list.push(variable(cur, space, external, &ty)?);
        if !cur.eat(",") {
            cur.expect(";", "`;`, `,`, `[` or `=`")?;
            return Ok(list);
        }
    }
}

fn variable<'a>(
    cur: &mut Cursor<'a>,
    space: Space,
    external: bool,
    ty: &DeclaredType,
) -> Result<DeclaredVariable<'a>, Error> {
    skip_attribute(cur)?;
    let token = cur.ident("the name of a variable")?;
    let dims = Dimensions::parse(cur)?;
    let mut size = Some(dims.bytes(ty, &token)?).filter(|_| !dims.open);
    let mut init = Vec::new();
    if cur.eat("=") {
        if external {
            let why = "an `.extern` variable cannot have an initializer";
            return Err(Error::invalid(why, &token));
        }
        let read = initializer(cur, ty, &dims)?;
        if read.bytes > MAX_VARIABLE_BYTES {
            return Err(Error::limit("MAX_VARIABLE_BYTES", MAX_VARIABLE_BYTES, &token));
        }
        init = read.pieces;
        size = Some(size.unwrap_or(read.bytes));
    }
    let variable = Variable {
        name: token.text.to_owned(),
        space,
        ty: ty.ty,
        align: ty.align(),
        size,
        init: Vec::new(),
        external,
        line: token.line,
    };
    Ok(DeclaredVariable { token, variable, init })
}
