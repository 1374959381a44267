//! Parses the parameter lists of kernels, functions and prototypes, and computes the offsets of parameters.

use crate::ast::Param;
use crate::cursor::Cursor;
use crate::error::Error;
use crate::instruction::RegId;
use crate::lexer::Token;
use crate::limits::MAX_PARAMETER_BYTES;
use crate::param_type::ParamType;
use crate::parser::declared::{DeclaredType, Dimensions, declared_type};
use crate::parser::directive::linkage;

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

    fn parse(text: &str) -> Result<Vec<Param>, Error> {
        param_list(&mut Cursor::new(text)?, &mut 0).map(bare)
    }

    #[test]
    fn parameters_are_placed_at_their_alignment() {
        let text = "(.param .u8 a, .param .align 16 .b8 b[20], .param .u16 c, .param .f64 d,
            .param .u64 .ptr .global .align 64 e)";
        let offsets: Vec<_> = parse(text).unwrap().iter().map(|p| (p.offset, p.size)).collect();
        assert_eq!(offsets, [(0, 1), (16, 20), (36, 2), (40, 8), (48, 8)]);
    }

    #[test]
    fn parameter_types_are_parsed() {
        let text =
            "(.param .f32 a, .param .align 8 .b8 b[24], .param .u32 c[2][3], .param .v4 .f32 d,
            .param .b8 e[1], .param .b8 f[])";
        let params = parse(text).unwrap();
        let types: Vec<_> = params.iter().map(|p| p.param_type.to_string()).collect();
        assert_eq!(types, ["f32", "b8[24]", "u32[6]", "f32[4]", "b8[1]", "b8[]"]);
        assert!(params.iter().all(|p| p.param_type.size() == u64::from(p.size)));
    }

    #[test]
    fn registers_and_unsized_parameters() {
        let params = parse("(.reg .b32 %a, .param .b8 _[], .reg .pred %p)").unwrap();
        let registers: Vec<_> = params.iter().map(|p| p.register).collect();
        assert_eq!(registers, [Some(RegId(0)), None, Some(RegId(1))]);
        assert_eq!(params[1].size, 0);
    }

    #[test]
    fn invalid_parameter_lists_are_refused() {
        for text in ["", "(", "(.param)", "(.param .u32)", "(.param .u32 a", "(.param .u32 a,)"] {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse("(.param .b8 a[1<<60])").is_err());
        assert!(parse("(.param .b8 a[1<<19], .param .b8 b[1<<20])").is_err());
        assert!(parse("(.param .align 3 .b8 a)").is_err());
    }
}
