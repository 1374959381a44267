//! `Nvrtc`: the compiler.

use std::{
    env,
    ffi::CString,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use crate::{
    error::{Error, Result},
    find,
    library::{Api, Failed, Program, path_of},
    options::Options,
    ptx::{Ptx, stamped},
    signature::PROBE,
    source::Source,
};

/// A loaded NVRTC library. Several threads may compile at once.
pub struct Nvrtc {
    api: Api,
    library: PathBuf,
    version: (u32, u32),
    /// The folders of CUDA's own headers.
    headers: Vec<PathBuf>,
}

impl Nvrtc {
    /// Returns the library of this process. The first call searches for it; the result is kept, unless there is none.
    ///
    /// If `CUDA_NVRTC` is set, only that is used. Otherwise the search goes on in this order: a toolkit in `CUDA_PATH`
    /// or `CUDA_HOME`; the wheels `nvidia-cuda-nvrtc*` of `VIRTUAL_ENV`; a toolkit in `/usr/local/cuda*`; the library
    /// path; the wheels of `python3`.
    ///
    /// # Errors
    /// [`Error::NotFound`], or [`Error::Unusable`] if no library that was found can be used.
    pub fn find() -> Result<&'static Self> {
        static FOUND: OnceLock<Nvrtc> = OnceLock::new();
        if let Some(found) = FOUND.get() {
            return Ok(found);
        }
        let found = Self::search()?;
        Ok(FOUND.get_or_init(|| found))
    }

    /// Returns the library, like [`find`](Self::find). The error names `source`.
    ///
    /// # Errors
    /// [`Error::NoCompiler`] if [`find`](Self::find) fails.
    pub fn find_for(source: &Source) -> Result<&'static Self> {
        Self::find().map_err(|cause| Error::NoCompiler {
            source_name: source.name().to_owned(),
            cause: Box::new(cause),
        })
    }

    fn search() -> Result<Self> {
        let variable =
            |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let given = variable(find::VARIABLE);
        let missing = || Error::NotFound { searched: find::searched() };
        if given.as_deref() == Some(Path::new(find::OFF)) {
            return Err(missing());
        }
        let mut unusable = None;
        let mut first_usable = |candidates: Vec<PathBuf>| {
            candidates.into_iter().find_map(|path| {
                let loaded = Self::load(&path);
                // A bare name that the loader does not find is not installed; a file that cannot be loaded is unusable.
                loaded
                    .map_err(|error| {
                        if path.is_file() {
                            unusable.get_or_insert(error);
                        }
                    })
                    .ok()
            })
        };
        if let Some(found) = first_usable(find::candidates(variable)) {
            return Ok(found);
        }
        if given.is_none()
            && let Some(found) = first_usable(find::of_python())
        {
            return Ok(found);
        }
        Err(unusable.unwrap_or_else(missing))
    }

    /// Loads the library at `path`.
    ///
    /// # Errors
    /// [`Error::Unusable`].
    pub fn load(path: &Path) -> Result<Self> {
        let unusable = |detail| Error::Unusable { library: path.display().to_string(), detail };
        let api = Api::load(path).map_err(unusable)?;
        let version = api.version().map_err(|failed| unusable(failed.status))?;
        let library = path_of(path);
        let headers = find::header_folders(&library);
        Ok(Self { api, library, version, headers })
    }

    /// Returns the version of CUDA to which the compiler belongs, as (12, 4).
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Returns the path of the library, or its name if the system's loader found it.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Compiles a source. The text begins with comments that name the source and its digest.
    ///
    /// # Errors
    /// [`Error::Compile`] with the compiler's messages, [`Error::Call`] and [`Error::Nul`].
    pub fn compile(&self, source: &Source, options: &Options) -> Result<Ptx> {
        let (ptx, log) = self.run(source, source.text(), options)?;
        Ok(Ptx { text: stamped(&ptx, source.name(), &source.digest(options), &[]), log })
    }

    /// Compiles a source as [`compile`](Self::compile) does, and adds comments with the types of the parameters of its
    /// kernels: [`signature::of_entry`](crate::signature::of_entry) reads them. The compiler runs twice.
    ///
    /// # Errors
    /// As [`compile`](Self::compile).
    pub fn compile_with_types(&self, source: &Source, options: &Options) -> Result<Ptx> {
        let (ptx, log) = self.run(source, source.text(), options)?;
        let entries: Vec<_> = entries(&ptx).filter(|name| !name.starts_with("_Z")).collect();
        // Without the types, a declaration is checked by the sizes alone.
        let probes = self.probes(source, options, &entries).unwrap_or_default();
        Ok(Ptx { text: stamped(&ptx, source.name(), &source.digest(options), &probes), log })
    }

    /// Returns a name for each kernel that holds the types of its parameters.
    fn probes(
        &self,
        source: &Source,
        options: &Options,
        entries: &[&str],
    ) -> Result<Vec<(String, String)>> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let text = format!("{}\ntemplate <class> __global__ void {PROBE}() {{}}\n", source.text());
        let failed = |failed| self.failed(source, failed);
        let mut program = self.program(source, &text)?;
        let mut names = Vec::new();
        for entry in entries {
            let expression =
                c_string(&format!("{PROBE}<decltype(&{entry})>"), "the name of a kernel")?;
            program.add_name(&expression).map_err(failed)?;
            names.push((*entry, expression));
        }
        program.compile(&self.flags(options)?).map_err(failed)?;
        let lowered = |(entry, expression): (&str, CString)| {
            Ok((entry.to_owned(), program.lowered_name(&expression).map_err(failed)?))
        };
        names.into_iter().map(lowered).collect()
    }

    /// Compiles `text` with the headers of `source`. Returns the PTX and the log.
    fn run(&self, source: &Source, text: &str, options: &Options) -> Result<(String, String)> {
        let mut program = self.program(source, text)?;
        let compiled = program.compile(&self.flags(options)?);
        let log = program.log().map_err(|failed| self.failed(source, failed))?.trim().to_owned();
        match compiled {
            Ok(()) => Ok((program.ptx().map_err(|failed| self.failed(source, failed))?, log)),
            Err(failed) if failed.by_source || !log.is_empty() => {
                Err(Error::Compile { source_name: source.name().to_owned(), log })
            }
            Err(failed) => Err(self.failed(source, failed)),
        }
    }

    fn program(&self, source: &Source, text: &str) -> Result<Program<'_>> {
        let name = c_string(source.name(), "the name of the source")?;
        let text = c_string(text, source.name())?;
        let header = |header: &crate::Header| {
            Ok((
                c_string(&header.name, "the name of a header")?,
                c_string(&header.text, &header.name)?,
            ))
        };
        let headers = source.headers().iter().map(header).collect::<Result<Vec<_>>>()?;
        Program::new(&self.api, &name, &text, &headers)
            .map_err(|failed| self.failed(source, failed))
    }

    fn flags(&self, options: &Options) -> Result<Vec<CString>> {
        let folders = options.folders().chain(self.headers.iter().map(PathBuf::as_path));
        let folders = folders.map(|folder| format!("--include-path={}", folder.display()));
        options
            .flags()
            .into_iter()
            .chain(folders)
            .map(|flag| c_string(&flag, "an option"))
            .collect()
    }

    fn failed(&self, source: &Source, failed: Failed) -> Error {
        let Failed { call, status, .. } = failed;
        Error::Call { source_name: source.name().to_owned(), call, status }
    }
}

