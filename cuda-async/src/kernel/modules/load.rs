//! `load_ptx`: compiles and loads kernels without blocking.

use std::{
    borrow::Cow,
    task::{Context, Poll},
};

use cuda_core::{Loading, Module, Result};

use crate::{
    context::ExecutionContext,
    op::{Op, Submit, Submitted},
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
/// The errors of [`Device::load_ptx_blocking`](cuda_core::Device::load_ptx_blocking);
/// [`Error::NeedsHostData`](crate::Error::NeedsHostData) in [`async_on`](crate::DeviceOp::async_on), where steps may
/// not wait.
pub fn load_ptx<'a>(ptx: impl Into<Cow<'a, str>>) -> Op<LoadPtx<'a>> {
    Op::new(LoadPtx(State::Idle(ptx.into())))
}

/// The steps of [`load_ptx`].
pub struct LoadPtx<'a>(State<'a>);

enum State<'a> {
    Idle(Cow<'a, str>),
    Loading(Box<Loading>),
}

impl Submit for LoadPtx<'_> {
    type Output = Module;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        cx.waits().wait_by_wakers("load_ptx", task)?;
        let mut loading = match self.0 {
            State::Idle(ptx) => Box::new(cx.device().start_loading(&ptx)?),
            State::Loading(loading) => loading,
        };
        Ok(match loading.poll(task)? {
            Poll::Ready(module) => Submitted::Ready(module),
            Poll::Pending => Submitted::Pending(Self(State::Loading(loading))),
        })
    }
}
