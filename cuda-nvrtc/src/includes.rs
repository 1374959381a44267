//! Finds the `#include` lines of a text.

/// An `#include` line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Include<'a> {
    /// The name between the quotes or the angle brackets.
    pub(crate) name: &'a str,
    /// Whether it is between quotes, so that the folder of the including file is searched first.
    pub(crate) quoted: bool,
}

/// Returns the `#include` lines outside comments, also those in branches that the preprocessor skips. Leaves out lines whose
/// name is a macro.
pub(crate) fn includes(text: &str) -> Vec<Include<'_>> {
    let mut found = Vec::new();
    let mut in_comment = false;
    for line in text.lines() {
        if !in_comment && let Some(include) = directive(line) {
            found.push(include);
        }
        in_comment = ends_in_comment(line, in_comment);
    }
    found
}

/// Parses a line of the form `# include "name"`.
fn directive(line: &str) -> Option<Include<'_>> {
    let rest = line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
    let rest = rest.trim_start();
    let (quoted, close) = match rest.chars().next()? {
        '"' => (true, '"'),
        '<' => (false, '>'),
        _ => return None,
    };
    let (name, _) = rest.get(1..)?.split_once(close)?;
    Some(Include { name, quoted })
}

/// Whether a block comment is open at the end of `line`.
fn ends_in_comment(line: &str, mut in_comment: bool) -> bool {
    let mut rest = line;
    let mut in_string = false;
    while let Some(c) = rest.chars().next() {
        let step = match (in_comment, in_string) {
            (true, _) if rest.starts_with("*/") => {
                in_comment = false;
                2
            }
            (false, true) if c == '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            (false, _) if c == '"' => {
                in_string = !in_string;
                1
            }
            (false, false) if rest.starts_with("//") => return false,
            (false, false) if rest.starts_with("/*") => {
                in_comment = true;
                2
            }
            _ => c.len_utf8(),
        };
        rest = &rest[step..];
    }
    in_comment
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn includes_outside_comments_are_found() {
        let text = "#include \"a.cuh\"\n  #  include <b.h> // x\n// #include \"no.h\"\n/* open\n#include \"no.h\"\n*/\n\
                    auto s = \"/*\"; /* a */ // /*\n#include \"c/d.cuh\"\n#include NAME\nx; #include \"no.h\"";
        let found: Vec<_> =
            includes(text).into_iter().map(|include| (include.name, include.quoted)).collect();
        assert_eq!(found, [("a.cuh", true), ("b.h", false), ("c/d.cuh", true)]);
    }

    #[test]
    fn unusual_text_does_not_panic() {
        for text in ["#include \"", "#include", "#", "\"\\", "\"\\é", "/*é*/é", "#include <é"] {
            assert_eq!(includes(text), []);
        }
    }
}
