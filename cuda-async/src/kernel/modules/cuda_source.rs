//! `CudaSource`: CUDA C in a program.

use std::borrow::Cow;

use cuda_core::{Device, Error, Module, Result};
use cuda_nvrtc::{Cache, Nvrtc, Options, Source};

use crate::kernel::declared::Kernel;

/// CUDA C in a program, with its PTX if NVRTC compiled it while the program was built. A struct of
/// [`kernels!`](crate::kernels) with `#[cuda = ".."]` has one as `SOURCE`.
///
/// Without PTX, the first use compiles the source with NVRTC, or takes the result of an earlier run from the
/// [cache](cuda_nvrtc::Cache) on disk.
///
/// ```
/// use cuda_async::kernel::{CudaSource, ModuleCache};
///
/// const SOURCE: CudaSource = CudaSource::new("zero.cu", "extern \"C\" __global__ void zero(float *x) { x[threadIdx.x] = 0; }")
///     .flags(&["--fmad=false"]);
/// static KERNELS: ModuleCache = ModuleCache::of_source(SOURCE);
/// assert_eq!(SOURCE.name(), "zero.cu");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct CudaSource {
    name: &'static str,
    text: &'static str,
    headers: &'static [(&'static str, &'static str)],
    flags: &'static [&'static str],
    ptx: Option<&'static str>,
    /// The declared kernels, with which compiled PTX is compared.
    kernels: &'static [Kernel],
}

impl CudaSource {
    /// Creates a source that is compiled at run time. Messages call it `name`.
    pub const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, headers: &[], flags: &[], ptx: None, kernels: &[] }
    }

    /// Sets the headers, each with the name in its `#include`.
    pub const fn headers(mut self, headers: &'static [(&'static str, &'static str)]) -> Self {
        self.headers = headers;
        self
    }

    /// Sets the options of NVRTC.
    pub const fn flags(mut self, flags: &'static [&'static str]) -> Self {
        self.flags = flags;
        self
    }

    /// Sets the PTX, and the declared kernels. PTX that is compiled at run time is compared with them. For `kernels!`.
    #[doc(hidden)]
    pub const fn declared(mut self, ptx: Option<&'static str>, kernels: &'static [Kernel]) -> Self {
        self.ptx = ptx;
        self.kernels = kernels;
        self
    }

    /// Returns the name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the text, without headers.
    pub const fn text(&self) -> &'static str {
        self.text
    }

    /// Returns the PTX if it was compiled with the program.
    pub const fn built_ptx(&self) -> Option<&'static str> {
        self.ptx
    }

    /// Returns the PTX. Blocks while NVRTC compiles it, unless it was compiled with the program or is in the cache.
    ///
    /// # Errors
    /// The errors of [`compile`](crate::kernel::compile()), and [`Error::NoSuchKernel`] or [`Error::Arguments`] if the
    /// source does not have the kernels that the program declares.
    pub fn ptx(&self) -> Result<Cow<'static, str>> {
        if let Some(ptx) = self.ptx {
            return Ok(ptx.into());
        }
        let headers = self.headers.iter();
        let source = Source::from_text(self.name, self.text);
        let source = headers.fold(source, |source, (name, text)| source.header(*name, *text));
        let options = self.flags.iter().fold(Options::new(), |options, flag| options.flag(flag));
        let compiled = Nvrtc::find_for(&source).and_then(|nvrtc| {
            let compile = if self.kernels.is_empty() {
                cuda_nvrtc::compile_with
            } else {
                cuda_nvrtc::compile_with_types
            };
            compile(nvrtc, &Cache::of_user(), &source, &options)
        });
        let ptx = compiled.map_err(Error::other)?.text;
        Kernel::check_all(self.kernels, &ptx)?;
        Ok(ptx.into())
    }

    /// Compiles the source, if it is not compiled yet, and loads it on `device`. Blocks.
    ///
    /// # Errors
    /// The errors of [`ptx`](Self::ptx) and [`Device::load_ptx_blocking`].
    pub fn load(&self, device: &Device) -> Result<Module> {
        device.load_ptx_blocking(&self.ptx()?)
    }
}
