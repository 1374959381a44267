//! `resolve`: the PTX of a source while a program is built.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    cache::{Cache, compile_with_types},
    error::{Error, Result},
    nvrtc::Nvrtc,
    options::Options,
    ptx::{Ptx, made_from},
    source::Source,
};

/// A source and its PTX.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// The source with its headers.
    pub source: Source,
    /// The PTX, and its origin. `None` if there is neither NVRTC nor a PTX file, so that the program has to compile the
    /// source when it runs.
    pub ptx: Option<(Ptx, Origin)>,
    /// The files that decide the result: the source, its headers, and the PTX file if it exists. The result has to be
    /// made again when one of them changes.
    pub files: Vec<PathBuf>,
}

/// The origin of a PTX text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// NVRTC compiled it, now or earlier.
    Compiled,
    /// It is the file beside the source.
    File,
}

/// Finds the PTX of the source in `file`. NVRTC compiles the source if it is installed. Otherwise the PTX is the file
/// beside the source with the suffix `.ptx`, which `cuda-nvrtc kernel.cu` makes. It must state the digest of this
/// source and these options.
///
/// # Errors
/// [`Error::File`], [`Error::Compile`], and [`Error::Stale`] if there is no NVRTC and the file was made from another
/// source.
pub fn resolve(name: &str, file: &Path, options: &Options) -> Result<Resolved> {
    match Nvrtc::find() {
        Ok(nvrtc) => resolve_with(Some(nvrtc), &Cache::of_user(), name, file, options),
        Err(Error::NotFound { .. } | Error::Unusable { .. }) => {
            resolve_with(None, &Cache::off(), name, file, options)
        }
        Err(error) => Err(error),
    }
}

/// As [`resolve()`], with the given library and cache. With `None`, as if NVRTC were not installed.
///
/// # Errors
/// As [`resolve()`].
pub fn resolve_with(
    nvrtc: Option<&Nvrtc>,
    cache: &Cache,
    name: &str,
    file: &Path,
    options: &Options,
) -> Result<Resolved> {
    let source = Source::read(name, file, options)?;
    let beside = file.with_extension("ptx");
    let headers = source.headers().iter().filter_map(|header| header.file.clone());
    let mut files: Vec<_> = [file.to_owned()].into_iter().chain(headers).collect();
    files.dedup();
    if beside.is_file() {
        files.push(beside.clone());
    }
    let ptx = match nvrtc {
        Some(nvrtc) => {
            Some((compile_with_types(nvrtc, cache, &source, options)?, Origin::Compiled))
        }
        None if beside.is_file() => Some((read(&source, &beside, options)?, Origin::File)),
        None => None,
    };
    Ok(Resolved { source, ptx, files })
}

/// Reads the file beside a source.
fn read(source: &Source, file: &Path, options: &Options) -> Result<Ptx> {
    let text = fs::read_to_string(file).map_err(|error| Error::read(file, &error))?;
    let detail = match made_from(&text) {
        Some(digest) if digest == source.digest(options) => {
            return Ok(Ptx { text, log: String::new() });
        }
        Some(_) => "the source, one of its headers or the options have changed",
        None => "it does not state its source",
    };
    Err(Error::Stale { ptx: file.to_owned(), source_name: source.name().to_owned(), detail })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ptx::stamped;

    fn without_nvrtc(file: &Path, options: &Options) -> Result<Resolved> {
        resolve_with(None, &Cache::off(), "k.cu", file, options)
    }

    #[test]
    fn file_beside_the_source_is_used_while_it_is_fresh() {
        let folder = tempfile::tempdir().unwrap();
        let (cu, ptx) = (folder.path().join("k.cu"), folder.path().join("k.ptx"));
        let header = folder.path().join("h.cuh");
        fs::write(&cu, "#include \"h.cuh\"\n__global__ void k() {}").unwrap();
        fs::write(&header, "int h;").unwrap();
        let options = Options::new();
        let nothing = without_nvrtc(&cu, &options).unwrap();
        assert!(nothing.ptx.is_none());
        assert_eq!(nothing.files, [cu.clone(), header.clone()]);

        let digest = nothing.source.digest(&options);
        fs::write(&ptx, stamped(".version 8.0\n", "k.cu", &digest, &[])).unwrap();
        let fresh = without_nvrtc(&cu, &options).unwrap();
        assert_eq!(fresh.ptx.unwrap().1, Origin::File);
        assert_eq!(fresh.files, [cu.clone(), header.clone(), ptx.clone()]);

        let stale = |options: &Options| {
            let error = without_nvrtc(&cu, options).unwrap_err();
            assert!(matches!(error, Error::Stale { .. }), "{error}");
            error.to_string()
        };
        assert!(
            stale(&Options::new().flag("--fmad=false"))
                .contains("make it again with `cuda-nvrtc k.cu`")
        );
        fs::write(&header, "int h2;").unwrap();
        assert!(stale(&options).contains("have changed"));
        fs::write(&ptx, ".version 8.0\n").unwrap();
        assert!(stale(&options).contains("does not state its source"));
    }
}
