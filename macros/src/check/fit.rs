//! Checks that an argument fits a parameter of the PTX.

use std::fmt;

use cuda_ptx::{Param, ScalarType};

use crate::parse::argument::{Kind, Number, Passed};

/// The size of a device address in bytes.
const ADDRESS: u32 = 8;

/// Returns the reason why `passed` does not match `param`, as the end of a sentence about the argument. Returns `None`
/// if it matches, or if the compiler has to check it.
pub(crate) fn mismatch(passed: &Passed, param: &Param) -> Option<String> {
    match passed {
        Passed::Input(_) | Passed::Output(_) => address_mismatch(param),
        Passed::Number(_) | Passed::Bool if param.pointer => {
            Some("is passed by value; write `&[T]` or `&mut [T]`".to_owned())
        }
        Passed::Number(number) => number_mismatch(*number, param),
        Passed::Bool => number_mismatch(Number { kind: Kind::Integer, size: 1 }, param),
        Passed::Other => None,
    }
}

fn address_mismatch(param: &Param) -> Option<String> {
    let fits = untyped(param.ty) || matches!(param.ty, ScalarType::U64);
    (param.size != ADDRESS || !fits).then(|| "is passed as an address (`.u64`)".to_owned())
}

fn number_mismatch(number: Number, param: &Param) -> Option<String> {
    if number.size != param.size {
        return Some(size(number));
    }
    kind_mismatch(number, param.ty)
}

/// Returns the reason why an element of a variable does not match its type in the PTX, as [`mismatch`] does.
pub(crate) fn scalar_mismatch(number: Number, ty: ScalarType) -> Option<String> {
    // Arrays and structs are declared as bytes.
    if matches!(ty, ScalarType::B8) {
        return None;
    }
    if number.size != ty.size() {
        return Some(size(number));
    }
    kind_mismatch(number, ty)
}

fn size(number: Number) -> String {
    let plural = if number.size == 1 { "" } else { "s" };
    format!("has {} byte{plural}", number.size)
}

fn kind_mismatch(number: Number, ty: ScalarType) -> Option<String> {
    if untyped(ty) || kind(ty) == Some(number.kind) {
        return None;
    }
    Some(match number.kind {
        Kind::Integer => "is an integer".to_owned(),
        Kind::Float => "is a float".to_owned(),
        Kind::BFloat => "is a bfloat".to_owned(),
    })
}

/// Whether the PTX type gives only a size: `.b32`, or `.b8 x[4]`, the form of a struct.
fn untyped(ty: ScalarType) -> bool {
    use ScalarType::*;
    matches!(ty, B8 | B16 | B32 | B64 | B128)
}

/// The kind of number of the PTX type `ty`, if it is a single number.
fn kind(ty: ScalarType) -> Option<Kind> {
    use ScalarType::*;
    match ty {
        U8 | U16 | U32 | U64 | S8 | S16 | S32 | S64 => Some(Kind::Integer),
        F16 | F32 | F64 => Some(Kind::Float),
        BF16 => Some(Kind::BFloat),
        _ => None,
    }
}

/// Displays the type of a parameter in PTX syntax, without the name.
pub(crate) struct Written<'a>(pub(crate) &'a Param);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(param) = self;
        let ty = format!("{:?}", param.ty).to_lowercase();
        if param.size == param.ty.size() {
            return write!(f, ".{ty}");
        }
        write!(f, ".align {} .{ty}[{}]", param.align, param.size / param.ty.size())
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_str;

    use super::*;
    use crate::parse::argument::Argument;

    /// The message for an argument `x: ty` and a parameter declared as `param`.
    fn message(ty: &str, param: &str) -> Option<String> {
        let argument: Argument = parse_str(&format!("x: {ty}")).unwrap();
        mismatch(&argument.passed, &read(param))
    }

    fn read(param: &str) -> Param {
        let text = format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.entry k(.param {param}) {{ ret; }}"
        );
        cuda_ptx::signatures(&text).unwrap().remove(0).params.remove(0)
    }

    #[test]
    fn number_matches_parameter_of_its_size_and_kind() {
        for (ty, param) in [
            ("i8", ".u8 p"),
            ("u16", ".s16 p"),
            ("i32", ".u32 p"),
            ("u32", ".b32 p"),
            ("f32", ".b32 p"),
            ("f32", ".f32 p"),
            ("usize", ".u64 p"),
            ("f64", ".f64 p"),
            ("f64", ".align 8 .b8 p[8]"),
            ("half::f16", ".b16 p"),
            ("bf16", ".align 2 .b8 p[2]"),
            ("bool", ".u8 p"),
        ] {
            assert_eq!(message(ty, param), None, "{ty} {param}");
        }
    }

    #[test]
    fn number_of_another_size_or_kind_is_refused() {
        for (ty, param, why) in [
            ("u64", ".u32 p", "has 8 bytes"),
            ("i8", ".u32 p", "has 1 byte"),
            ("bool", ".b32 p", "has 1 byte"),
            ("u32", ".f32 p", "is an integer"),
            ("f32", ".u32 p", "is a float"),
            ("f16", ".u16 p", "is a float"),
            ("f64", ".f64 p[2]", "has 8 bytes"),
            ("f32", ".align 16 .b8 p[16]", "has 4 bytes"),
            (
                "u64",
                ".u64 .ptr .global .align 4 p",
                "is passed by value; write `&[T]` or `&mut [T]`",
            ),
        ] {
            assert_eq!(message(ty, param).as_deref(), Some(why), "{ty} {param}");
        }
    }

    #[test]
    fn buffer_matches_address_parameter() {
        for param in [".u64 p", ".b64 p", ".u64 .ptr .global .align 4 p", ".align 8 .b8 p[8]"] {
            assert_eq!(message("&[f32]", param), None, "{param}");
            assert_eq!(message("&mut [u8]", param), None, "{param}");
        }
        for param in [".u32 p", ".f64 p", ".s64 p", ".b32 p", ".align 8 .b8 p[16]"] {
            assert!(message("&[f32]", param).is_some(), "{param}");
        }
    }

    #[test]
    fn unknown_types_are_not_checked_here() {
        for ty in ["Mixed", "[f32; 4]", "crate::u32", "View<f32>"] {
            assert_eq!(message(ty, ".align 8 .b8 p[24]"), None, "{ty}");
        }
    }

    #[test]
    fn unsupported_argument_types_are_refused() {
        for ty in ["*const f32", "&f32", "&'a [f32]", "(f32, f32)", "fn()", "impl Copy", "_"] {
            assert!(parse_str::<Argument>(&format!("x: {ty}")).is_err(), "{ty}");
        }
    }

    #[test]
    fn parameter_type_displays_as_ptx() {
        for (param, written) in
            [(".u32 p", ".u32"), (".align 8 .b8 p[24]", ".align 8 .b8[24]"), (".b8 p", ".b8")]
        {
            assert_eq!(Written(&read(param)).to_string(), written);
        }
    }
}
