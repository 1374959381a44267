//! `PlanExt`: the plan of an operation.

use cuda_core::{
    Device, Result,
    internals::{end_plan, start_plan},
};

use crate::{graph::plan::nodes::Plan, ops::DeviceOp, run::blocking, runtime};

/// Methods that show the work of an operation.
pub trait PlanExt: DeviceOp {
    /// Returns the work that this operation would submit to the default device. Nothing runs on the device, and memory
    /// that the operation allocates does not exist there. The closures of the operation run once, now.
    ///
    /// - Kernels belong to a device: use [`plan_on`](Self::plan_on) with the device of their modules, if it is not the
    ///   default one.
    /// - Uploads copy their bytes to pinned host memory, as those of a [graph](crate::graph::GraphExt::graph) do. So
    ///   this call may block while the driver pins memory.
    /// - A [`shared`](DeviceOp::shared) operation that first runs here has no result, so its clones return an error
    ///   outside the plan.
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, memory::fill, prelude::*};
    /// let both = zip!(zeros::<u32>(4), zeros::<u8>(8)).named("clear");
    /// let plan = both.then(|(a, _)| fill(a, 7)).plan()?;
    /// println!("{plan}");
    /// assert!(plan.to_dot().contains("label=\"clear\""));
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`graph`](crate::graph::GraphExt::graph).
    fn plan(self) -> Result<Plan> {
        self.plan_on(&runtime::default_device()?)
    }

    /// Returns the work that this operation would submit to `device`; see [`plan`](Self::plan).
    ///
    /// ```
    /// use cuda_async::{graph::PlanExt, prelude::*};
    /// let plan = zeros::<u8>(1 << 50).plan_on(&cuda_async::open_blocking("cpu")?)?; // the memory does not exist
    /// assert_eq!(plan.len(), 1);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`graph`](crate::graph::GraphExt::graph).
    fn plan_on(self, device: &Device) -> Result<Plan> {
        let stream = start_plan(device);
        let output = blocking::submit_only(self.into_op().into_steps(), stream.clone())?;
        drop(output);
        Ok(Plan::of_nodes(end_plan(&stream)?))
    }
}

impl<O: DeviceOp> PlanExt for O {}
