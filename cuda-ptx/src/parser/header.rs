//! Parses the header of a kernel or function: name, parameter lists and tuning directives.

use crate::ast::{Param, RegId};
use crate::error::{Error, ErrorKind};
use crate::lexer::{Cursor, Kind, Token};
use crate::limits::MAX_PARAMETER_BYTES;
use crate::parser::directive::{linkage, pragma, skip_attribute, starts_item};
use crate::parser::variable::{DeclaredType, Dimensions, declared_type};
use crate::words::ParamType;

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

/// A parameter and the token that names it.
pub(crate) struct NamedParam<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) param: Param,
}

/// Parses `(.param .u64 a, .reg .b32 b)`. Register parameters are numbered from `registers` on.
pub(crate) fn param_list<'a>(
    cur: &mut Cursor<'a>,
    registers: &mut u32,
) -> Result<Vec<NamedParam<'a>>, Error> {
    cur.expect("(", "`(`")?;
    let mut list: Vec<NamedParam<'a>> = Vec::new();
    if cur.eat(")") {
        return Ok(list);
    }
    loop {
        let end = list.last().map_or(0, |last| last.param.offset + last.param.size);
        list.push(param(cur, end, registers)?);
        if cur.eat(")") {
            return Ok(list);
        }
        cur.expect(",", "`,` or `)`")?;
    }
}

fn param<'a>(
    cur: &mut Cursor<'a>,
    end_of_last: u32,
    registers: &mut u32,
) -> Result<NamedParam<'a>, Error> {
    linkage(cur);
    let register = cur.eat_dot(".reg");
    if !register && !cur.eat_dot(".param") {
        return Err(Error::expected("`.param` or `.reg`", &cur.peek()));
    }
    let ty = declared_type(cur)?;
    let token = cur.ident("the name of a parameter")?;
    let dims = Dimensions::parse(cur)?;
    let bytes = if dims.open { 0 } else { dims.bytes(&ty, &token)? };
    let offset = u64::from(end_of_last).next_multiple_of(u64::from(ty.align()));
    let within =
        |number| u32::try_from(number).ok().filter(|_| offset + bytes <= MAX_PARAMETER_BYTES);
    let (Some(size), Some(offset)) = (within(bytes), within(offset)) else {
        return Err(Error::limit("MAX_PARAMETER_BYTES", MAX_PARAMETER_BYTES, &token));
    };
    let param = Param {
        name: token.text.to_owned(),
        ty: ty.ty,
        param_type: param_type(&ty, &dims, size),
        align: ty.align(),
        size,
        offset,
        lanes: ty.lanes,
        pointer: ty.pointer,
        register: register.then_some(RegId(*registers)),
    };
    *registers += if register { ty.lanes } else { 0 };
    Ok(NamedParam { token, param })
}

/// Returns the type of a parameter of `bytes` bytes, 0 for `[]`.
fn param_type(ty: &DeclaredType, dims: &Dimensions, bytes: u32) -> ParamType {
    let element = ty.ty;
    match dims.known.is_empty() && !dims.open && ty.lanes == 1 {
        true => ParamType::Scalar(element),
        false => ParamType::Array { element, count: bytes / element.size() },
    }
}

/// Returns the parameters without their tokens.
pub(crate) fn bare(list: Vec<NamedParam<'_>>) -> Vec<Param> {
    list.into_iter().map(|named| named.param).collect()
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

    fn params(text: &str) -> Result<Vec<Param>, Error> {
        param_list(&mut Cursor::new(text)?, &mut 0).map(bare)
    }

    #[test]
    fn parameters_are_placed_at_their_alignment() {
        let text = "(.param .u8 a, .param .align 16 .b8 b[20], .param .u16 c, .param .f64 d,
            .param .u64 .ptr .global .align 64 e)";
        let offsets: Vec<_> = params(text).unwrap().iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(offsets, [(0, 1), (16, 20), (36, 2), (40, 8), (48, 8)]);
    }

    #[test]
    fn parameter_types_are_parsed() {
        let text =
            "(.param .f32 a, .param .align 8 .b8 b[24], .param .u32 c[2][3], .param .v4 .f32 d,
            .param .b8 e[1], .param .b8 f[])";
        let params = params(text).unwrap();
        let types: Vec<_> = params.iter().map(|p| p.param_type.to_string()).collect();
        assert_eq!(types, ["f32", "b8[24]", "u32[6]", "f32[4]", "b8[1]", "b8[]"]);
        assert!(params.iter().all(|p| p.param_type.size() == u64::from(p.size)));
    }

    #[test]
    fn registers_and_unsized_parameters() {
        let params = params("(.reg .b32 %a, .param .b8 _[], .reg .pred %p)").unwrap();
        let registers: Vec<_> = params.iter().map(|p| p.register).collect();
        assert_eq!(registers, [Some(RegId(0)), None, Some(RegId(1))]);
        assert_eq!(params[1].size, 0);
    }

    #[test]
    fn invalid_parameter_lists_are_refused() {
        for text in ["", "(", "(.param)", "(.param .u32)", "(.param .u32 a", "(.param .u32 a,)"] {
            assert!(params(text).is_err(), "{text}");
        }
        assert!(params("(.param .b8 a[1<<60])").is_err());
        assert!(params("(.param .b8 a[1<<19], .param .b8 b[1<<20])").is_err());
        assert!(params("(.param .align 3 .b8 a)").is_err());
    }
}
