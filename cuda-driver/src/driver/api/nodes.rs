//! The parameters of graph nodes, as the driver takes them.

use std::ffi::{c_int, c_uint, c_void};

use super::handles::{Address, ContextHandle, FunctionHandle, GraphHandle};

/// A `CUDA_KERNEL_NODE_PARAMS_v2`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct KernelParams {
    pub(crate) function: FunctionHandle,
    pub(crate) grid: [c_uint; 3],
    pub(crate) block: [c_uint; 3],
    pub(crate) shared_bytes: c_uint,
    pub(crate) params: *mut *mut c_void,
    pub(crate) extra: *mut *mut c_void,
    /// A `CUkernel`, in the place of `function`.
    pub(crate) kernel: *mut c_void,
    /// The context of the kernel. Null is the current one.
    pub(crate) context: ContextHandle,
}

const _: () = assert!(size_of::<KernelParams>() == 72);

/// A `CUDA_MEMCPY3D`: one row of bytes. The other fields are 0.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct CopyParams {
    from: CopyEnd,
    to: CopyEnd,
    width: usize,
    height: usize,
    depth: usize,
}

const _: () = assert!(size_of::<CopyParams>() == 200);

/// One end of a copy.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
struct CopyEnd {
    x: usize,
    y: usize,
    z: usize,
    level_of_detail: usize,
    memory_type: c_int,
    host: *mut c_void,
    device: Address,
    array: *mut c_void,
    reserved: *mut c_void,
    pitch: usize,
    height: usize,
}

impl CopyEnd {
    const NONE: Self = Self {
        x: 0,
        y: 0,
        z: 0,
        level_of_detail: 0,
        memory_type: 0,
        host: std::ptr::null_mut(),
        device: 0,
        array: std::ptr::null_mut(),
        reserved: std::ptr::null_mut(),
        pitch: 0,
        height: 0,
    };

    /// `CU_MEMORYTYPE_HOST`.
    const fn host(host: *mut c_void, bytes: usize) -> Self {
        Self { memory_type: 1, host, pitch: bytes, height: 1, ..Self::NONE }
    }

    /// `CU_MEMORYTYPE_DEVICE`.
    const fn device(device: Address, bytes: usize) -> Self {
        Self { memory_type: 2, device, pitch: bytes, height: 1, ..Self::NONE }
    }
}

impl CopyParams {
    /// A copy from host memory.
    pub(crate) const fn upload(from: *mut c_void, to: Address, bytes: usize) -> Self {
        Self::row(CopyEnd::host(from, bytes), CopyEnd::device(to, bytes), bytes)
    }

    /// A copy within the device.
    pub(crate) const fn within(from: Address, to: Address, bytes: usize) -> Self {
        Self::row(CopyEnd::device(from, bytes), CopyEnd::device(to, bytes), bytes)
    }

    const fn row(from: CopyEnd, to: CopyEnd, bytes: usize) -> Self {
        Self { from, to, width: bytes, height: 1, depth: 1 }
    }
}

/// A `CUDA_MEMSET_NODE_PARAMS`: one row of elements.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct FillParams {
    pub(crate) to: Address,
    pub(crate) pitch: usize,
    pub(crate) value: c_uint,
    pub(crate) element_bytes: c_uint,
    /// The number of elements.
    pub(crate) width: usize,
    pub(crate) height: usize,
}

const _: () = assert!(size_of::<FillParams>() == 40);

/// A `CUgraphConditionalHandle`.
pub(crate) type Condition = u64;

/// A `CUgraphNodeParams` for a loop: a `CUDA_CONDITIONAL_NODE_PARAMS`, in the middle of 256 bytes. Other bytes are 0.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct LoopParams {
    node_type: c_int,
    reserved: [c_int; 3],
    condition: Condition,
    condition_type: c_int,
    /// The number of bodies.
    bodies: c_uint,
    /// Written by the driver: the address of the handle of the body.
    body: *const GraphHandle,
    context: ContextHandle,
    rest: [u64; 26],
}

const _: () = assert!(size_of::<LoopParams>() == 256);

impl LoopParams {
    pub(super) const fn new(condition: Condition, context: ContextHandle) -> Self {
        Self {
            node_type: 13, // `CU_GRAPH_NODE_TYPE_CONDITIONAL`
            reserved: [0; 3],
            condition,
            condition_type: 1, // `CU_GRAPH_COND_TYPE_WHILE`
            bodies: 1,
            body: std::ptr::null(),
            context,
            rest: [0; 26],
        }
    }

    /// The graph of the body.
    ///
    /// # Safety
    /// The driver has added the node.
    pub(super) unsafe fn body(&self) -> GraphHandle {
        // SAFETY: the driver has written the address of a handle that it owns.
        unsafe { *self.body }
    }
}
