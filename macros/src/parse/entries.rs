//! The entries of a kernel in the PTX: one, or one for each type of a generic kernel.

use proc_macro2::{Group, Ident, TokenStream, TokenTree};
use quote::ToTokens;
use syn::{
    Attribute, Error, LitStr, Meta, Result, Token, Type,
    ext::IdentExt,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use super::{argument::Argument, attributes::string};
use crate::text;

/// The entries of a kernel.
pub(crate) enum Entries {
    /// One entry: the value of `#[entry = ".."]`, if given; otherwise the entry has the kernel's name.
    One(Option<LitStr>),
    /// One entry for each type of a generic kernel.
    PerType(PerType),
}

/// The entries of `#[entry(f32 = "axpy_f32", f64 = "axpy_f64")] fn axpy<T: f32 | f64>(..)`.
pub(crate) struct PerType {
    pub(crate) parameter: Ident,
    pub(crate) types: Vec<(Type, LitStr)>,
}

/// A kernel with one entry.
pub(crate) struct Instance {
    pub(crate) entry: String,
    /// The tokens at which an error about the entry is reported.
    pub(crate) place: TokenStream,
    /// The arguments, without the type parameter.
    pub(crate) arguments: Vec<Argument>,
    /// The text that messages add to the kernel's name: ` with T = f32`.
    pub(crate) of_type: String,
}

/// The type parameter of a generic kernel: `<T: f32 | f64>`.
pub(crate) struct TypeParameter {
    name: Ident,
    types: Vec<Type>,
}

/// The value of the attribute `entry`.
pub(crate) enum EntryAttribute {
    None,
    Name(LitStr),
    PerType(Box<Attribute>, Vec<(Type, LitStr)>),
}

impl EntryAttribute {
    /// Removes the attribute from `attrs`.
    pub(crate) fn take(attrs: &mut Vec<Attribute>) -> Result<Self> {
        let mut found = Self::None;
        for attr in attrs.extract_if(.., |attr| attr.path().is_ident("entry")) {
            if !matches!(found, Self::None) {
                return Err(Error::new_spanned(attr, "attribute `entry` is given twice"));
            }
            found = if matches!(attr.meta, Meta::List(_)) {
                let pairs =
                    attr.parse_args_with(Punctuated::<Pair, Token![,]>::parse_terminated)?;
                Self::PerType(
                    Box::new(attr),
                    pairs.into_iter().map(|pair| (pair.0, pair.1)).collect(),
                )
            } else {
                Self::Name(string(&attr, "entry")?)
            };
        }
        Ok(found)
    }
}

/// An item of `#[entry(..)]`: `f32 = "axpy_f32"`.
struct Pair(Type, LitStr);

impl Parse for Pair {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let ty = input.parse()?;
        input.parse::<Token![=]>()?;
        Ok(Self(ty, input.parse()?))
    }
}

impl TypeParameter {
    /// Parses the type parameter, if there is one.
    pub(crate) fn parse(input: ParseStream<'_>) -> Result<Option<Self>> {
        if !input.peek(Token![<]) {
            return Ok(None);
        }
        input.parse::<Token![<]>()?;
        let name: Ident = input.parse()?;
        if !input.peek(Token![:]) {
            let why = format!("state the types of `{name}`, as in `<{name}: f32 | f64>`");
            return Err(Error::new(name.span(), why));
        }
        input.parse::<Token![:]>()?;
        let types = Punctuated::<Type, Token![|]>::parse_separated_nonempty(input)?;
        if input.peek(Token![,]) {
            return Err(input.error("a kernel has at most one type parameter"));
        }
        input.parse::<Token![>]>()?;
        Ok(Some(Self { name, types: types.into_iter().collect() }))
    }
}

impl Entries {
    /// Combines the attribute with the type parameter.
    pub(crate) fn new(
        kernel: &Ident,
        attribute: EntryAttribute,
        parameter: Option<TypeParameter>,
    ) -> Result<Self> {
        let Some(TypeParameter { name, types }) = parameter else {
            return match attribute {
                EntryAttribute::None => Ok(Self::One(None)),
                EntryAttribute::Name(entry) => Ok(Self::One(Some(entry))),
                EntryAttribute::PerType(attr, _) => Err(Error::new_spanned(
                    attr,
                    "the kernel has no type parameter; write `#[entry = \"name\"]`",
                )),
            };
        };
        let EntryAttribute::PerType(_, mut pairs) = attribute else {
            let why = format!(
                "generic kernel `{kernel}` needs an entry for each type; write `#[entry({} = \"name\", ..)]`",
                text::of_type(&types[0]),
            );
            return Err(Error::new(name.span(), why));
        };
        let mut entries: Vec<(Type, LitStr)> = Vec::new();
        for ty in types {
            if entries.iter().any(|(earlier, _)| text::of_type(earlier) == text::of_type(&ty)) {
                return Err(Error::new_spanned(
                    &ty,
                    format!("`{}` is listed twice", text::of_type(&ty)),
                ));
            }
            let Some(index) =
                pairs.iter().position(|(of, _)| text::of_type(of) == text::of_type(&ty))
            else {
                let why = format!(
                    "kernel `{kernel}` has no entry for `{0}`; add `{0} = \"name\"` to `#[entry(..)]`",
                    text::of_type(&ty),
                );
                return Err(Error::new_spanned(ty, why));
            };
            entries.push((ty, pairs.swap_remove(index).1));
        }
        if let Some((surplus, _)) = pairs.first() {
            let why = format!(
                "`{0}` is not a type of `{name}`, or has two entries; add it to `{name}: .. | {0}` or remove it",
                text::of_type(surplus),
            );
            return Err(Error::new_spanned(surplus, why));
        }
        Ok(Self::PerType(PerType { parameter: name, types: entries }))
    }

