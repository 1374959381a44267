//! `Source`: a text with the headers that it includes.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    options::Options,
};

/// CUDA C, and the headers that it includes. It needs no file to compile, except for the headers of CUDA.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    name: String,
    text: String,
    headers: Vec<Header>,
}

/// A header of a [`Source`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// The name, as an `#include` names it.
    pub name: String,
    /// The text.
    pub text: String,
    /// The file from which it was read, if any.
    pub file: Option<PathBuf>,
}

impl Source {
    /// Creates a source from a text. Messages call it `name`.
    pub fn from_text(name: impl Into<String>, text: impl Into<String>) -> Self {
        Self { name: name.into(), text: text.into(), headers: Vec::new() }
    }

    /// Adds a header. An `#include` of exactly this name includes it.
    pub fn header(mut self, name: impl Into<String>, text: impl Into<String>) -> Self {
        self.headers.push(Header { name: name.into(), text: text.into(), file: None });
        self
    }

    /// Reads a file, and the headers that it includes with quotes or from a folder of `options`. A header that is not
    /// found is left to the compiler: it may be one of CUDA's, or in a branch that the preprocessor skips.
    ///
    /// # Errors
    /// [`Error::File`], and [`Error::SameHeaderName`] if two different files are included by one name.
    pub fn read(name: &str, file: &Path, options: &Options) -> Result<Self> {
        let read =
            |path: &Path| fs::read_to_string(path).map_err(|error| Error::read(path, &error));
        let mut source = Self::from_text(name, read(file)?);
        let mut visited = HashSet::new();
        let mut waiting = vec![(file.to_owned(), source.text.clone())];
        while let Some((includer, text)) = waiting.pop() {
            let folder = includer.parent().unwrap_or(Path::new(""));
            for include in includes(&text) {
                let Some(path) = locate(&include, folder, options) else { continue };
                let known = source.headers.iter().find(|header| header.name == include.name);
                if let Some(first) = known.and_then(|header| header.file.clone()) {
                    if first == path {
                        continue;
                    }
                    let (source_name, name) = (source.name, include.name.to_owned());
                    return Err(Error::SameHeaderName { source_name, name, first, second: path });
                }
                let text = read(&path)?;
                if visited.insert(path.clone()) {
                    waiting.push((path.clone(), text.clone()));
                }
                source.headers.push(Header {
                    name: include.name.to_owned(),
                    text,
                    file: Some(path),
                });
            }
        }
        source.headers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(source)
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text, without its headers.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the headers.
    pub fn headers(&self) -> &[Header] {
        &self.headers
    }

    /// Returns the SHA-256 of the text, the headers and the flags of `options`, in hexadecimal. LF and CRLF line ends
    /// give the same digest, so it is the same on every system.
    pub fn digest(&self, options: &Options) -> String {
        let mut parts = vec!["cuda-nvrtc 1".to_owned(), unix(&self.text)];
        parts.extend(options.flags());
        for header in &self.headers {
            parts.extend([header.name.clone(), unix(&header.text)]);
        }
        digest(&parts)
    }
}

/// Returns the SHA-256 of several texts in hexadecimal. Texts with other boundaries have another digest.
pub(crate) fn digest(parts: &[impl AsRef<[u8]>]) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.as_ref().len() as u64).to_le_bytes());
        hash.update(part.as_ref());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unix(text: &str) -> String {
    text.replace("\r\n", "\n")
}

/// Returns the file that an `#include` in a file of `folder` names.
fn locate(include: &Include<'_>, folder: &Path, options: &Options) -> Option<PathBuf> {
    let beside = include.quoted.then_some(folder);
    let mut folders = beside.into_iter().chain(options.folders());
    folders.find_map(|folder| Some(folder.join(include.name)).filter(|path| path.is_file()))
}

/// An `#include` line.
#[derive(Debug, PartialEq, Eq)]
struct Include<'a> {
    /// The name between the quotes or the angle brackets.
    name: &'a str,
    /// Whether it is between quotes, so that the folder of the including file is searched first.
    quoted: bool,
}

/// Returns the `#include` lines outside comments, also those in branches that the preprocessor skips. Leaves out lines
/// whose name is a macro.
fn includes(text: &str) -> Vec<Include<'_>> {
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
    fn included_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        fs::create_dir(folder.path().join("inc")).unwrap();
        write(
            "k.cu",
            "#include \"a.cuh\"\n#include <b.cuh>\n#include <cuda_fp16.h>\n#include \"gone.h\"",
        );
        write("a.cuh", "#include \"a.cuh\"\n#include \"c.cuh\"");
        write("c.cuh", "int c;");
        write("inc/b.cuh", "int b;");
        let options = Options::new().include(folder.path().join("inc"));
        let source = Source::read("k.cu", &folder.path().join("k.cu"), &options).unwrap();
        let names: Vec<_> = source.headers().iter().map(|header| header.name.as_str()).collect();
        assert_eq!(names, ["a.cuh", "b.cuh", "c.cuh"]);
        let before = source.digest(&options);
        write("c.cuh", "int c;\r\n");
        let changed = Source::read("k.cu", &folder.path().join("k.cu"), &options).unwrap();
        assert_ne!(changed.digest(&options), before);
        write("c.cuh", "int c;");
        write("inc/c.cuh", "int other;");
        write("inc/b.cuh", "#include \"c.cuh\"");
        let error = Source::read("k.cu", &folder.path().join("k.cu"), &options).unwrap_err();
        assert!(matches!(error, Error::SameHeaderName { .. }), "{error}");
    }

    #[test]
    fn digest_depends_on_flags_but_not_on_line_ends() {
        let (unix, dos) = (Source::from_text("a", "x\ny"), Source::from_text("b", "x\r\ny"));
        let options = Options::new();
        assert_eq!(unix.digest(&options), dos.digest(&options));
        assert_ne!(unix.digest(&options), unix.digest(&Options::new().flag("--fmad=false")));
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
    }

    #[test]
    fn missing_file_is_an_error() {
        let error = Source::read("k.cu", Path::new("/no/k.cu"), &Options::new()).unwrap_err();
        assert!(error.to_string().starts_with("`/no/k.cu` cannot be read"), "{error}");
    }

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
