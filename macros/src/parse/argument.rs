//! Arguments of a kernel, and the ways to pass them.

use cuda_nvrtc::signature::{self, Declared, NumberKind};
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{
    Error, Ident, Result, Token, Type,
    parse::{Parse, ParseStream},
};

use super::quantity::Quantity;

/// An argument of a kernel, written `name: Type` or `name: Type = expression`.
#[derive(Clone)]
pub(crate) struct Argument {
    pub(crate) name: Ident,
    pub(crate) ty: Type,
    pub(crate) passed: Passed,
    /// The value of an argument that the launcher computes.
    pub(crate) derived: Option<Quantity>,
}

/// The way in which an argument is passed.
#[derive(Clone)]
pub(crate) enum Passed {
    /// `&[T]`: the address of a buffer of `T` that the kernel reads.
    Input(Type),
    /// `&mut [T]`: the address of a buffer of `T` that the kernel writes.
    Output(Type),
    /// A number, by value.
    Number(Number),
    /// A `bool`, as a byte.
    Bool,
    /// Any other type, by value. The macro does not know its size, so the generated code checks it.
    Other,
}

/// A numeric type that exists in Rust and in PTX.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Number {
    pub(crate) kind: Kind,
    /// The size in bytes.
    pub(crate) size: u32,
}

/// The kind of a number. Signed and unsigned integers are one kind, because the PTX signature of a kernel does not
/// preserve the sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Integer,
    Float,
    BFloat,
}

impl Parse for Argument {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = input.parse()?;
        input.parse::<Token![:]>()?;
        let mut argument = Self::new(name, input.parse()?)?;
        if input.peek(Token![=]) {
            input.parse::<Token![=]>()?;
            argument.derived = Some(input.parse()?);
        }
        Ok(argument)
    }
}

impl Argument {
    /// Creates an argument that the caller passes.
    pub(crate) fn new(name: Ident, ty: Type) -> Result<Self> {
        let passed = Passed::of(&ty)?;
        Ok(Self { name, ty, passed, derived: None })
    }

    /// Whether it is a buffer.
    pub(crate) fn is_buffer(&self) -> bool {
        matches!(self.passed, Passed::Input(_) | Passed::Output(_))
    }
}

impl ToTokens for Argument {
    fn to_tokens(&self, tokens: &mut TokenStream) {
        let (name, ty) = (&self.name, &self.ty);
        tokens.extend(quote!(#name: #ty));
    }
}

impl Number {
    /// Returns the number in the form that is compared with a C type.
    pub(crate) const fn declared(self) -> signature::Scalar {
        let kind = match self.kind {
            Kind::Integer => NumberKind::Integer,
            Kind::Float => NumberKind::Float,
            Kind::BFloat => NumberKind::BFloat,
        };
        signature::Scalar { kind, size: self.size }
    }
}

impl Passed {
    /// Returns the declaration in the form that is compared with a C type.
    pub(crate) fn declared(&self) -> Declared {
        let element = |ty: &Type| match Self::of(ty) {
            Ok(Self::Number(number)) => Some(number.declared()),
            _ => None,
        };
        match self {
            Self::Input(ty) => Declared::Buffer { element: element(ty), written: false },
            Self::Output(ty) => Declared::Buffer { element: element(ty), written: true },
            Self::Number(number) => Declared::Scalar(number.declared()),
            Self::Bool => Declared::Scalar(Number { kind: Kind::Integer, size: 1 }.declared()),
            Self::Other => Declared::Value(None),
        }
    }

    pub(crate) fn of(ty: &Type) -> Result<Self> {
        let wrong = |why| Err(Error::new_spanned(ty, why));
        match bare(ty) {
            Type::Reference(reference) => {
                if reference.lifetime.is_some() {
                    return wrong(
                        "a buffer argument takes no lifetime; write `&[T]` or `&mut [T]`",
                    );
                }
                match (bare(&reference.elem), reference.mutability) {
                    (Type::Slice(slice), None) => Ok(Self::Input((*slice.elem).clone())),
                    (Type::Slice(slice), Some(_)) => Ok(Self::Output((*slice.elem).clone())),
                    _ => wrong("a reference argument must be a slice; write `&[T]` or `&mut [T]`"),
                }
            }
            Type::Ptr(_) => wrong("raw pointers are not supported; write `&[T]` or `&mut [T]`"),
            Type::Path(path) => Ok(path.path.segments.last().map_or(Self::Other, |last| {
                // `f16` and `bf16` are recognized behind any path, the primitive types only without a path.
                let whole = path.path.segments.len() == 1;
                Self::named(&last.ident.to_string(), whole)
            })),
            Type::Array(_) => Ok(Self::Other),
            _ => wrong(
                "unsupported argument type; write `&[T]`, `&mut [T]`, a number, or a struct of numbers",
            ),
        }
    }

    fn named(name: &str, whole: bool) -> Self {
        let number = |kind, size| Self::Number(Number { kind, size });
        match name {
            "f16" => number(Kind::Float, 2),
            "bf16" => number(Kind::BFloat, 2),
            _ if !whole => Self::Other,
            "u8" | "i8" => number(Kind::Integer, 1),
            "u16" | "i16" => number(Kind::Integer, 2),
            "u32" | "i32" => number(Kind::Integer, 4),
            "u64" | "i64" | "usize" | "isize" => number(Kind::Integer, 8),
            "f32" => number(Kind::Float, 4),
            "f64" => number(Kind::Float, 8),
            "bool" => Self::Bool,
            _ => Self::Other,
        }
    }
}

/// Removes parentheses and the invisible groups of `macro_rules` from around a type.
fn bare(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            _ => return ty,
        };
    }
}
