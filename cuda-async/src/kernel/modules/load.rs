//! `load_ptx`: compiles and loads kernels without blocking.

use std::{
    borrow::Cow,
    task::{Context, Poll, ready},
};

use cuda_core::{Error, Loading, Module, Result};

use crate::{
    context::ExecutionContext,
    op::{Live, Op, Submit},
};

/// Compiles and loads PTX on the operation's device. The compiler runs on a thread of the device, so no executor thread
/// waits for it. [`Device::load_ptx_blocking`](cuda_core::Device::load_ptx_blocking) is the blocking form.
///
/// ```standalone_crate
/// use cuda_async::{kernel::load_ptx, prelude::*};
/// # const PTX: &str = include_str!("../../../../kernels/vecadd.ptx");
/// let kernel = load_ptx(PTX).map(|module| module.function("vecadd")).sync()??;
/// assert_eq!(kernel.name(), "vecadd");
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// As [`Device::load_ptx_blocking`](cuda_core::Device::load_ptx_blocking); [`Error::NeedsHostData`] in
/// [`async_on`](crate::DeviceOp::async_on), where steps may not wait.
pub fn load_ptx<'a>(ptx: impl Into<Cow<'a, str>>) -> Op<LoadPtx<'a>> {
    Op::new(LoadPtx(Live::new(State::Idle(ptx.into()))))
}

/// The steps of [`load_ptx`].
pub struct LoadPtx<'a>(Live<State<'a>>);

enum State<'a> {
    Idle(Cow<'a, str>),
    Loading(Box<Loading>),
}

impl Submit for LoadPtx<'_> {
    type Output = Module;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Module>> {
        cx.wait_by_wakers("load_ptx", task)?;
        if let State::Idle(ptx) = self.0.get()? {
            let loading = cx.device().start_loading(ptx)?;
            self.0.set(State::Loading(Box::new(loading)));
        }
        let State::Loading(loading) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let loaded = ready!(loading.poll(task));
        self.0.end();
        Poll::Ready(loaded)
    }
}
