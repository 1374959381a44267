//! The types and constants of the driver's functions: handles, attributes, flags, and the C structs of memory pools,
//! launches and graph nodes.

use std::ffi::{c_int, c_uint, c_void};

use cuda_core::protocol::{LaunchAttributes, LaunchConfig};

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub(crate) struct $name(pub(crate) *mut c_void);

        impl $name {
            pub(crate) const NULL: Self = Self(std::ptr::null_mut());
        }

        // SAFETY: an opaque handle that only the driver dereferences, from any thread.
        unsafe impl Send for $name {}
        // SAFETY: an opaque handle that only the driver dereferences, from any thread.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A `CUcontext`.
    ContextHandle;
    /// A `CUstream`.
    StreamHandle;
    /// A `CUevent`.
    EventHandle;
    /// A `CUmodule`.
    ModuleHandle;
    /// A `CUfunction`.
    FunctionHandle;
    /// A `CUmemoryPool`.
    PoolHandle;
    /// Pinned host memory.
    HostPointer;
    /// A `CUgraph`.
    GraphHandle;
    /// A `CUgraphNode`.
    NodeHandle;
    /// A `CUgraphExec`.
    ExecutableHandle;
}

impl HostPointer {
    /// The memory at an address that host and device share.
    pub(crate) fn shared(address: Address) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(address as usize))
    }
}

/// A `CUmemGenericAllocationHandle`: physical memory.
pub(crate) type PhysicalHandle = u64;

/// A `CUdeviceptr`.
pub(crate) type Address = u64;

/// A host function, called on a thread of the driver.
pub(crate) type HostFunction = unsafe extern "system" fn(*mut c_void);

/// The attributes of a device that are read: `CUdevice_attribute`.
pub(crate) mod device_attribute {
    pub(crate) const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub(crate) const MAX_BLOCK_DIM_X: i32 = 2;
    pub(crate) const MAX_GRID_DIM_X: i32 = 5;
    pub(crate) const MAX_SHARED_PER_BLOCK: i32 = 8;
    pub(crate) const MULTIPROCESSORS: i32 = 16;
    pub(crate) const CAPABILITY_MAJOR: i32 = 75;
    pub(crate) const CAPABILITY_MINOR: i32 = 76;
    pub(crate) const MAX_SHARED_PER_BLOCK_OPTIN: i32 = 97;
    /// Reserved addresses, to which memory is mapped.
    pub(crate) const MAPPED_MEMORY: i32 = 102;
    pub(crate) const MEMORY_POOLS: i32 = 115;
    /// Not known to drivers before 13.0.
    pub(crate) const HOST_MEMORY_POOLS: i32 = 144;
}

/// The attributes of a function that are read or set: `CUfunction_attribute`.
pub(crate) mod function_attribute {
    pub(crate) const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub(crate) const STATIC_SHARED: i32 = 1;
    pub(crate) const LOCAL: i32 = 3;
    pub(crate) const REGISTERS: i32 = 4;
    pub(crate) const MAX_DYNAMIC_SHARED: i32 = 8;
    /// Allows clusters of more than eight blocks.
    pub(crate) const LARGE_CLUSTERS: i32 = 14;
}

/// The options of the PTX compiler that are set: `CUjit_option`.
pub(crate) mod jit_option {
    pub(crate) const INFO_LOG: i32 = 3;
    pub(crate) const INFO_LOG_BYTES: i32 = 4;
    pub(crate) const ERROR_LOG: i32 = 5;
    pub(crate) const ERROR_LOG_BYTES: i32 = 6;
}

/// `CU_STREAM_CAPTURE_MODE_RELAXED`: calls of this thread end no capture of another thread.
pub(crate) const CAPTURE_RELAXED: c_int = 2;
/// `CU_STREAM_NON_BLOCKING`: no implicit order with the default stream.
pub(crate) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_STREAM_PER_THREAD`: names another stream on each thread.
pub(crate) const STREAM_PER_THREAD: *mut c_void = std::ptr::without_provenance_mut(2);
/// `CU_EVENT_DEFAULT`: with a time stamp.
pub(crate) const EVENT_DEFAULT: c_uint = 0;
/// `CU_EVENT_DISABLE_TIMING`: makes recording cheap.
pub(crate) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every device.
pub(crate) const HOST_PORTABLE: c_uint = 1;
/// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
pub(crate) const POOL_INTERNAL_DEPENDENCIES: c_int = 3;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
pub(crate) const POOL_RELEASE_THRESHOLD: c_int = 4;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`.
pub(crate) const POOL_RESERVED: c_int = 5;
/// `CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH`.
pub(crate) const POOL_RESERVED_PEAK: c_int = 6;
/// `CU_LAUNCH_PARAM_END`, `.._BUFFER_POINTER` and `.._BUFFER_SIZE`.
pub(crate) const LAUNCH_PARAM: [*mut c_void; 3] = [
    std::ptr::null_mut(),
    std::ptr::without_provenance_mut(1),
    std::ptr::without_provenance_mut(2),
];

/// A `CUmemAccessDesc`: a device that may access the memory of a pool.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PoolAccess {
    location_type: c_int,
    device: c_int,
    flags: c_int,
}

