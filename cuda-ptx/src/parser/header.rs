//! Parses the header of a kernel or function: name, parameters and tuning directives.

use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::lexer::{Kind, Token};
use crate::parser::directive::{skip_attribute, starts_item};
use crate::parser::params::{NamedParam, param_list};

/// The header of a kernel or function, `.entry name (params) .maxntid 256`, without linkage directives.
pub(crate) struct Header<'a> {
    pub(crate) name: Token<'a>,
    pub(crate) is_entry: bool,
    pub(crate) returns: Vec<NamedParam<'a>>,
    pub(crate) params: Vec<NamedParam<'a>>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) required_cluster: Option<[u32; 3]>,
}

/// The treatment of unknown directives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unknown {
    /// Refuse it, because it may change the meaning of the code.
    Refuse,
    /// Skip it.
    Skip,
}

impl<'a> Header<'a> {
    /// Parses from `.entry` or `.func` to the `{` or `;`, which is not consumed.
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
        let mut header = Self {
            name,
            is_entry,
            returns,
            params,
            max_threads: None,
            required_threads: None,
            required_cluster: None,
        };
        while cur.peek().kind == Kind::Dot && !starts_item(&cur.peek()) {
            header.tuning(cur, unknown)?;
        }
        // Old compilers write no semicolon behind a prototype.
        let next = cur.peek();
        match next.is_punct("{")
            || next.is_punct(";")
            || next.kind == Kind::End
            || starts_item(&next)
        {
            true => Ok(header),
            false => Err(Error::expected("`{`, `;` or a directive", &next)),
        }
    }

    /// Skips a directive behind the parameters.
    fn tuning(&mut self, cur: &mut Cursor<'a>, unknown: Unknown) -> Result<(), Error> {
        let token = cur.next();
        match token.text {
            ".maxntid" => self.max_threads = Some(dimensions(cur)?),
            ".reqntid" => self.required_threads = Some(dimensions(cur)?),
            ".reqnctapercluster" => self.required_cluster = Some(dimensions(cur)?),
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

/// Parses `x`, `x, y` or `x, y, z`. Omitted dimensions are 1.
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

/// Skips to the next directive, `{`, `;` or the end.
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

    type Facts = ([Option<[u32; 3]>; 3], usize);

    fn parse(text: &str, unknown: Unknown) -> Result<Facts, Error> {
        let header = Header::parse(&mut Cursor::new(text)?, unknown)?;
        let Header { max_threads, required_threads, required_cluster, params, .. } = header;
        Ok(([max_threads, required_threads, required_cluster], params.len()))
    }

    #[test]
    fn tuning_directives() {
        let text = ".entry k (.param .u32 n) .maxntid 256, 2 .reqntid 8, 4, 2 .minnctapersm 2
            .maxnreg 64 .explicitcluster .reqnctapercluster 2 .maxclusterrank 4 .pragma \"x\"; {";
        let dimensions = [Some([256, 2, 1]), Some([8, 4, 2]), Some([2, 1, 1])];
        assert_eq!(parse(text, Unknown::Refuse), Ok((dimensions, 1)));
    }

    #[test]
    fn unknown_directives_are_refused_or_skipped() {
        let text = ".entry k () .novelty 3, foo .maxntid 7 {";
        let error = parse(text, Unknown::Refuse).unwrap_err();
        assert_eq!(
            error.to_string(),
            "PTX line 1, column 13: unknown or misplaced directive `.novelty`"
        );
        assert_eq!(parse(text, Unknown::Skip), Ok(([Some([7, 1, 1]), None, None], 0)));
    }

    #[test]
    fn all_parts_of_a_function_header_are_optional() {
        assert!(parse(".func f;", Unknown::Refuse).is_ok());
        assert!(
            parse(".func (.param .b32 r) f (.param .b64 a) .noreturn;", Unknown::Refuse).is_ok()
        );
        assert!(parse(".func .attribute(.unified(0x1, 0x2)) f ();", Unknown::Refuse).is_ok());
        for text in [".entry", ".func (", ".entry k 7", ".entry k () x", ".func .attribute f;"] {
            assert!(parse(text, Unknown::Skip).is_err(), "{text}");
        }
    }

    #[test]
    fn attribute_without_a_list_is_refused() {
        for (text, found) in [
            (".entry k () .attribute { {", "`{`"),
            (".entry k () .attribute 7 .maxntid 8 {", "`7`"),
            (".entry k () .attribute) {", "`)`"),
            (".func .attribute f;", "`f`"),
            (".entry k () .attribute", "the end of the text"),
        ] {
            let error = parse(text, Unknown::Refuse).unwrap_err().to_string();
            let expected = format!("expected an opening bracket, found {found}");
            assert!(error.ends_with(&expected), "{text}: {error}");
        }
        assert!(parse(".entry k () .attribute(.x(1), (2)) {", Unknown::Refuse).is_ok());
    }
}
