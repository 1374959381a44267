//! Launches of kernels that cudarc has loaded.

use std::{sync::Arc, task::Context};

use cuda_core::{Arguments, Error, Feature, LaunchConfig, Result, protocol::LaunchAttributes};
use cudarc::driver::{CudaFunction, result};

use super::device::failed;
use crate::{
    context::ExecutionContext,
    kernel::{BufferTuple, Buffers, KernelArgs},
    op::{Op, Submit, Submitted},
};

/// The steps of [`launch`].
pub struct ForeignLaunch<A>(CudaFunction, LaunchConfig, A);

/// Runs a kernel of a module that cudarc has loaded. Takes the arguments of [`launch`](crate::launch) and gives the
/// same output.
///
/// # Errors
/// [`Error::Unsupported`] on a device that is not a GPU of this process, and for a launch with attributes (cooperative,
/// clusters, dependent); or an error of the device.
///
/// # Safety
/// - The number and the types of the arguments are those that the kernel takes. They are not checked.
/// - Everything that [`launch`](crate::launch) requires.
pub unsafe fn launch<A: KernelArgs>(
    function: &CudaFunction,
    config: LaunchConfig,
    args: A,
) -> Op<ForeignLaunch<A>> {
    Op::new(ForeignLaunch(function.clone(), config, args))
}

impl<A: KernelArgs> Submit for ForeignLaunch<A> {
    type Output = Buffers<A>;

    fn submit(self, _: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self(function, config, args) = self;
        if config.attributes != LaunchAttributes::default() {
            let device = &cx.device().info().address;
            return Err(Error::unsupported(Feature::ForeignLaunchAttributes, device));
        }
        cx.enqueue(|stream| {
            let mut arguments = Arguments::new();
            args.push_all(&mut arguments);
            // SAFETY: the arguments are those that the kernel takes, and the kernel stays inside the buffers among
            // them, as the safety section of `launch` requires. The function holds its module. `args` holds the buffers
            // until the launch is enqueued.
            unsafe {
                let kernel = function.cu_function();
                arguments.launch_foreign(stream, Arc::new(function), |raw, arguments| {
                    result::launch_kernel(
                        kernel,
                        config.grid.into(),
                        config.block.into(),
                        config.shared_bytes,
                        raw.stream.cast(),
                        arguments,
                    )
                    .map_err(failed)
                })
            }
        })?;
        Ok(Submitted::Ready(args.give_back(()).bare()))
    }
}
