//! The kernels of a PTX text and their parameters, without reading any body.

use crate::ast::Param;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::lexer::Kind;
use crate::parser::{Header, Preamble, Unknown, bare, file, skip_section};

/// A kernel and what it takes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Signature {
    /// The (mangled) name.
    pub name: String,
    /// Parameters, in order, each with its offset in the parameter block.
    pub params: Vec<Param>,
    /// `.maxntid x,y,z`.
    pub max_threads: Option<[u32; 3]>,
    /// `.reqntid x,y,z`.
    pub required_threads: Option<[u32; 3]>,
    /// Where it was declared.
    pub line: u32,
}

/// The kernels (`.entry`) of a PTX text, in order.
///
/// Bodies are stepped over, and so is every directive that is not known: a text with instructions
/// newer than this crate can still be listed, and launched on a GPU whose driver knows them.
///
/// # Errors
/// If the text does not start like PTX, a kernel's parameter list cannot be read, or a block, comment
/// or string has no end.
pub fn signatures(text: &str) -> Result<Vec<Signature>, Error> {
    let mut cur = Cursor::new(text)?;
    Preamble::parse(&mut cur)?;
    let mut list = Vec::new();
    while !cur.at_end() {
        let token = cur.peek();
        match token.text {
            ".entry" => list.extend(kernel(&mut cur)?),
            ".file" => {
                cur.next();
                file(&mut cur)?;
            }
            ".section" => {
                cur.next();
                skip_section(&mut cur)?;
            }
            ".visible" | ".weak" | ".common" | ".extern" => _ = cur.next(),
            _ => skip_item(&mut cur)?,
        }
    }
    Ok(list)
}

/// A kernel with a body; one without is declared here and lives elsewhere.
fn kernel(cur: &mut Cursor<'_>) -> Result<Option<Signature>, Error> {
    let header = Header::parse(cur, Unknown::Skip)?;
    if cur.eat(";") {
        return Ok(None);
    }
    cur.skip_balanced("{", "}")?;
    Ok(Some(Signature {
        name: header.name.text.to_owned(),
        params: bare(header.params),
        max_threads: header.max_threads,
        required_threads: header.required_threads,
        line: header.name.line,
    }))
}

/// Steps over a variable, a function or an unknown directive: to behind a semicolon or a function's
/// body, or to the next linkage directive or kernel.
fn skip_item(cur: &mut Cursor<'_>) -> Result<(), Error> {
    let function = cur.next().is_dot(".func");
    let mut initialiser = false;
    loop {
        let token = cur.peek();
        if token.kind == Kind::End || matches!(token.text, ".entry" | ".visible" | ".extern") {
            return Ok(());
        } else if token.is_punct("{") {
            cur.skip_balanced("{", "}")?;
            if function || !initialiser {
                return Ok(());
            }
        } else {
            initialiser |= token.is_punct("=");
            cur.next();
            if token.is_punct(";") {
                return Ok(());
            }
        }
    }
}