impl std::fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nvrtc")
            .field("library", &self.library)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

fn c_string(text: &str, what: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::Nul { what: what.to_owned() })
}

/// The names of the kernels of a PTX text that NVRTC wrote.
fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| {
        let rest = line.trim_start();
        let rest = rest.strip_prefix(".visible").map_or(rest, str::trim_start);
        let name = rest.strip_prefix(".entry")?.trim_start();
        name.split(|c: char| c == '(' || c.is_whitespace()).next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_that_is_not_nvrtc_is_unusable() {
        let error = Nvrtc::load(Path::new("/there/is/no/libnvrtc.so.12")).unwrap_err();
        assert!(
            matches!(&error, Error::Unusable { library, .. } if library.contains("/there/is")),
            "{error}"
        );
        let not_nvrtc = if cfg!(target_os = "linux") { "libc.so.6" } else { "no-such-library" };
        assert!(matches!(Nvrtc::load(Path::new(not_nvrtc)), Err(Error::Unusable { .. })));
    }

    #[test]
    fn kernels_of_ptx_are_listed() {
        let ptx = ".version 8.4\n.visible .entry saxpy(\n.entry b (\n.func c(\n  .visible .entry _Z1kv()\n";
        assert_eq!(entries(ptx).collect::<Vec<_>>(), ["saxpy", "b", "_Z1kv"]);
    }
}
