//! The table of driver functions, looked up one by one.
//!
//! Every function of [`Api`] has existed since driver 12.0, the oldest supported one. [`Newer`] has the functions that
//! a newer driver may have.
//!
//! The table is not `cudarc`'s. Its status type is a closed enum, so a status that a newer driver adds would be
//! undefined behavior. Its lazy loader panics where a library or a function is missing. Here a status is an integer,
//! and a missing function is an error.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::status::Failed;

mod attributes;
mod handles;
mod newer;
mod nodes;
#[cfg(all(test, not(loom)))]
pub(crate) mod simulated;

pub(crate) use attributes::{AttributeList, AttributeValue, ExtendedConfig, LaunchAttribute};
pub(crate) use handles::{
    Address, ContextHandle, EventHandle, ExecutableHandle, FunctionHandle, GraphHandle,
    HostPointer, ModuleHandle, NodeHandle, PhysicalHandle, PoolHandle, StreamHandle,
};
use newer::Newer;
pub(crate) use nodes::{Condition, CopyParams, FillParams, KernelParams, LoopParams};

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
    device: c_int,
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

macro_rules! driver_calls {
    ($($method:ident = $symbol:literal ($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The table.
        #[derive(Debug)]
        pub(crate) struct Api {
            newer: Newer,
            $($method: unsafe extern "system" fn($($ty),*) -> c_int,)*
        }

        #[allow(clippy::too_many_arguments)]
        impl Api {
            /// Looks up every function.
            ///
            /// # Safety
            /// `library` is the CUDA driver and stays loaded.
            pub(crate) unsafe fn look_up(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: `library` is the CUDA driver and stays loaded.
                    newer: unsafe { Newer::look_up(library) },
                    // SAFETY: the driver's function of this name has this type.
                    $($method: unsafe { *library.get(concat!($symbol, "\0").as_bytes())? },)*
                })
            }

            /// A table whose functions refuse every call.
            #[cfg(all(test, not(loom)))]
            pub(crate) fn refusing() -> Self {
                $(unsafe extern "system" fn $method($(_: $ty),*) -> c_int {
                    801 // `CUDA_ERROR_NOT_SUPPORTED`
                })*
                Self { newer: Newer::default(), $($method,)* }
            }

            $(
                #[doc = concat!("`", $symbol, "`.\n\n# Safety\nAs the driver's manual says.")]
                #[inline]
                pub(crate) unsafe fn $method(&self, $($arg: $ty),*) -> Result<(), Failed> {
                    // SAFETY: the library is never unloaded, and the arguments are those that the driver's manual
                    // demands.
                    Failed::check($symbol, unsafe { (self.$method)($($arg),*) })
                }
            )*
        }
    };
}

