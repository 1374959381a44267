//! What stands before the body of a kernel or function: name, parameters, tuning directives.

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::lexer::{Kind, Token};
use crate::parser::params::{NamedParam, param_list};

/// `.entry name (params) .maxntid 256`, without what makes it visible and without its body.
pub(crate) struct Header<'a> {
    pub(crate) name: Token<'a>,
    pub(crate) is_entry: bool,
    pub(crate) returns: Vec<NamedParam<'a>>,
    pub(crate) params: Vec<NamedParam<'a>>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
}

/// What to do with a directive nobody has heard of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// An error: it might change what the code means.
    Refuse,
    /// Step over it.
    Skip,
}

impl<'a> Header<'a> {
    /// Reads from `.entry` or `.func` to the `{` or `;`, which stays next.
    pub(crate) fn parse(cur: &mut Cursor<'a>, unknown: Unknown) -> Result<Self, Error> {
        let is_entry = match cur.next() {
            token if token.is_dot(".entry") => true,
            token if token.is_dot(".func") => false,
            token => return Err(Error::expected("`.entry` or `.func`", &token)),
        };
        let mut registers = 0;
        skip_attribute(cur)?;
        let mut returns = Vec::new();
        if !is_entry && cur.peek().is_punct("(") {
            returns = param_list(cur, &mut registers)?;
        }
        let name = cur.ident("the name of a function")?;
        let mut params = Vec::new();
        if cur.peek().is_punct("(") {
            params = param_list(cur, &mut registers)?;
        }
        let (max_threads, required_threads) = (None, None);
        let mut header = Self { name, is_entry, returns, params, max_threads, required_threads };
        while cur.peek().kind == Kind::Dot {
            header.tuning(cur, unknown)?;
        }
        let next = cur.peek();
        match next.is_punct("{") || next.is_punct(";") {
            true => Ok(header),
            false => Err(Error::expected("`{`, `;` or a directive", &next)),
        }
    }

    fn tuning(&mut self, cur: &mut Cursor<'a>, unknown: Unknown) -> Result<(), Error> {
        let token = cur.next();
        match token.text {
            ".maxntid" => self.max_threads = Some(dimensions(cur)?),
            ".reqntid" => self.required_threads = Some(dimensions(cur)?),
            ".reqnctapercluster" => _ = dimensions(cur)?,
            ".minnctapersm"
            | ".maxnctapersm"
            | ".maxnreg"
            | ".maxclusterrank"
            | ".abi_preserve"
            | ".abi_preserve_control" => _ = cur.integer32("a number")?,
            ".noreturn" | ".explicitcluster" | ".blocksareclusters" => {}
            ".attribute" => cur.skip_balanced("(", ")")?,
            ".pragma" => _ = pragma(cur)?,
            _ if unknown == Unknown::Skip => skip_arguments(cur),
            _ => return Err(Error::at(&token, ErrorKind::UnknownDirective)),
        }
        Ok(())
    }
}

/// `.attribute(.unified(1, 2))` before a name.
pub(crate) fn skip_attribute(cur: &mut Cursor<'_>) -> Result<(), Error> {
    if !cur.eat_dot(".attribute") {
        return Ok(());
    }
    match cur.peek().is_punct("(") {
        true => cur.skip_balanced("(", ")"),
        false => Err(Error::expected("`(`", &cur.peek())),
    }
}

/// `.pragma "nounroll";`, from behind the directive. Gives the text, if it is the only one.
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

/// `x`, `x, y` or `x, y, z`; what is missing is 1.
fn dimensions(cur: &mut Cursor<'_>) -> Result<[u32; 3], Error> {
    let mut all = [1; 3];
    for (i, one) in all.iter_mut().enumerate() {
        if i > 0 && !cur.eat(",") {
            break;
        }
        *one = cur.integer32("a number of threads or blocks")?;
    }
    Ok(all)
}

/// Steps to the next directive, `{`, `;` or the end.
fn skip_arguments(cur: &mut Cursor<'_>) {
    loop {
        let token = cur.peek();
        let stop = token.is_punct("{") || token.is_punct(";");
        if stop || matches!(token.kind, Kind::Dot | Kind::End) {
            return;
        }
        cur.next();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Facts = ([Option<[u32; 3]>; 2], usize);

    fn parse(text: &str, unknown: Unknown) -> Result<Facts, Error> {
        let header = Header::parse(&mut Cursor::new(text)?, unknown)?;
        Ok(([header.max_threads, header.required_threads], header.params.len()))
    }

    #[test]
    fn tuning_directives() {
        let text = ".entry k (.param .u32 n) .maxntid 256, 2 .reqntid 8, 4, 2 .minnctapersm 2
            .maxnreg 64 .explicitcluster .reqnctapercluster 2 .maxclusterrank 4 .pragma \"x\"; {";
        let threads = [Some([256, 2, 1]), Some([8, 4, 2])];
        assert_eq!(parse(text, Unknown::Refuse), Ok((threads, 1)));
    }

    #[test]
    fn unknown_directives_are_refused_or_skipped() {
        let text = ".entry k () .novelty 3, foo .maxntid 7 {";
        let error = parse(text, Unknown::Refuse).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PTX line 1, column 13: `.novelty` is not a directive known here"
        );
        assert_eq!(parse(text, Unknown::Skip), Ok(([Some([7, 1, 1]), None], 0)));
    }

    #[test]
    fn functions_may_lack_everything() {
        assert!(parse(".func f;", Unknown::Refuse).is_ok());
        assert!(
            parse(".func (.param .b32 r) f (.param .b64 a) .noreturn;", Unknown::Refuse).is_ok()
        );
        assert!(parse(".func .attribute(.unified(0x1, 0x2)) f ();", Unknown::Refuse).is_ok());
        for text in [".entry", ".func (", ".entry k", ".entry k ()", ".func .attribute f;"] {
            assert!(parse(text, Unknown::Skip).is_err(), "{text}");
        }
    }
}
