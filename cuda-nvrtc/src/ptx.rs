//! `Ptx`: a compiled text, and the comments that state its source.

/// The start of the comment that names the source.
const MADE_FROM: &str = "// cuda-nvrtc: made from ";
/// The start of a comment with the types of a kernel.
const SIGNATURE: &str = "// cuda-nvrtc: signature ";

/// A compiled source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ptx {
    /// The PTX. It begins with comments that name the source and the types of its kernels.
    pub text: String,
    /// The compiler's warnings, which are often empty. A text from the cache has none.
    pub log: String,
}

/// Returns `ptx` with comments before it: the source, its digest, and the probes of its kernels.
pub(crate) fn stamped(
    ptx: &str,
    source_name: &str,
    digest: &str,
    probes: &[(String, String)],
) -> String {
    let source_name: String = source_name.chars().filter(|c| !c.is_control()).collect();
    let mut text = format!("{MADE_FROM}{source_name}, sha256 {digest}\n");
    for (entry, probe) in probes {
        text.push_str(&format!("{SIGNATURE}{entry} {probe}\n"));
    }
    text.push_str(ptx);
    text
}

/// Returns the digest of the source from which a text was made. `None` if the text does not state it.
pub(crate) fn made_from(ptx: &str) -> Option<&str> {
    let line = ptx.lines().find_map(|line| line.strip_prefix(MADE_FROM))?;
    line.rsplit_once(", sha256 ").map(|(_, digest)| digest.trim_end())
}

/// Returns the mangled name, stated by a comment of this crate, that holds the types of the kernel `entry`.
pub(crate) fn probe_of<'a>(ptx: &'a str, entry: &str) -> Option<&'a str> {
    let comments = ptx.lines().take_while(|line| line.starts_with("//"));
    let mut signatures = comments.filter_map(|line| line.strip_prefix(SIGNATURE)?.split_once(' '));
    signatures.find(|(name, _)| *name == entry).map(|(_, probe)| probe.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_read_back() {
        let probes = [("k".to_owned(), "_Z20cuda_nvrtc_signatureIPFvPKfEEvv".to_owned())];
        let text = stamped(".version 8.0\n", "a, b\n.cu", "12ab", &probes);
        assert_eq!(made_from(&text), Some("12ab"));
        assert_eq!(probe_of(&text, "k"), Some("_Z20cuda_nvrtc_signatureIPFvPKfEEvv"));
        assert_eq!(probe_of(&text, "other"), None);
        assert_eq!(made_from(".version 8.0"), None);
        assert!(text.ends_with(".cu, sha256 12ab\n// cuda-nvrtc: signature k _Z20cuda_nvrtc_signatureIPFvPKfEEvv\n.version 8.0\n"));
    }
}
