//! `compile`: CUDA C to PTX at run time.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use cuda_core::{Error, Result};
use cuda_nvrtc::{Options, Source};

use crate::{
    context::ExecutionContext,
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
