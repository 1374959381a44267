//! The driver's functions that are used here, looked up one by one.
//!
//! A status is a plain number: a newer driver may answer with a code that no enumeration of today
//! lists. All of these functions are in every driver since 12.0, the oldest that is taken; a
//! function of a newer one goes into a table of `Option`s.
//!
//! A table of our own, not `cudarc`'s: its status type is a closed enum, so that a status which a newer driver
//! adds would be undefined behaviour, and its lazy loader panics where a library or a function is missing. Here
//! a status is an integer, and what is missing an error.

use std::ffi::{c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::status::Failed;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub(super) struct $name(pub(super) *mut c_void);

        impl $name {
            pub(super) const NULL: Self = Self(std::ptr::null_mut());
        }

        // SAFETY: an opaque name that only the driver follows, and it takes it from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
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
    /// Page-locked host memory.
    HostPointer;
}

impl StreamHandle {
    /// For a table of numbers.
    pub(super) fn to_bits(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// What [`to_bits`](Self::to_bits) gave.
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(bits as usize))
    }
}

/// A `CUdeviceptr`.
pub(super) type Address = u64;

/// A `CUmemAccessDesc`: who may access the memory of a pool, and how.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PoolAccess {
    location_type: c_int,
    device: c_int,
    flags: c_int,
}

impl PoolAccess {
    /// This device reads and writes.
    pub(super) const fn of(device: c_int) -> Self {
        // `CU_MEM_LOCATION_TYPE_DEVICE`, `CU_MEM_ACCESS_FLAGS_PROT_READWRITE`.
        Self { location_type: 1, device, flags: 3 }
    }
}

/// A host function, called on a thread of the driver.
pub(super) type HostFunction = unsafe extern "system" fn(*mut c_void);

/// `CUdevice_attribute`, as far as it is asked for.
pub(super) mod device_attribute {
    pub(in crate::cuda) const MAX_THREADS_PER_BLOCK: i32 = 1;
    pub(in crate::cuda) const MAX_BLOCK_DIM_X: i32 = 2;
    pub(in crate::cuda) const MAX_GRID_DIM_X: i32 = 5;
    pub(in crate::cuda) const MAX_SHARED_PER_BLOCK: i32 = 8;
    pub(in crate::cuda) const MULTIPROCESSORS: i32 = 16;
    pub(in crate::cuda) const CAPABILITY_MAJOR: i32 = 75;
    pub(in crate::cuda) const CAPABILITY_MINOR: i32 = 76;
    pub(in crate::cuda) const MAX_SHARED_PER_BLOCK_OPTIN: i32 = 97;
    pub(in crate::cuda) const MEMORY_POOLS: i32 = 115;
    pub(in crate::cuda) const WRITES_WORDS: i32 = 122;
}

/// `CUfunction_attribute`, as far as it is asked for.
pub(super) mod function_attribute {
    pub(in crate::cuda) const MAX_THREADS_PER_BLOCK: i32 = 0;
    pub(in crate::cuda) const STATIC_SHARED: i32 = 1;
    pub(in crate::cuda) const MAX_DYNAMIC_SHARED: i32 = 8;
}

/// `CUjit_option`, as far as it is used.
pub(super) mod jit_option {
    pub(in crate::cuda) const INFO_LOG: i32 = 3;
    pub(in crate::cuda) const INFO_LOG_BYTES: i32 = 4;
    pub(in crate::cuda) const ERROR_LOG: i32 = 5;
    pub(in crate::cuda) const ERROR_LOG_BYTES: i32 = 6;
}

