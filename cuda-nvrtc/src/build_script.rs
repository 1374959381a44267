//! Compiles in a build script.

use std::{
    env, fs,
    path::{Path, PathBuf},
};

use crate::{
    VARIABLES,
    error::{Error, Result},
    nvrtc::Nvrtc,
    options::Options,
    resolve::resolve,
};

/// Compiles a source to `$OUT_DIR/NAME.ptx`, for `#[ptx = "$OUT_DIR/NAME.ptx"]` of `kernels!`. Returns the path of the
/// PTX. `path` is relative to the folder of the package. Cargo runs the build script again when the source or a header
/// changes.
///
/// Without NVRTC, the PTX is the file beside the source, as for [`resolve()`].
///
/// ```no_run
/// // build.rs
/// fn main() -> Result<(), cuda_nvrtc::Error> {
///     cuda_nvrtc::build_script::compile("kernels/saxpy.cu", &cuda_nvrtc::Options::new())?;
///     Ok(())
/// }
/// ```
///
/// # Errors
/// As [`resolve()`]; [`Error::NoCompiler`] if there is neither NVRTC nor a PTX file; [`Error::File`] if the PTX cannot
/// be written, for example because the program is not a build script.
pub fn compile(path: impl AsRef<Path>, options: &Options) -> Result<PathBuf> {
    let path = path.as_ref();
    let resolved = resolve(&path.display().to_string(), path, options)?;
    for file in &resolved.files {
        println!("cargo::rerun-if-changed={}", file.display());
    }
    // The file beside the source may be created later.
    println!("cargo::rerun-if-changed={}", path.with_extension("ptx").display());
    VARIABLES.iter().for_each(|name| println!("cargo::rerun-if-env-changed={name}"));
    let Some((ptx, _)) = resolved.ptx else {
        let none = Error::NotFound { searched: String::new() };
        return Err(Nvrtc::find_for(&resolved.source).err().unwrap_or(none));
    };
    ptx.log.lines().for_each(|line| println!("cargo::warning={line}"));
    let folder = env::var_os("OUT_DIR").map(PathBuf::from).unwrap_or_default();
    let target = folder.join(path.with_extension("ptx").file_name().unwrap_or_default());
    let written = if folder.as_os_str().is_empty() {
        Err(std::io::Error::other("OUT_DIR is not set; call this in a build script"))
    } else {
        fs::write(&target, ptx.text)
    };
    written.map_err(|error| Error::written(&target, &error))?;
    Ok(target)
}
