//! Nodes of graphs, with the addresses and handles of the driver, and loops of such nodes.

use std::{ffi::c_void, mem::Discriminant, sync::Arc};

use cuda_core::protocol::{LaunchConfig, Pattern};
use smallvec::SmallVec;

use super::child::ChildGraph;
use crate::{
    context::{Bound, Primary},
    driver::{
        api::{
            Address, Api, AttributeList, ContextHandle, CopyParams, ExecutableHandle,
            ExtendedConfig, FillParams, FunctionHandle, GraphHandle, HostPointer, KernelParams,
            LAUNCH_PARAM, LaunchAttribute, NodeHandle, StreamHandle,
        },
        status::{Failed, NOT_SUPPORTED},
    },
};

/// A node of the driver.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum DriverNode {
    Empty,
    Kernel(KernelNode),
    Copy(CopyNode),
    Fill(FillNode),
    Repeat(RepeatNode),
    Child(Arc<ChildGraph>),
}

/// A node, and the nodes that come directly before it.
pub(crate) type OrderedNode = (DriverNode, Vec<u32>);

impl DriverNode {
    /// The failure of a call that changes a loop or a child graph, or that enqueues one outside a graph.
    const LOOP: Failed = Failed { call: "a call for a loop or a child graph", code: NOT_SUPPORTED };

    /// Adds this node to a graph, after other nodes of it.
    ///
    /// # Safety
    /// The graph exists, `after` are nodes of it, and the function's module is loaded.
    unsafe fn add(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        primary: &Primary,
        bound: &Bound,
    ) -> Result<NodeHandle, Failed> {
        if let Self::Repeat(repeat) = self {
            // SAFETY: the graph exists, `after` are nodes of it, and the modules of the loop's functions are loaded.
            return unsafe { repeat.add(graph, after, primary, bound) };
        }
        let (api, context) = (primary.api, primary.context);
        let mut node = NodeHandle::NULL;
        let (first, count) = (after.as_ptr(), after.len());
        // SAFETY: the graph exists, `after` are nodes of it, and the function's module is loaded. The driver copies the
        // parameters, and writes one handle.
        unsafe {
            match self {
                Self::Empty => api.graph_add_empty(&mut node, graph, first, count),
                Self::Kernel(kernel) => kernel
                    .with(|params| api.graph_add_kernel(&mut node, graph, first, count, params))
                    .and_then(|()| kernel.set_attributes(node, api)),
                Self::Copy(copy) => {
                    api.graph_add_copy(&mut node, graph, first, count, &copy.params(), context)
                }
                Self::Fill(fill) => {
                    api.graph_add_fill(&mut node, graph, first, count, &fill.params(), context)
                }
                Self::Child(child) => {
                    api.graph_add_child(&mut node, graph, first, count, child.handle())
                }
                Self::Repeat(_) => Err(Self::LOOP),
            }
        }?;
        Ok(node)
    }

    /// Sets the parameters of a node of an executable to those of this node, for later launches. Both nodes are of the
    /// same kind.
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
        // SAFETY: the executable exists, `node` is a node of its graph, and the function's module is loaded. The driver
        // copies the parameters.
        unsafe {
            match self {
                Self::Empty => Ok(()),
                Self::Kernel(kernel) => {
                    kernel.with(|params| api.executable_set_kernel(executable, node, params))
                }
                Self::Copy(copy) => {
                    api.executable_set_copy(executable, node, &copy.params(), context)
                }
                Self::Fill(fill) => {
                    api.executable_set_fill(executable, node, &fill.params(), context)
                }
                Self::Repeat(_) | Self::Child(_) => Err(Self::LOOP),
            }
        }
    }

    /// Enqueues the work of this node on a stream.
    ///
    /// # Safety
    /// Everything that the node names is alive, and the caller holds the stream.
    pub(crate) unsafe fn enqueue(
        &self,
        stream: StreamHandle,
        primary: &Primary,
        _: &Bound,
    ) -> Result<(), Failed> {
        // SAFETY: everything that the node names is alive, and the caller holds the stream.
        unsafe {
            match self {
                Self::Empty => Ok(()),
                Self::Kernel(kernel) => kernel.enqueue(stream, primary.api),
                Self::Copy(copy) => copy.enqueue(stream, primary.api),
                Self::Fill(fill) => fill.enqueue(stream, primary.api),
                Self::Repeat(_) | Self::Child(_) => Err(Self::LOOP),
            }
        }
    }

    /// The kind of the node. A change of a node keeps it.
    pub(super) fn kind(&self) -> Discriminant<Self> {
        std::mem::discriminant(self)
    }
}

