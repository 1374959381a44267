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

/// `#[ptx = "..."] pub struct Name;` and the kernels after it.
pub(crate) struct Declaration {
    /// All but `ptx`.
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    /// `unsafe struct`: its author promises the safety of every `safe fn`.
    pub(crate) vouched: Option<Token![unsafe]>,
    pub(crate) name: Ident,
    /// Where the PTX is.
    pub(crate) ptx: LitStr,
    pub(crate) kernels: Vec<Kernel>,
}

/// `unsafe fn name(argument, ..);`
pub(crate) struct Kernel {
    /// All but `entry`.
    pub(crate) attrs: Vec<Attribute>,
    /// As written; nothing means public, as visible as the struct.
    pub(crate) vis: Visibility,
    pub(crate) safety: Safety,
    pub(crate) name: Ident,
    /// `#[entry = ".."]`.
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
    /// Its name in the PTX.
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
        let vouched = input.parse()?;
        input.parse::<Token![struct]>()?;
        let name: Ident = input.parse()?;
        let missing = || Error::new(name.span(), "say where the PTX is: `#[ptx = \"path\"]`");
        let ptx = take(&mut attrs, "ptx")?.ok_or_else(missing)?;
        input.parse::<Token![;]>()?;
        let mut kernels = Vec::new();
        while !input.is_empty() {
            kernels.push(input.parse()?);
        }
        Ok(Self { attrs, vis, vouched, name, ptx, kernels })
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
            return Err(input.error("a kernel has no generics: declare each of its entries"));
        }
        let inside;
        parenthesized!(inside in input);
        let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(&inside)?;
        if input.peek(Token![->]) {
            return Err(input.error("a kernel returns nothing: it writes to its `&mut [T]`s"));
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
        Err(input
            .error("expected `unsafe fn`: nothing checks what a kernel does with its arguments"))
    }
}

/// `#[cfg(..)]`, which holds for all code that is generated from its item.
pub(crate) fn conditions(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
}

/// Takes `#[name = ".."]` out of `attrs`.
fn take(attrs: &mut Vec<Attribute>, name: &str) -> Result<Option<LitStr>> {
    let mut found = None;
    for attr in attrs.extract_if(.., |attr| attr.path().is_ident(name)) {
        if found.is_some() {
            return Err(Error::new_spanned(attr, format!("`{name}` is given twice")));
        }
        found = Some(string(&attr, name)?);
    }
    Ok(found)
}

/// The string of `#[name = ".."]`.
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
