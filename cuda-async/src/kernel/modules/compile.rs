//! `compile`: CUDA C to PTX at run time.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    thread,
};

use cuda_core::{
    Error, Result,
    internals::sync::{Receiver, one_shot},
};
use cuda_nvrtc::{Options, Source};

use crate::{
    context::ExecutionContext,
    op::{Live, Op, Submit},
};

/// Compiles CUDA C to PTX with NVRTC. The compiler runs on a thread of its own, so no executor thread waits for it. A result of
/// an earlier compilation, by any process of the user, comes from a cache on disk: see [`nvrtc::Cache`](cuda_nvrtc::Cache).
///
/// NVRTC runs on this machine, also if the operation's device is on another one. It is looked for when this is first called:
/// see [`nvrtc::Nvrtc::find`](cuda_nvrtc::Nvrtc::find). PTX does not depend on the device, so this uses none.
///
/// ```no_run
/// use cuda_async::{kernel::{Options, Source, compile, load_ptx}, prelude::*};
///
/// let source = Source::from_text("zero.cu", "extern \"C\" __global__ void zero(float *x) { x[threadIdx.x] = 0; }");
/// let module = compile(source, Options::new().flag("--fmad=false")).then(load_ptx).sync()?;
/// assert_eq!(module.entries()[0].name, "zero");
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// The errors of [`nvrtc::compile`](cuda_nvrtc::compile()): NVRTC is not installed, or the source has mistakes, with the
/// compiler's messages and lines. [`Error::downcast_ref`] returns the [`nvrtc::Error`](cuda_nvrtc::Error). [`Error::Host`] if
/// the thread cannot be started, and [`Error::NeedsHostData`] in [`async_on`](crate::DeviceOp::async_on), where steps may not
/// wait.
pub fn compile(source: Source, options: Options) -> Op<Compile> {
    Op::new(Compile(Live::new(State::Idle(Box::new((source, options))))))
}

/// Compiles CUDA C to PTX as [`compile`] does, and blocks.
///
/// # Errors
/// As [`compile`], of the compiler.
pub fn compile_blocking(source: &Source, options: &Options) -> Result<String> {
    cuda_nvrtc::compile(source, options).map(|ptx| ptx.text).map_err(Error::other)
}

/// The steps of [`compile`].
pub struct Compile(Live<State>);

enum State {
    Idle(Box<(Source, Options)>),
    Compiling(OnThread<String>),
}

impl Submit for Compile {
    type Output = String;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<String>> {
        cx.wait_by_wakers("compile", task)?;
        if let State::Idle(parts) = self.0.get()? {
            let parts = parts.clone();
            let compiling = OnThread::start(move || compile_blocking(&parts.0, &parts.1))?;
            self.0.set(State::Compiling(compiling));
        }
        let State::Compiling(compiling) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let compiled = ready!(Pin::new(compiling).poll(task));
        self.0.end();
        Poll::Ready(compiled)
    }
}

/// The result of a function that runs on a thread of its own. The function runs to its end also if this is dropped.
pub(super) struct OnThread<T>(Receiver<Result<T>>);

impl<T: Send + 'static> OnThread<T> {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Host`].
    pub(super) fn start(run: impl FnOnce() -> Result<T> + Send + 'static) -> Result<Self> {
        let (sender, receiver) = one_shot();
        thread::Builder::new()
            .name("nvrtc".into())
            .spawn(move || sender.send(run()))
            .map_err(|error| Error::host("starting a thread for NVRTC", &error))?;
        Ok(Self(receiver))
    }
}

impl<T> Future for OnThread<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<T>> {
        // Without a value, the thread has panicked.
        let ended = || Err(Error::host("compiling with NVRTC", &"the thread ended early"));
        self.0.poll(task).map(|result| result.unwrap_or_else(ended))
    }
}
