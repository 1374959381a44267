//! Compiles with the cache.

use crate::{
    cache::{self, Cache},
    error::Result,
    nvrtc::Nvrtc,
    options::Options,
    ptx::Ptx,
    source::Source,
};

/// Compiles a source with the library of this machine, or returns the text of an earlier compilation from the user's
/// cache. Blocks: a compilation takes 10 ms to several seconds.
///
/// # Errors
/// As [`Nvrtc::find_for`] and [`Nvrtc::compile`].
pub fn compile(source: &Source, options: &Options) -> Result<Ptx> {
    compile_with(Nvrtc::find_for(source)?, &Cache::of_user(), source, options)
}

/// Compiles a source with the given library and cache.
///
/// # Errors
/// As [`Nvrtc::compile`].
pub fn compile_with(
    nvrtc: &Nvrtc,
    cache: &Cache,
    source: &Source,
    options: &Options,
) -> Result<Ptx> {
    cached(nvrtc, cache, source, options, false)
}

/// Compiles a source as [`compile_with`] does, and adds the types of the kernels' parameters, as
/// [`Nvrtc::compile_with_types`] does.
///
/// # Errors
/// As [`Nvrtc::compile`].
pub fn compile_with_types(
    nvrtc: &Nvrtc,
    cache: &Cache,
    source: &Source,
    options: &Options,
) -> Result<Ptx> {
    cached(nvrtc, cache, source, options, true)
}

/// As [`compile_with`]. With `with_types`, the text also states the types of the kernels' parameters.
fn cached(
    nvrtc: &Nvrtc,
    cache: &Cache,
    source: &Source,
    options: &Options,
    with_types: bool,
) -> Result<Ptx> {
    let key = cache::key(nvrtc, source, options, with_types);
    if let Some(text) = cache.get(&key) {
        return Ok(Ptx { text, log: String::new() });
    }
    let ptx = match with_types {
        true => nvrtc.compile_with_types(source, options)?,
        false => nvrtc.compile(source, options)?,
    };
    cache.put(&key, &ptx.text);
    Ok(ptx)
}