/// Adds nodes to a graph. Returns their handles.
///
/// # Safety
/// As for [`DriverNode::add`], for every node.
pub(super) unsafe fn add_all(
    nodes: &[OrderedNode],
    graph: GraphHandle,
    primary: &Primary,
    bound: &Bound,
) -> Result<Vec<NodeHandle>, Failed> {
    let mut handles: Vec<NodeHandle> = Vec::with_capacity(nodes.len());
    let mut before = Vec::new();
    for (node, after) in nodes {
        before.clear();
        before.extend(after.iter().filter_map(|index| handles.get(*index as usize).copied()));
        // SAFETY: the graph exists, `before` are nodes of it, and the function's module is loaded.
        handles.push(unsafe { node.add(graph, &before, primary, bound) }?);
    }
    Ok(handles)
}

/// A copy of bytes to the device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CopyNode {
    pub(crate) from: CopySource,
    pub(crate) to: Address,
    pub(crate) bytes: usize,
}

/// The source of a copy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CopySource {
    Host(HostPointer),
    Device(Address),
}

/// A fill with a pattern.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct FillNode {
    pub(crate) to: Address,
    pub(crate) pattern: Pattern,
    /// The number of repetitions.
    pub(crate) count: usize,
}

/// A launch with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KernelNode {
    pub(crate) function: FunctionHandle,
    pub(crate) config: LaunchConfig,
    /// The parameter block, in words.
    pub(crate) params: SmallVec<[u64; 8]>,
    /// The size of the parameter block in bytes.
    pub(crate) bytes: usize,
}

/// A loop: a kernel that sets the condition from a word of device memory, and a conditional node whose body ends with
/// the same kernel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RepeatNode {
    /// The address of the word.
    pub(crate) condition: Address,
    pub(crate) body: Vec<OrderedNode>,
}

impl KernelNode {
    /// Calls `call` with the driver's form of this launch.
    fn with<T>(&self, call: impl FnOnce(&KernelParams) -> T) -> T {
        let mut size = self.bytes;
        let [end, pointer, length] = LAUNCH_PARAM;
        let size_at = (&raw mut size).cast::<c_void>();
        let block = self.params.as_ptr().cast_mut().cast::<c_void>();
        let mut extra = [pointer, block, length, size_at, end];
        let LaunchConfig { grid, block, shared_bytes, .. } = self.config;
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

    /// The attributes that a node of a graph can have. A node always comes after the nodes before it as a whole.
    fn attributes(&self) -> AttributeList {
        LaunchAttribute::list(self.config.attributes.without_dependent())
    }

    /// Sets the attributes of a node of a graph. An executable of the graph cannot change them.
    ///
    /// # Safety
    /// The node exists, and its graph is not instantiated.
    unsafe fn set_attributes(&self, node: NodeHandle, api: &Api) -> Result<(), Failed> {
        self.attributes().iter().try_for_each(|attribute| {
            // SAFETY: the node exists, and its graph is not instantiated. The driver copies the value.
            unsafe { api.graph_set_attribute(node, attribute.id, &attribute.value) }
        })
    }

    /// # Safety
    /// The function's module is loaded, and the caller holds the stream.
    unsafe fn enqueue(&self, stream: StreamHandle, api: &Api) -> Result<(), Failed> {
        if !self.config.attributes.is_none() {
            let attributes = self.attributes();
            let config = ExtendedConfig::new(&self.config, stream, &attributes);
            // SAFETY: the function's module is loaded, and the caller holds the stream. The attributes live until the
            // call returns.
            return self.with(|launch| unsafe {
                api.launch_extended(&config, launch.function, launch.params, launch.extra)
            });
        }
        self.with(|launch| {
            let ([gx, gy, gz], [bx, by, bz]) = (launch.grid, launch.block);
            // SAFETY: the function's module is loaded, and the caller holds the stream. The parameters have the size
            // that the kernel declares.
            unsafe {
                api.launch(
                    launch.function,
                    gx,
                    gy,
                    gz,
                    bx,
                    by,
                    bz,
                    launch.shared_bytes,
                    stream,
                    launch.params,
                    launch.extra,
                )
            }
        })
    }
}

impl CopyNode {
    fn params(&self) -> CopyParams {
        match self.from {
            CopySource::Host(from) => CopyParams::upload(from.0, self.to, self.bytes),
            CopySource::Device(from) => CopyParams::within(from, self.to, self.bytes),
        }
    }

