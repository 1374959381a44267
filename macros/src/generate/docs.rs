//! The documentation of the generated code.

use syn::{Attribute, Expr, Lit, Meta};

use crate::parse::declaration::{Declaration, Kernel, Safety};

/// The generated documentation of a struct that has none.
pub(crate) fn of_struct(declaration: &Declaration) -> Option<String> {
    let file = declaration.code.path().value();
    lines(&declaration.attrs).is_none().then(|| format!("The kernels of `{file}`."))
}

/// The generated documentation of a launcher: one string of several lines, perhaps empty.
pub(crate) fn of_launcher(kernel: &Kernel) -> String {
    let written = lines(&kernel.attrs);
    let mut doc = String::new();
    if written.is_none() {
        let entries: Vec<_> =
            kernel.instances().iter().map(|instance| format!("`{}`", instance.entry)).collect();
        doc = format!(" Returns an operation that launches the kernel {}.", entries.join(" or "));
    }
    doc.push_str(&of_checks(kernel));
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

/// The documentation of derived values and conditions, perhaps empty.
fn of_checks(kernel: &Kernel) -> String {
    let mut doc = String::new();
    for argument in &kernel.arguments {
        if let Some(derived) = &argument.derived {
            doc.push_str(&format!("\n\n The kernel gets `{} = {derived}`.", argument.name));
        }
    }
    if !kernel.conditions.is_empty() {
        let conditions: Vec<_> =
            kernel.conditions.iter().map(|condition| format!("`{condition}`")).collect();
        doc.push_str(&format!(
            "\n\n # Errors\n The operation fails with [`Error::Arguments`](::cuda_async::Error::Arguments), and launches \
             nothing, unless {}.",
            conditions.join(" and "),
        ));
    }
    doc
}

/// The text of all doc comments, or `None` if there are none.
fn lines(attrs: &[Attribute]) -> Option<String> {
    let docs: Vec<_> = attrs.iter().filter(|attr| attr.path().is_ident("doc")).map(line).collect();
    (!docs.is_empty()).then(|| docs.join("\n"))
}

/// The text of one `doc` attribute. It is empty if the value is not a string literal, as in
/// `#[doc = include_str!(..)]`.
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
    fn checks_are_documented() {
        let doc = doc("/// Adds.\nsafe fn k(x: &[u8], n: u32 = x.len()) where n > 0, n < 9;");
        assert!(doc.contains("gets `n = x.len()`"), "{doc}");
        assert!(doc.ends_with("nothing, unless `n > 0` and `n < 9`."), "{doc}");
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
