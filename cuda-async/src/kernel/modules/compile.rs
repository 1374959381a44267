//! `compile`: CUDA C to PTX at run time, and `CudaSource`, CUDA C in a program.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use cuda_core::{Device, Error, Module, Result};
use cuda_nvrtc::{Cache, Nvrtc, Options, Source};

use crate::{
    context::ExecutionContext,
    kernel::declared::Kernel,
    op::{Op, Submit, Submitted},
    wake::OnThread,
};

/// Compiles CUDA C to PTX with NVRTC. The compiler runs on a thread of its own, so no executor thread waits for it. A
/// result of an earlier compilation, by any process of the user, comes from a cache on disk: see
/// [`nvrtc::Cache`](cuda_nvrtc::Cache).
///
/// NVRTC runs on this machine, also if the operation's device is on another one. The first call looks for NVRTC: see
/// [`nvrtc::Nvrtc::find`](cuda_nvrtc::Nvrtc::find). PTX does not depend on the device, so this operation uses no
/// device.
///
/// ```no_run
/// use cuda_async::{kernel::{Options, Source, compile, load_ptx}, prelude::*};
///
/// let source = Source::from_text("zero.cu", "extern \"C\" __global__ void zero(float *x) { x[threadIdx.x] = 0; }");
/// let module = compile(&source, &Options::new().flag("--fmad=false")).then(load_ptx).sync()?;
/// assert_eq!(module.entries()[0].name, "zero");
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`nvrtc::compile`](cuda_nvrtc::compile()): NVRTC is not installed, or the source has mistakes, with
/// the compiler's messages and lines. [`Error::downcast_ref`] returns the [`nvrtc::Error`](cuda_nvrtc::Error).
/// [`Error::Host`] if the thread cannot be started, and [`Error::NeedsHostData`] in
/// [`async_on`](crate::DeviceOp::async_on), where steps may not wait.
pub fn compile(source: &Source, options: &Options) -> Op<Compile> {
    Op::new(Compile(State::Idle(Box::new((source.clone(), options.clone())))))
}

/// Compiles CUDA C to PTX as [`compile`] does, and blocks.
///
/// # Errors
/// The errors of [`compile`] that come from NVRTC.
pub fn compile_blocking(source: &Source, options: &Options) -> Result<String> {
    cuda_nvrtc::compile(source, options).map(|ptx| ptx.text).map_err(Error::other)
}

/// The steps of [`compile`].
pub struct Compile(State);

enum State {
    Idle(Box<(Source, Options)>),
    Compiling(OnThread<String>),
}

impl Submit for Compile {
    type Output = String;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        cx.waits().wait_by_wakers("compile", task)?;
        let mut compiling = match self.0 {
            State::Idle(parts) => OnThread::start("nvrtc", "compiling with NVRTC", move || {
                compile_blocking(&parts.0, &parts.1)
            })?,
            State::Compiling(compiling) => compiling,
        };
        Ok(match Pin::new(&mut compiling).poll(task)? {
            Poll::Ready(ptx) => Submitted::Ready(ptx),
            Poll::Pending => Submitted::Pending(Self(State::Compiling(compiling))),
        })
    }
}

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