/// `CU_STREAM_NON_BLOCKING`: no implicit order with the default stream.
pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
/// `CU_EVENT_DISABLE_TIMING`: makes recording cheap.
pub(super) const EVENT_DISABLE_TIMING: c_uint = 2;
/// `CU_MEMHOSTALLOC_PORTABLE`: page-locked for every device.
pub(super) const HOST_PORTABLE: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: the device can write to it.
pub(super) const HOST_DEVICE_MAP: c_uint = 2;
/// `CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
pub(super) const POOL_INTERNAL_DEPENDENCIES: c_int = 3;
/// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`.
pub(super) const POOL_RELEASE_THRESHOLD: c_int = 4;
/// `CU_LAUNCH_PARAM_END`, `.._BUFFER_POINTER` and `.._BUFFER_SIZE`.
pub(super) const LAUNCH_PARAM: [*mut c_void; 3] = [
    std::ptr::null_mut(),
    std::ptr::without_provenance_mut(1),
    std::ptr::without_provenance_mut(2),
];

macro_rules! driver_calls {
    ($($method:ident = $symbol:literal ($($arg:ident: $ty:ty),* $(,)?);)*) => {
        /// The table.
        #[derive(Debug)]
        pub(super) struct Api {
            $($method: unsafe extern "system" fn($($ty),*) -> c_int,)*
        }

        #[allow(clippy::too_many_arguments)]
        impl Api {
            /// Looks all of them up.
            ///
            /// # Safety
            /// `library` is the CUDA driver and stays loaded.
            pub(super) unsafe fn look_up(library: &Library) -> Result<Self, libloading::Error> {
                Ok(Self {
                    // SAFETY: the driver's function of this name has this type.
                    $($method: unsafe { *library.get(concat!($symbol, "\0").as_bytes())? },)*
                })
            }

            $(
                #[doc = concat!("`", $symbol, "`.\n\n# Safety\nAs the driver's manual says.")]
                #[inline]
                pub(super) unsafe fn $method(&self, $($arg: $ty),*) -> Result<(), Failed> {
                    // SAFETY: the library is never unloaded; the rest is the caller's promise.
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
    priority_range = "cuCtxGetStreamPriorityRange"(least: *mut c_int, greatest: *mut c_int);
    default_pool = "cuDeviceGetDefaultMemPool"(pool: *mut PoolHandle, device: c_int);
    pool_set = "cuMemPoolSetAttribute"(pool: PoolHandle, attribute: c_int, value: *mut c_void);
    pool_alloc = "cuMemAllocAsync"(to: *mut Address, bytes: usize, stream: StreamHandle);
    pool_free = "cuMemFreeAsync"(address: Address, stream: StreamHandle);
    memory_alloc = "cuMemAlloc_v2"(to: *mut Address, bytes: usize);
    memory_free = "cuMemFree_v2"(address: Address);
    memory_info = "cuMemGetInfo_v2"(free: *mut usize, total: *mut usize);
    host_alloc = "cuMemHostAlloc"(to: *mut HostPointer, bytes: usize, flags: c_uint);
    host_free = "cuMemFreeHost"(start: HostPointer);
    host_device_pointer = "cuMemHostGetDevicePointer_v2"(
        address: *mut Address, start: HostPointer, flags: c_uint,
    );
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
    event_destroy = "cuEventDestroy_v2"(event: EventHandle);
    write_word = "cuStreamWriteValue64_v2"(
        stream: StreamHandle, address: Address, value: u64, flags: c_uint,
    );
    launch_host = "cuLaunchHostFunc"(
        stream: StreamHandle, function: HostFunction, data: *mut c_void,
    );
    launch = "cuLaunchKernel"(
        function: FunctionHandle,
        grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
        block_x: c_uint, block_y: c_uint, block_z: c_uint,
        shared: c_uint, stream: StreamHandle, params: *mut *mut c_void, extra: *mut *mut c_void,
    );
    module_load = "cuModuleLoadDataEx"(
        module: *mut ModuleHandle, image: *const c_void,
        options: c_uint, names: *mut c_int, values: *mut *mut c_void,
    );
    module_function = "cuModuleGetFunction"(
        function: *mut FunctionHandle, module: ModuleHandle, name: *const c_char,
    );
    module_unload = "cuModuleUnload"(module: ModuleHandle);
    function_get = "cuFuncGetAttribute"(
        value: *mut c_int, attribute: c_int, function: FunctionHandle,
    );
    function_set = "cuFuncSetAttribute"(function: FunctionHandle, attribute: c_int, value: c_int);
}
