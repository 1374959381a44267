//! The input of `kernels!`: a struct and its kernels.

use syn::{
    Attribute, Error, Expr, Ident, Lit, LitStr, Meta, Result, Token, Visibility,
    ext::IdentExt,
    parenthesized,
    parse::{Parse, ParseStream},
    punctuated::Punctuated,
};

use crate::argument::Argument;

mod keyword {
    syn::custom_keyword!(safe);
}

/// The parsed input: `#[ptx = "..."] pub struct Name;` and the kernels after it.
pub(crate) struct Declaration {
    /// All attributes except `ptx`.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    /// The `unsafe` of `unsafe struct`: the author promises the safety of every `safe fn`.
    pub(crate) unsafe_token: Option<Token![unsafe]>,
    pub(crate) name: Ident,
    /// The path of the PTX file, as written.
    pub(crate) ptx: LitStr,
    pub(crate) kernels: Vec<Kernel>,
}

/// A kernel declaration: `unsafe fn name(argument, ..);`
pub(crate) struct Kernel {
    /// All attributes except `entry`.
    pub(crate) attrs: Vec<Attribute>,
    /// The visibility as written. An omitted visibility means `pub`.
    pub(crate) vis: Visibility,
    pub(crate) safety: Safety,
    pub(crate) name: Ident,
    /// The value of `#[entry = ".."]`, if given.
    pub(crate) entry: Option<LitStr>,
    pub(crate) arguments: Vec<Argument>,
}

/// The side that promises the safety of a launch.
pub(crate) enum Safety {
    /// The caller of the launcher.
    Unsafe(Token![unsafe]),
    /// The author of the declaration.
    Safe(keyword::safe),
}

impl Kernel {
    /// The kernel's name in the PTX.
    pub(crate) fn entry_name(&self) -> String {
        match &self.entry {
            Some(entry) => entry.value(),
            None => self.name.unraw().to_string(),
        }
    }
}

impl Parse for Declaration {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let vis = input.parse()?;
        let unsafe_token = input.parse()?;
        input.parse::<Token![struct]>()?;
        let name: Ident = input.parse()?;
        let missing = || {
            Error::new(name.span(), "missing PTX path; write `#[ptx = \"path\"]` before the struct")
        };
        let ptx = take(&mut attrs, "ptx")?.ok_or_else(missing)?;
        input.parse::<Token![;]>()?;
        let mut kernels = Vec::new();
        while !input.is_empty() {
            kernels.push(input.parse()?);
        }
        Ok(Self { attrs, vis, unsafe_token, name, ptx, kernels })
    }
}

impl Parse for Kernel {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut attrs = input.call(Attribute::parse_outer)?;
        let entry = take(&mut attrs, "entry")?;
        let vis = input.parse()?;
        let safety = input.parse()?;
        input.parse::<Token![fn]>()?;
        let name: Ident = input.parse()?;
        if input.peek(Token![<]) {
            return Err(input
                .error("a kernel declaration cannot be generic; declare each entry of the PTX"));
        }
        let inside;
        parenthesized!(inside in input);
        let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(&inside)?;
        if input.peek(Token![->]) {
            return Err(input.error("a kernel cannot return a value; declare an output `&mut [T]`"));
        }
        input.parse::<Token![;]>()?;
        let arguments = arguments.into_iter().collect();
        Ok(Self { attrs, vis, safety, name, entry, arguments })
    }
}

impl Parse for Safety {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        if input.peek(keyword::safe) {
            return Ok(Self::Safe(input.parse()?));
        }
        if input.peek(Token![unsafe]) {
            return Ok(Self::Unsafe(input.parse()?));
        }
        Err(input.error("expected `unsafe fn` (or `safe fn` in an `unsafe struct`)"))
    }
}

/// The `#[cfg(..)]` attributes, which apply to all code generated from the item.
pub(crate) fn conditions(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
}

/// Removes `#[name = ".."]` from `attrs` and returns its value.
fn take(attrs: &mut Vec<Attribute>, name: &str) -> Result<Option<LitStr>> {
    let mut found = None;
    for attr in attrs.extract_if(.., |attr| attr.path().is_ident(name)) {
        if found.is_some() {
            return Err(Error::new_spanned(attr, format!("attribute `{name}` is given twice")));
        }
        found = Some(string(&attr, name)?);
    }
    Ok(found)
}

/// Returns the value of the attribute `#[name = ".."]`.
fn string(attr: &Attribute, name: &str) -> Result<LitStr> {
    if let Meta::NameValue(pair) = &attr.meta {
        let mut value = &pair.value;
        // `macro_rules` passes fragments in an invisible group.
        while let Expr::Group(group) = value {
            value = &group.expr;
        }
        if let Expr::Lit(literal) = value
            && let Lit::Str(string) = &literal.lit
        {
            return Ok(string.clone());
        }
    }
    Err(Error::new_spanned(attr, format!("expected `#[{name} = \"..\"]`")))
}