driver_calls! {
    init = "cuInit"(flags: c_uint);
    driver_version = "cuDriverGetVersion"(version: *mut c_int);
    error_name = "cuGetErrorName"(code: c_int, text: *mut *const c_char);
    error_string = "cuGetErrorString"(code: c_int, text: *mut *const c_char);
    device_count = "cuDeviceGetCount"(count: *mut c_int);
    device = "cuDeviceGet"(device: *mut c_int, ordinal: c_int);
    device_name = "cuDeviceGetName"(name: *mut c_char, bytes: c_int, device: c_int);
    device_memory = "cuDeviceTotalMem_v2"(bytes: *mut usize, device: c_int);
    device_attribute = "cuDeviceGetAttribute"(value: *mut c_int, attribute: c_int, device: c_int);
    primary_retain = "cuDevicePrimaryCtxRetain"(context: *mut ContextHandle, device: c_int);
    context_current = "cuCtxGetCurrent"(context: *mut ContextHandle);
    context_push = "cuCtxPushCurrent_v2"(context: ContextHandle);
    context_pop = "cuCtxPopCurrent_v2"(context: *mut ContextHandle);
    thread_capture_mode = "cuThreadExchangeStreamCaptureMode"(mode: *mut c_int);
    priority_range = "cuCtxGetStreamPriorityRange"(least: *mut c_int, greatest: *mut c_int);
    pool_create = "cuMemPoolCreate"(pool: *mut PoolHandle, props: *const PoolProps);
    pool_set = "cuMemPoolSetAttribute"(pool: PoolHandle, attribute: c_int, value: *mut c_void);
    pool_get = "cuMemPoolGetAttribute"(pool: PoolHandle, attribute: c_int, value: *mut c_void);
    pool_trim = "cuMemPoolTrimTo"(pool: PoolHandle, keep: usize);
    pool_destroy = "cuMemPoolDestroy"(pool: PoolHandle);
    pool_alloc = "cuMemAllocFromPoolAsync"(
        to: *mut Address, bytes: usize, pool: PoolHandle, stream: StreamHandle,
    );
    pool_free = "cuMemFreeAsync"(address: Address, stream: StreamHandle);
    physical_granularity = "cuMemGetAllocationGranularity"(
        bytes: *mut usize, props: *const PhysicalProps, option: c_int,
    );
    physical_create = "cuMemCreate"(
        memory: *mut PhysicalHandle, bytes: usize, props: *const PhysicalProps, flags: u64,
    );
    physical_release = "cuMemRelease"(memory: PhysicalHandle);
    address_reserve = "cuMemAddressReserve"(
        to: *mut Address, bytes: usize, align: usize, at: Address, flags: u64,
    );
    address_map = "cuMemMap"(
        at: Address, bytes: usize, offset: usize, memory: PhysicalHandle, flags: u64,
    );
    address_set_access = "cuMemSetAccess"(
        at: Address, bytes: usize, access: *const PoolAccess, count: usize,
    );
    address_unmap = "cuMemUnmap"(at: Address, bytes: usize);
    address_free = "cuMemAddressFree"(at: Address, bytes: usize);
    memory_alloc = "cuMemAlloc_v2"(to: *mut Address, bytes: usize);
    memory_free = "cuMemFree_v2"(address: Address);
    memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    host_alloc = "cuMemHostAlloc"(to: *mut HostPointer, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(start: HostPointer);
    upload = "cuMemcpyHtoDAsync_v2"(
        to: Address, from: *const c_void, bytes: usize, stream: StreamHandle,
    );
    download = "cuMemcpyDtoHAsync_v2"(
        to: *mut c_void, from: Address, bytes: usize, stream: StreamHandle,
    );
    copy = "cuMemcpyDtoDAsync_v2"(to: Address, from: Address, bytes: usize, stream: StreamHandle);
    peer_can_access = "cuDeviceCanAccessPeer"(can: *mut c_int, device: c_int, peer: c_int);
    peer_enable = "cuCtxEnablePeerAccess"(peer: ContextHandle, flags: c_uint);
    pool_set_access = "cuMemPoolSetAccess"(
        pool: PoolHandle, access: *const PoolAccess, count: usize,
    );
    copy_to_peer = "cuMemcpyPeerAsync"(
        to: Address, to_context: ContextHandle, from: Address, from_context: ContextHandle,
        bytes: usize, stream: StreamHandle,
    );
    fill_8 = "cuMemsetD8Async"(to: Address, value: u8, count: usize, stream: StreamHandle);
    fill_16 = "cuMemsetD16Async"(to: Address, value: u16, count: usize, stream: StreamHandle);
    fill_32 = "cuMemsetD32Async"(to: Address, value: c_uint, count: usize, stream: StreamHandle);
    stream_create = "cuStreamCreateWithPriority"(
        stream: *mut StreamHandle, flags: c_uint, priority: c_int,
    );
    stream_destroy = "cuStreamDestroy_v2"(stream: StreamHandle);
    stream_query = "cuStreamQuery"(stream: StreamHandle);
    stream_synchronize = "cuStreamSynchronize"(stream: StreamHandle);
    stream_wait = "cuStreamWaitEvent"(stream: StreamHandle, event: EventHandle, flags: c_uint);
    event_create = "cuEventCreate"(event: *mut EventHandle, flags: c_uint);
    event_record = "cuEventRecord"(event: EventHandle, stream: StreamHandle);
    event_query = "cuEventQuery"(event: EventHandle);
    event_elapsed = "cuEventElapsedTime"(
        milliseconds: *mut f32, start: EventHandle, end: EventHandle,
    );
    event_synchronize = "cuEventSynchronize"(event: EventHandle);
    event_destroy = "cuEventDestroy_v2"(event: EventHandle);
    launch_host = "cuLaunchHostFunc"(
        stream: StreamHandle, function: HostFunction, data: *mut c_void,
    );
    launch = "cuLaunchKernel"(
        function: FunctionHandle,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: StreamHandle, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    launch_extended = "cuLaunchKernelEx"(
        config: *const ExtendedConfig, function: FunctionHandle,
        params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    occupancy = "cuOccupancyMaxActiveBlocksPerMultiprocessor"(
        blocks: *mut c_int, function: FunctionHandle, threads: c_int, shared: usize,
    );
    occupancy_block = "cuOccupancyMaxPotentialBlockSize"(
        grid: *mut c_int, block: *mut c_int, function: FunctionHandle,
        shared_of_block: *mut c_void, shared: usize, most_threads: c_int,
    );
    occupancy_cluster = "cuOccupancyMaxPotentialClusterSize"(
        blocks: *mut c_int, function: FunctionHandle, config: *const ExtendedConfig,
    );
    occupancy_clusters = "cuOccupancyMaxActiveClusters"(
        clusters: *mut c_int, function: FunctionHandle, config: *const ExtendedConfig,
    );
    module_load = "cuModuleLoadDataEx"(
        module: *mut ModuleHandle, image: *const c_void,
        options: c_uint, names: *mut c_int, values: *mut *mut c_void,
    );
    module_function = "cuModuleGetFunction"(
        function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char,
    );
    module_global = "cuModuleGetGlobal_v2"(
        address: *mut Address, bytes: *mut usize, module: ModuleHandle, name: *const c_char,
    );
    module_unload = "cuModuleUnload"(module: ModuleHandle);
    function_get = "cuFuncGetAttribute"(
        value: *mut c_int, attribute: c_int, function: FunctionHandle,
    );
    function_set = "cuFuncSetAttribute"(function: FunctionHandle, attribute: c_int, value: c_int);
    graph_create = "cuGraphCreate"(graph: *mut GraphHandle, flags: c_uint);
    graph_destroy = "cuGraphDestroy"(graph: GraphHandle);
    graph_add_kernel = "cuGraphAddKernelNode_v2"(
        node: *mut NodeHandle, graph: GraphHandle, after: *const NodeHandle, count: usize,
        params: *const KernelParams,
    );
    graph_set_attribute = "cuGraphKernelNodeSetAttribute"(
        node: NodeHandle, attribute: c_int, value: *const AttributeValue,
    );
    graph_add_copy = "cuGraphAddMemcpyNode"(
        node: *mut NodeHandle, graph: GraphHandle, after: *const NodeHandle, count: usize,
        params: *const CopyParams, context: ContextHandle,
    );
    graph_add_fill = "cuGraphAddMemsetNode"(
        node: *mut NodeHandle, graph: GraphHandle, after: *const NodeHandle, count: usize,
        params: *const FillParams, context: ContextHandle,
    );
    graph_add_empty = "cuGraphAddEmptyNode"(
        node: *mut NodeHandle, graph: GraphHandle, after: *const NodeHandle, count: usize,
    );
    graph_add_child = "cuGraphAddChildGraphNode"(
        node: *mut NodeHandle, graph: GraphHandle, after: *const NodeHandle, count: usize,
        child: GraphHandle,
    );
    capture_begin = "cuStreamBeginCapture_v2"(stream: StreamHandle, mode: c_int);
    capture_end = "cuStreamEndCapture"(stream: StreamHandle, graph: *mut GraphHandle);
    graph_instantiate = "cuGraphInstantiateWithFlags"(
        executable: *mut ExecutableHandle, graph: GraphHandle, flags: u64,
    );
    executable_set_kernel = "cuGraphExecKernelNodeSetParams_v2"(
        executable: ExecutableHandle, node: NodeHandle, params: *const KernelParams,
    );
    executable_set_copy = "cuGraphExecMemcpyNodeSetParams"(
        executable: ExecutableHandle, node: NodeHandle, params: *const CopyParams,
        context: ContextHandle,
    );
    executable_set_fill = "cuGraphExecMemsetNodeSetParams"(
        executable: ExecutableHandle, node: NodeHandle, params: *const FillParams,
        context: ContextHandle,
    );
    executable_launch = "cuGraphLaunch"(executable: ExecutableHandle, stream: StreamHandle);
    executable_destroy = "cuGraphExecDestroy"(executable: ExecutableHandle);
}
