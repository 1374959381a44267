//! Nodes of graphs, with the addresses and handles of the driver.

use std::ffi::c_void;

use smallvec::SmallVec;

use crate::{
    cuda::{
        context::{Bound, Primary},
        driver::{
            api::{
                Api, ContextHandle, CopyParams, ExecutableHandle, FillParams, FunctionHandle,
                GraphHandle, KernelParams, LAUNCH_PARAM, NodeHandle,
            },
            status::Failed,
        },
    },
    protocol::LaunchConfig,
};

/// A node of the driver.
#[derive(Debug, Clone)]
pub(crate) enum DriverNode {
    Empty,
    Kernel(KernelNode),
    Copy(CopyParams),
    Fill(FillParams),
}

// SAFETY: the pointers are addresses for the driver. Nothing here dereferences them.
unsafe impl Send for DriverNode {}

/// A launch with its parameters.
#[derive(Debug, Clone)]
pub(crate) struct KernelNode {
    pub(crate) function: FunctionHandle,
    pub(crate) config: LaunchConfig,
    /// The parameter block, in words.
    pub(crate) params: SmallVec<[u64; 8]>,
    /// The size of the parameter block in bytes.
    pub(crate) bytes: usize,
}

impl KernelNode {
    /// Calls `call` with the driver's form of this launch.
    fn with<T>(&self, call: impl FnOnce(&KernelParams) -> T) -> T {
        let mut size = self.bytes;
        let [end, pointer, length] = LAUNCH_PARAM;
        let size_at = (&raw mut size).cast::<c_void>();
        let block = self.params.as_ptr().cast_mut().cast::<c_void>();
        let mut extra = [pointer, block, length, size_at, end];
        let LaunchConfig { grid, block, shared_bytes } = self.config;
        call(&KernelParams {
            function: self.function,
            grid,
            block,
            shared_bytes,
            params: std::ptr::null_mut(),
            extra: if size == 0 { std::ptr::null_mut() } else { extra.as_mut_ptr() },
            kernel: std::ptr::null_mut(),
            context: ContextHandle::NULL,
        })
    }
}

impl DriverNode {
    /// Adds this node to a graph, after other nodes of it.
    ///
    /// # Safety
    /// The graph exists, `after` are nodes of it, and the function's module is loaded.
    pub(super) unsafe fn add(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        primary: &Primary,
        _: &Bound,
    ) -> Result<NodeHandle, Failed> {
        let (api, context) = (primary.api, primary.context);
        let mut node = NodeHandle::NULL;
        let (first, count) = (after.as_ptr(), after.len());
        // SAFETY: the caller's promise. The driver copies the parameters, and writes one handle.
        unsafe {
            match self {
                Self::Empty => api.graph_add_empty(&mut node, graph, first, count),
                Self::Kernel(kernel) => kernel
                    .with(|params| api.graph_add_kernel(&mut node, graph, first, count, params)),
                Self::Copy(params) => {
                    api.graph_add_copy(&mut node, graph, first, count, params, context)
                }
                Self::Fill(params) => {
                    api.graph_add_fill(&mut node, graph, first, count, params, context)
                }
            }
        }?;
        Ok(node)
    }

    /// Gives the parameters of this node to a node of an executable, for its later launches. The node is of the same
    /// kind.
    ///
    /// # Safety
    /// The executable exists, `node` is a node of its graph, and the function's module is loaded.
    pub(super) unsafe fn set(
        &self,
        executable: ExecutableHandle,
        node: NodeHandle,
        primary: &Primary,
        _: &Bound,
    ) -> Result<(), Failed> {
        let (api, context): (&Api, _) = (primary.api, primary.context);
        // SAFETY: the caller's promise. The driver copies the parameters.
        unsafe {
            match self {
                Self::Empty => Ok(()),
                Self::Kernel(kernel) => {
                    kernel.with(|params| api.executable_set_kernel(executable, node, params))
                }
                Self::Copy(params) => api.executable_set_copy(executable, node, params, context),
                Self::Fill(params) => api.executable_set_fill(executable, node, params, context),
            }
        }
    }

    /// Whether the other node is of the same kind.
    pub(super) fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}
