//! `Source`: a text with the headers that it includes.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    includes::{Include, includes},
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

    /// Returns the SHA-256 of the text, the headers and the flags of `options`, in hexadecimal. LF and CRLF line ends give the
    /// same digest, so it is the same on every system.
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
}
