//! The documentation of the generated code.

use syn::{Attribute, Expr, Lit, Meta};

use crate::declaration::{Declaration, Kernel, Safety};

/// For a struct without documentation.
pub(crate) fn of_struct(declaration: &Declaration) -> Option<String> {
    let file = declaration.ptx.value();
    lines(&declaration.attrs).is_none().then(|| format!("The kernels of `{file}`."))
}

/// The generated documentation of a launcher: one string of several lines, perhaps empty.
pub(crate) fn of_launcher(kernel: &Kernel) -> String {
    let written = lines(&kernel.attrs);
    let mut doc = String::new();
    if written.is_none() {
        doc = format!(" Launches the kernel `{}` when it is run.", kernel.entry_name());
    }
    let explained = written.is_some_and(|text| text.contains("# Safety"));
    if matches!(kernel.safety, Safety::Unsafe(_)) && !explained {
        doc.push_str(
            "\n\n # Safety\n With this configuration and these arguments, the kernel accesses no memory but \
             that of the buffers among them, stays inside their bounds, and writes only to those that \
             are declared `&mut [T]`.",
        );
    }
    doc
}

/// The text of all doc comments, if there is one.
fn lines(attrs: &[Attribute]) -> Option<String> {
    let docs: Vec<_> = attrs.iter().filter(|attr| attr.path().is_ident("doc")).map(line).collect();
    (!docs.is_empty()).then(|| docs.join("\n"))
}

/// A line of a doc comment; nothing for `#[doc = include_str!(..)]` and the like.
fn line(attr: &Attribute) -> String {
    match &attr.meta {
        Meta::NameValue(pair) => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => text.value(),
                _ => String::new(),
            },
            _ => String::new(),
        },
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn doc(kernel: &str) -> String {
        of_launcher(&syn::parse_str(kernel).unwrap())
    }

    #[test]
    fn safety_is_explained_unless_it_was() {
        let doc_of_bare = doc("unsafe fn k();");
        assert!(doc_of_bare.contains("Launches the kernel `k`"));
        assert!(doc_of_bare.contains("# Safety"));
        assert_eq!(doc("safe fn k();").matches("# Safety").count(), 0);
        let described = doc("/// Adds.\nunsafe fn k();");
        assert!(described.starts_with("\n\n # Safety"), "{described}");
        assert_eq!(doc("/// Adds.\n///\n/// # Safety\n/// Fine.\nunsafe fn k();"), "");
    }
}