    /// Checks that each argument can have each type.
    pub(crate) fn check(&self, arguments: &[Argument]) -> Result<()> {
        let Self::PerType(PerType { parameter, types }) = self else { return Ok(()) };
        for (ty, _) in types {
            for argument in arguments {
                argument.with(parameter, ty).map_err(|error| {
                    let why = format!("with `{parameter} = {}`: {error}", text::of_type(ty));
                    Error::new_spanned(argument, why)
                })?;
            }
        }
        Ok(())
    }

    /// The instances of a kernel with these entries.
    pub(crate) fn instances(&self, kernel: &Ident, arguments: &[Argument]) -> Vec<Instance> {
        match self {
            Self::One(entry) => vec![Instance {
                entry: entry.as_ref().map_or_else(|| kernel.unraw().to_string(), LitStr::value),
                place: entry
                    .as_ref()
                    .map_or_else(|| kernel.to_token_stream(), LitStr::to_token_stream),
                arguments: arguments.to_vec(),
                of_type: String::new(),
            }],
            Self::PerType(PerType { parameter, types }) => types
                .iter()
                .map(|(ty, entry)| Instance {
                    entry: entry.value(),
                    place: entry.to_token_stream(),
                    // The parser has refused arguments that cannot have one of the types.
                    arguments: arguments
                        .iter()
                        .map(|argument| {
                            argument.with(parameter, ty).unwrap_or_else(|_| argument.clone())
                        })
                        .collect(),
                    of_type: format!(" with `{parameter} = {}`", text::of_type(ty)),
                })
                .collect(),
        }
    }
}

impl Argument {
    /// Replaces a type parameter by `ty`. The tokens keep their spans in the declaration.
    ///
    /// # Errors
    /// If no argument can have the resulting type.
    fn with(&self, parameter: &Ident, ty: &Type) -> Result<Self> {
        let tokens = replaced(self.ty.to_token_stream(), parameter, ty);
        Self::new(self.name.clone(), syn::parse2(tokens)?)
    }
}

fn replaced(tokens: TokenStream, parameter: &Ident, ty: &Type) -> TokenStream {
    tokens
        .into_iter()
        .map(|token| match token {
            TokenTree::Ident(name) if name == *parameter => {
                let span = name.span();
                let respanned = ty.to_token_stream().into_iter().map(|mut token| {
                    token.set_span(span);
                    token
                });
                respanned.collect()
            }
            TokenTree::Group(group) => {
                let inner = replaced(group.stream(), parameter, ty);
                let mut new = Group::new(group.delimiter(), inner);
                new.set_span(group.span());
                TokenStream::from(TokenTree::Group(new))
            }
            token => token.into(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{
        parse::{argument::Argument, declaration::Kernel},
        text,
    };

    fn error(kernel: &str) -> String {
        syn::parse_str::<Kernel>(kernel).err().unwrap().to_string()
    }

    #[test]
    fn each_type_is_an_instance() {
        let kernel: Kernel = syn::parse_str(
            "#[entry(f32 = \"a\", half::f16 = \"b\")]
             unsafe fn k<T: f32 | half::f16>(x: &[[T; 2]], a: T, n: u32);",
        )
        .unwrap();
        let types = |arguments: Vec<Argument>| -> Vec<String> {
            arguments.iter().map(|argument| text::of_type(&argument.ty)).collect()
        };
        let instances = kernel.instances();
        let found: Vec<_> = instances
            .into_iter()
            .map(|instance| (instance.entry, types(instance.arguments)))
            .collect();
        assert_eq!(
            found[0],
            ("a".to_owned(), vec!["&[[f32; 2]]".into(), "f32".into(), "u32".into()])
        );
        assert_eq!(found[1].1[1], "half::f16");
    }

    #[test]
    fn entries_and_types_must_match() {
        for (kernel, message) in [
            (
                "#[entry(fn() = \"a\")] unsafe fn k<T: fn()>(a: T);",
                "with `T = fn ()`: unsupported argument type; write `&[T]`, `&mut [T]`, a number, or a struct of numbers",
            ),
            (
                "unsafe fn k<T: f32>(a: T);",
                "generic kernel `k` needs an entry for each type; write `#[entry(f32 = \"name\", ..)]`",
            ),
            (
                "#[entry(f32 = \"a\")] unsafe fn k<T: f32 | f64>(a: T);",
                "kernel `k` has no entry for `f64`; add `f64 = \"name\"` to `#[entry(..)]`",
            ),
            (
                "#[entry(f32 = \"a\", u8 = \"b\")] unsafe fn k<T: f32>(a: T);",
                "`u8` is not a type of `T`, or has two entries; add it to `T: .. | u8` or remove it",
            ),
            ("#[entry(f32 = \"a\")] unsafe fn k<T: f32 | f32>(a: T);", "`f32` is listed twice"),
            (
                "#[entry(f32 = \"a\")] unsafe fn k(a: f32);",
                "the kernel has no type parameter; write `#[entry = \"name\"]`",
            ),
            ("unsafe fn k<T>(a: T);", "state the types of `T`, as in `<T: f32 | f64>`"),
            ("unsafe fn k<T: f32, U: f32>(a: T);", "a kernel has at most one type parameter"),
        ] {
            assert_eq!(error(kernel), message);
        }
    }
}
