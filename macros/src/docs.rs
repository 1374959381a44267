//! The documentation of the generated code.

use syn::{Attribute, Expr, Lit, Meta};

use crate::declaration::{Declaration, Kernel, Safety};

/// The generated documentation of a struct that has none.
pub(crate) fn of_struct(declaration: &Declaration) -> Option<String> {
    let file = declaration.ptx.value();
    lines(&declaration.attrs).is_none().then(|| format!("The kernels of `{file}`."))
}

/// The generated documentation of a launcher: one string of several lines, perhaps empty.
pub(crate) fn of_launcher(kernel: &Kernel) -> String {
    let written = lines(&kernel.attrs);
    let mut doc = String::new();
    if written.is_none() {
        doc = format!(" Returns an operation that launches the kernel `{}`.", kernel.entry_name());
    }
    let explained = written.is_some_and(|text| text.contains("# Safety"));
    if matches!(kernel.safety, Safety::Unsafe(_)) && !explained {
        doc.push_str(
            "\n\n # Safety\n With this configuration and these arguments, the kernel must access only its \
             buffer arguments and the variables of its module, within their bounds. Of its arguments, it \
             must write only buffers declared `&mut [T]`. It must not write `__constant__` variables.",
        );
    }
    doc
}

/// The text of all doc comments, or `None` if there are none.
fn lines(attrs: &[Attribute]) -> Option<String> {
    let docs: Vec<_> = attrs.iter().filter(|attr| attr.path().is_ident("doc")).map(line).collect();
    (!docs.is_empty()).then(|| docs.join("\n"))
}

/// The text of one `doc` attribute. It is empty if the value is not a string literal, as in `#[doc = include_str!(..)]`.
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
    fn safety_section_is_added_if_missing() {
        let doc_of_bare = doc("unsafe fn k();");
        assert!(doc_of_bare.contains("launches the kernel `k`"));
        assert!(doc_of_bare.contains("# Safety"));
        assert_eq!(doc("safe fn k();").matches("# Safety").count(), 0);
        let described = doc("/// Adds.\nunsafe fn k();");
        assert!(described.starts_with("\n\n # Safety"), "{described}");
        assert_eq!(doc("/// Adds.\n///\n/// # Safety\n/// Fine.\nunsafe fn k();"), "");
    }
}