impl PoolAccess {
    /// Read and write access of a device.
    pub(crate) const fn of(device: c_int) -> Self {
        // `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
        Self { location_type: 1, device, flags: 3 }
    }
}

/// A `CUmemPoolProps`, 88 bytes in every version of CUDA. Later fields stand in `reserved`; 0 is their default.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PoolProps {
    allocation_type: c_int,
    handle_types: c_int,
    location_type: c_int,
    pub(super) device: c_int,
    security: *mut c_void,
    reserved: [u64; 8],
}

impl PoolProps {
    /// A pool in the memory of a device, for this process alone.
    pub(crate) const fn of(device: c_int) -> Self {
        // `CU_MEM_ALLOCATION_TYPE_PINNED`, `CU_MEM_HANDLE_TYPE_NONE`, `CU_MEM_LOCATION_TYPE_DEVICE`.
        Self {
            allocation_type: 1,
            handle_types: 0,
            location_type: 1,
            device,
            security: std::ptr::null_mut(),
            reserved: [0; 8],
        }
    }

    /// A pool of managed memory without a preferred location: the first access to a page places it. Needs CUDA 13.0.
    pub(crate) const fn of_managed() -> Self {
        // `CU_MEM_ALLOCATION_TYPE_MANAGED`, `CU_MEM_LOCATION_TYPE_NONE`.
        Self { allocation_type: 2, location_type: 0, ..Self::of(0) }
    }

    /// Returns whether this describes a pool of managed memory.
    pub(crate) const fn is_managed(&self) -> bool {
        self.allocation_type == 2
    }

    /// A pool of pinned host memory, for this process alone.
    pub(crate) const fn of_host() -> Self {
        // `CU_MEM_LOCATION_TYPE_HOST`, which has no ordinal.
        Self { location_type: 2, ..Self::of(0) }
    }
}

const _: () = assert!(size_of::<PoolProps>() == 88);

/// A `CUmemAllocationProp`: the kind of physical memory.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct PhysicalProps {
    allocation_type: c_int,
    handle_types: c_int,
    location_type: c_int,
    device: c_int,
    security: *mut c_void,
    flags: [u8; 8],
}

impl PhysicalProps {
    /// Memory of a device, for this process alone.
    pub(crate) const fn of(device: c_int) -> Self {
        // As in `PoolProps::of`.
        let security = std::ptr::null_mut();
        Self {
            allocation_type: 1,
            handle_types: 0,
            location_type: 1,
            device,
            security,
            flags: [0; 8],
        }
    }
}

const _: () = assert!(size_of::<PhysicalProps>() == 32);

/// A `CUlaunchAttributeValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct AttributeValue([c_uint; 16]);

const _: () = assert!(size_of::<AttributeValue>() == 64);

impl AttributeValue {
    const fn new(first: [c_uint; 3]) -> Self {
        let mut words = [0; 16];
        (words[0], words[1], words[2]) = (first[0], first[1], first[2]);
        Self(words)
    }
}

/// A `CUlaunchAttribute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    padding: c_int,
    pub(crate) value: AttributeValue,
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72);

/// The attributes of one launch, at most three.
pub(crate) type AttributeList = smallvec::SmallVec<[LaunchAttribute; 3]>;

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
    const COOPERATIVE: c_int = 2;
    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    const CLUSTER: c_int = 4;
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
    const DEPENDENT: c_int = 6;

    /// The driver's form of the attributes.
    pub(crate) fn list(attributes: LaunchAttributes) -> AttributeList {
        let one = |id, first| Self { id, padding: 0, value: AttributeValue::new(first) };
        let mut list = AttributeList::new();
        if attributes.is_cooperative() {
            list.push(one(Self::COOPERATIVE, [1, 0, 0]));
        }
        if let Some(cluster) = attributes.cluster_dims() {
            list.push(one(Self::CLUSTER, cluster));
        }
        if attributes.is_dependent() {
            list.push(one(Self::DEPENDENT, [1, 0, 0]));
        }
        list
    }
}

/// A `CUlaunchConfig`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ExtendedConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: StreamHandle,
    attributes: *const LaunchAttribute,
    count: c_uint,
}

const _: () = assert!(size_of::<ExtendedConfig>() == 56);

impl ExtendedConfig {
    /// The driver's form of a launch. `attributes` stay alive while it is used.
    pub(crate) fn new(
        config: &LaunchConfig,
        stream: StreamHandle,
        attributes: &[LaunchAttribute],
    ) -> Self {
        Self {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            stream,
            attributes: attributes.as_ptr(),
            count: attributes.len() as c_uint,
        }
    }
}

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

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_driver_ids_and_values() {
        let all = LaunchAttributes::NONE.cluster(4, 2, 1).cooperative().dependent();
        let list = LaunchAttribute::list(all);
        let found: Vec<_> = list
            .iter()
            .map(|attribute| (attribute.id, [0, 1, 2].map(|i| attribute.value.0[i])))
            .collect();
        assert_eq!(found, [(2, [1, 0, 0]), (4, [4, 2, 1]), (6, [1, 0, 0])]);
        assert!(LaunchAttribute::list(LaunchAttributes::NONE).is_empty());
    }
}
