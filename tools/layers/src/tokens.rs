//! Finds paths in the tokens of macro calls and definitions, which have no syntax tree.

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use crate::model::{Names, PathUse};

/// Adds the identifiers, the paths of two or more segments and the names of called macros.
pub(crate) fn scan(tokens: TokenStream, names: &mut Names) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        at += 1;
        match token {
            TokenTree::Group(group) => scan(group.stream(), names),
            TokenTree::Ident(ident) => {
                let line = ident.span().start().line;
                // `$name` is a parameter of the macro, `::name` an external crate.
                let before = at.checked_sub(2).and_then(|before| tokens.get(before));
                let foreign = is_punct(before, '$') && *ident != "crate" || is_punct(before, ':');
                let mut path = PathUse { segments: vec![ident.to_string()], line };
                names.identifiers.entry(ident.to_string()).or_insert(line);
                at = rest_of_path(&tokens, at, &mut path, names);
                let called = is_punct(tokens.get(at), '!');
                if !foreign && (path.segments.len() > 1 || called) {
                    names.paths.push(path);
                }
            }
            _ => {}
        }
    }
}

/// Reads `::b::c` from `at` on and returns the index after it.
fn rest_of_path(
    tokens: &[TokenTree],
    mut at: usize,
    path: &mut PathUse,
    names: &mut Names,
) -> usize {
    while is_punct(tokens.get(at), ':') && is_punct(tokens.get(at + 1), ':') {
        match tokens.get(at + 2) {
            Some(TokenTree::Ident(ident)) => {
                names.identifiers.entry(ident.to_string()).or_insert(path.line);
                path.segments.push(ident.to_string());
                at += 3;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                list(group.stream(), path, names);
                return at + 3;
            }
            _ => return at,
        }
    }
    at
}

/// Reads the names in `prefix::{a, b::c}`.
fn list(tokens: TokenStream, prefix: &PathUse, names: &mut Names) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for part in tokens.split(|token| is_punct(Some(token), ',')) {
        if let Some(TokenTree::Ident(first)) = part.first() {
            let mut path = prefix.clone();
            if *first != "self" {
                path.segments.push(first.to_string());
            }
            rest_of_path(part, 1, &mut path, names);
            names.paths.push(path);
        }
    }
}

fn is_punct(token: Option<&TokenTree>, punct: char) -> bool {
    matches!(token, Some(TokenTree::Punct(own)) if own.as_char() == punct)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_macros_are_found() {
        let text =
            "$crate::a::B; x.map(self::c::d); use crate::e::{F, g::H}; ::std::fmt; $k::v; m!(i)";
        let mut names = Names::default();
        scan(text.parse().unwrap(), &mut names);
        let paths: Vec<String> = names.paths.iter().map(|path| path.segments.join("::")).collect();
        let expected =
            ["crate::a::B", "self::c::d", "crate::e::F", "crate::e::g::H", "crate::e", "m"];
        assert_eq!(paths, expected);
    }
}
