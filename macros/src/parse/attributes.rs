//! Attributes of the declaration.

use syn::{Attribute, Error, Expr, Lit, LitStr, Meta, Result};

/// The `#[cfg(..)]` attributes, which apply to all code generated from the item.
pub(crate) fn conditions(attrs: &[Attribute]) -> impl Iterator<Item = &Attribute> {
    attrs.iter().filter(|attr| attr.path().is_ident("cfg"))
}

/// Removes `#[name = ".."]` from `attrs` and returns its value.
pub(crate) fn take(attrs: &mut Vec<Attribute>, name: &str) -> Result<Option<LitStr>> {
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
pub(crate) fn string(attr: &Attribute, name: &str) -> Result<LitStr> {
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
