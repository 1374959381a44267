//! Evaluates `#[cfg(..)]` for a build without tests and without loom.

use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

/// Whether the attributes restrict an item to tests or to loom models.
pub(crate) fn left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg") && predicates(&attribute.meta) == [Some(false)]
    })
}

/// The values of the predicates in `name(..)`.
fn predicates(meta: &Meta) -> Vec<Option<bool>> {
    let Meta::List(list) = meta else { return Vec::new() };
    let parsed = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
    parsed.map(|all| all.iter().map(value).collect()).unwrap_or_default()
}

/// The value of a predicate; `None` if it depends on the target, a feature or a flag other than `loom`.
fn value(meta: &Meta) -> Option<bool> {
    let path = meta.path();
    if path.is_ident("test") || path.is_ident("loom") {
        return Some(false);
    }
    let inner = predicates(meta);
    let has = |value: bool| inner.contains(&Some(value));
    let known = !inner.contains(&None);
    if path.is_ident("not") {
        return inner.first().copied().flatten().map(|value| !value);
    } else if path.is_ident("all") {
        return if has(false) { Some(false) } else { known.then_some(true) };
    } else if path.is_ident("any") {
        return if has(true) { Some(true) } else { known.then_some(false) };
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tests_and_loom_models_are_excluded() {
        for (attributes, expected) in [
            ("#[test]", true),
            ("#[cfg(test)]", true),
            ("#[cfg(loom)]", true),
            ("#[cfg(all(test, loom))]", true),
            ("#[cfg(all(loom, feature = \"cuda\"))]", true),
            ("#[cfg(not(not(test)))]", true),
            ("#[cfg(any(test, loom))]", true),
            ("#[cfg(not(loom))]", false),
            ("#[cfg(any(test, feature = \"cuda\"))]", false),
            ("#[cfg(feature = \"cuda\")]", false),
            ("#[cfg(unix)] #[inline]", false),
        ] {
            let file = syn::parse_file(&format!("{attributes} fn f() {{}}")).unwrap();
            let syn::Item::Fn(function) = &file.items[0] else { panic!("{attributes}") };
            assert_eq!(left_out(&function.attrs), expected, "{attributes}");
        }
    }
}
