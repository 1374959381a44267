//! Text of messages: types as they were written, and lists of names.

use proc_macro2::TokenStream;
use quote::quote;
use syn::Type;

/// The maximum number of names that a message lists.
const MAX_LISTED: usize = 12;

/// Lists names for a message, at most `MAX_LISTED`.
pub(crate) fn listed_names<'a>(all: impl ExactSizeIterator<Item = &'a str>) -> String {
    let count = all.len();
    if count == 0 {
        return "none".to_owned();
    }
    let names: Vec<_> = all.take(MAX_LISTED).map(|name| format!("`{name}`")).collect();
    match count - names.len() {
        0 => names.join(", "),
        more => format!("{} and {more} more", names.join(", ")),
    }
}

/// Converts tokens to text with the usual spacing of types.
pub(crate) fn spaced(tokens: TokenStream) -> String {
    tokens
        .to_string()
        .replace(" :: ", "::")
        .replace(" : ", ": ")
        .replace("& ", "&")
        .replace(" < ", "<")
        .replace(" >", ">")
        .replace(" ;", ";")
}

/// The text of a type, for messages and comparison.
pub(crate) fn of_type(ty: &Type) -> String {
    spaced(quote!(#ty))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_truncated() {
        let body: String = (0..20).map(|i| format!(".entry k{i}() {{ ret; }}\n")).collect();
        let text = format!(".version 8.0\n.target sm_80\n.address_size 64\n{body}");
        let signatures = cuda_ptx::signatures(&text).unwrap();
        let list = listed_names(signatures.iter().map(|signature| signature.name.as_str()));
        assert!(list.ends_with("`k11` and 8 more"), "{list}");
        assert_eq!(listed_names([].into_iter()), "none");
    }
}