    /// # Safety
    /// Source and destination are alive, and the caller holds the stream.
    unsafe fn enqueue(&self, stream: StreamHandle, api: &Api) -> Result<(), Failed> {
        // SAFETY: source and destination are alive, and the caller holds the stream.
        unsafe {
            match self.from {
                CopySource::Host(from) => api.upload(self.to, from.0, self.bytes, stream),
                CopySource::Device(from) => api.copy(self.to, from, self.bytes, stream),
            }
        }
    }
}

impl FillNode {
    fn params(&self) -> FillParams {
        let value = match self.pattern {
            Pattern::Byte(value) => value.into(),
            Pattern::Half(value) => value.into(),
            Pattern::Word(value) => value,
        };
        let element_bytes = self.pattern.bytes() as u32;
        let pitch = self.count.saturating_mul(element_bytes as usize);
        FillParams { to: self.to, pitch, value, element_bytes, width: self.count, height: 1 }
    }

    /// # Safety
    /// The destination is alive, and the caller holds the stream.
    unsafe fn enqueue(&self, stream: StreamHandle, api: &Api) -> Result<(), Failed> {
        let Self { to, pattern, count } = *self;
        // SAFETY: the destination is alive, and the caller holds the stream.
        unsafe {
            match pattern {
                Pattern::Byte(value) => api.fill_8(to, value, count, stream),
                Pattern::Half(value) => api.fill_16(to, value, count, stream),
                Pattern::Word(value) => api.fill_32(to, value, count, stream),
            }
        }
    }
}

impl RepeatNode {
    /// Adds the loop to a graph, after other nodes of it.
    ///
    /// # Safety
    /// As for [`DriverNode::add`].
    unsafe fn add(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        primary: &Primary,
        bound: &Bound,
    ) -> Result<NodeHandle, Failed> {
        let unsupported = Failed { call: "cuGraphConditionalHandleCreate", code: NOT_SUPPORTED };
        let kernel = primary.condition.as_ref().ok_or(unsupported)?;
        let (api, context) = (primary.api, primary.context);
        // SAFETY: the graph exists.
        let condition = unsafe { api.condition_create(graph, context) }?;
        let setter = DriverNode::Kernel(KernelNode {
            function: kernel.function(),
            config: LaunchConfig::new(1, 1),
            params: smallvec::smallvec![condition, self.condition],
            bytes: 16,
        });
        // SAFETY: the graph exists, and `after` are nodes of it. The kernel is never unloaded.
        let set = unsafe { setter.add(graph, after, primary, bound) }?;
        // SAFETY: the graph exists, and the node and the condition belong to it.
        let (repeat, body) = unsafe { api.graph_add_while(graph, &[set], condition, context) }?;
        // SAFETY: the body exists as long as its node, and the modules of its functions are loaded.
        let nodes = unsafe { add_all(&self.body, body, primary, bound) }?;
        // After all other nodes of the body.
        // SAFETY: the body exists, and `nodes` are nodes of it. The kernel is never unloaded.
        unsafe { setter.add(body, &nodes, primary, bound) }?;
        Ok(repeat)
    }
}
