//! The table of driver functions, looked up one by one.
//!
//! Every function of [`Api`] has existed since driver 12.0, the oldest supported one. [`Newer`] has the functions that
//! a newer driver may have. [`types`] has their types and constants.
//!
//! The table is not `cudarc`'s. Its status type is a closed enum, so a status that a newer driver adds would be
//! undefined behavior. Its lazy loader panics where a library or a function is missing. Here a status is an integer,
//! and a missing function is an error.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::status::{Failed, INVALID_VALUE, NOT_SUPPORTED};

mod types;

pub(crate) use types::*;

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

type LoadFunction = unsafe extern "system" fn(FunctionHandle) -> c_int;
type CountFunctions = unsafe extern "system" fn(*mut c_uint, ModuleHandle) -> c_int;
type ListFunctions = unsafe extern "system" fn(*mut FunctionHandle, c_uint, ModuleHandle) -> c_int;
type NameFunction = unsafe extern "system" fn(*mut *const c_char, FunctionHandle) -> c_int;
type DescribeParam =
    unsafe extern "system" fn(FunctionHandle, usize, *mut usize, *mut usize) -> c_int;

type CreateCondition =
    unsafe extern "system" fn(*mut Condition, GraphHandle, ContextHandle, c_uint, c_uint) -> c_int;
type AddNode = unsafe extern "system" fn(
    *mut NodeHandle,
    GraphHandle,
    *const NodeHandle,
    *const c_void,
    usize,
    *mut LoopParams,
) -> c_int;

/// Functions that a newer driver may have: all of them are in drivers since CUDA 12.4.
#[derive(Debug, Default)]
struct Newer {
    function_load: Option<LoadFunction>,
    function_count: Option<CountFunctions>,
    function_list: Option<ListFunctions>,
    function_name: Option<NameFunction>,
    param_info: Option<DescribeParam>,
    condition_create: Option<CreateCondition>,
    graph_add: Option<AddNode>,
}

impl Newer {
    /// Looks up the functions that the driver has.
    ///
    /// # Safety
    /// `library` is the CUDA driver and stays loaded.
    unsafe fn look_up(library: &Library) -> Self {
        // SAFETY: the driver's functions of these names have these types.
        unsafe {
            Self {
                function_load: library.get(b"cuFuncLoad\0").ok().map(|found| *found),
                function_count: library.get(b"cuModuleGetFunctionCount\0").ok().map(|found| *found),
                function_list: library
                    .get(b"cuModuleEnumerateFunctions\0")
                    .ok()
                    .map(|found| *found),
                function_name: library.get(b"cuFuncGetName\0").ok().map(|found| *found),
                param_info: library.get(b"cuFuncGetParamInfo\0").ok().map(|found| *found),
                condition_create: library
                    .get(b"cuGraphConditionalHandleCreate\0")
                    .ok()
                    .map(|found| *found),
                graph_add: library.get(b"cuGraphAddNode_v2\0").ok().map(|found| *found),
            }
        }
    }
}

impl Api {
    /// Whether graphs may have loops.
    pub(crate) fn has_loops(&self) -> bool {
        self.newer.condition_create.is_some() && self.newer.graph_add.is_some()
    }

    /// `cuGraphConditionalHandleCreate`: the condition of a loop, without a default value.
    ///
    /// # Safety
    /// The graph exists.
    pub(crate) unsafe fn condition_create(
        &self,
        graph: GraphHandle,
        context: ContextHandle,
    ) -> Result<Condition, Failed> {
        let call = "cuGraphConditionalHandleCreate";
        let missing = Failed { call, code: NOT_SUPPORTED };
        let create = self.newer.condition_create.ok_or(missing)?;
        let mut condition = 0;
        // SAFETY: writes one handle. The library is never unloaded, and the graph exists.
        Failed::check(call, unsafe { create(&mut condition, graph, context, 0, 0) })?;
        Ok(condition)
    }

    /// `cuGraphAddNode_v2` for a loop. Returns its node, and the graph of its body, which lives as long as the node.
    ///
    /// # Safety
    /// The graph exists. The nodes and the condition belong to it.
    pub(crate) unsafe fn graph_add_while(
        &self,
        graph: GraphHandle,
        after: &[NodeHandle],
        condition: Condition,
        context: ContextHandle,
    ) -> Result<(NodeHandle, GraphHandle), Failed> {
        let call = "cuGraphAddNode_v2";
        let missing = Failed { call, code: NOT_SUPPORTED };
        let add = self.newer.graph_add.ok_or(missing)?;
        let (mut node, mut params) = (NodeHandle::NULL, LoopParams::new(condition, context));
        let (first, count, no_edges) = (after.as_ptr(), after.len(), std::ptr::null());
        // SAFETY: writes one handle and the address of the body's handle. The graph exists, and the nodes and the
        // condition belong to it.
        let status = unsafe { add(&mut node, graph, first, no_edges, count, &mut params) };
        Failed::check(call, status)?;
        // SAFETY: the call has succeeded, so the address is that of one handle, which the driver owns.
        Ok((node, unsafe { params.body() }))
    }

    /// `cuFuncLoad`: moves the code of a kernel to the device. Older drivers do this at the first launch.
    ///
    /// # Safety
    /// As the driver's manual says.
    pub(crate) unsafe fn function_load(&self, function: FunctionHandle) -> Result<(), Failed> {
        let Some(load) = self.newer.function_load else { return Ok(()) };
        // SAFETY: the library is never unloaded, and the arguments are those that the driver's manual demands.
        Failed::check("cuFuncLoad", unsafe { load(function) })
    }

    /// The kernels of a module, or `None` if the driver is too old to list them.
    ///
    /// # Safety
    /// The module is loaded.
    pub(crate) unsafe fn functions(
        &self,
        module: ModuleHandle,
    ) -> Result<Option<Vec<FunctionHandle>>, Failed> {
        let Newer { function_count: Some(count), function_list: Some(list), .. } = self.newer
        else {
            return Ok(None);
        };
        let mut functions = 0;
        // SAFETY: writes one integer. The module is loaded.
        Failed::check("cuModuleGetFunctionCount", unsafe { count(&mut functions, module) })?;
        let mut handles = vec![FunctionHandle::NULL; functions as usize];
        // SAFETY: writes as many handles as there is room for. The module is loaded.
        let listed = unsafe { list(handles.as_mut_ptr(), functions, module) };
        Failed::check("cuModuleEnumerateFunctions", listed)?;
        Ok(Some(handles))
    }

    /// The name of a kernel, or `None` if the driver is too old.
    ///
    /// # Safety
    /// The module of the kernel is loaded.
    pub(crate) unsafe fn function_name(
        &self,
        function: FunctionHandle,
    ) -> Result<Option<String>, Failed> {
        let Some(name) = self.newer.function_name else { return Ok(None) };
        let mut text = std::ptr::null();
        // SAFETY: writes one pointer. The module of the kernel is loaded.
        Failed::check("cuFuncGetName", unsafe { name(&mut text, function) })?;
        // SAFETY: the name belongs to the module and ends with a NUL.
        let text = unsafe { CStr::from_ptr(text) };
        Ok(Some(text.to_string_lossy().into_owned()))
    }

    /// The offset and the size of a kernel's parameter in bytes. `None` if the kernel has fewer parameters, or if the
    /// driver is too old.
    ///
    /// # Safety
    /// The module of the kernel is loaded.
    pub(crate) unsafe fn param_info(
        &self,
        function: FunctionHandle,
        index: usize,
    ) -> Result<Option<(usize, usize)>, Failed> {
        let Some(describe) = self.newer.param_info else { return Ok(None) };
        let (mut offset, mut size) = (0, 0);
        // SAFETY: writes two integers. The module of the kernel is loaded.
        let status = unsafe { describe(function, index, &mut offset, &mut size) };
        match Failed::check("cuFuncGetParamInfo", status) {
            Err(Failed { code: INVALID_VALUE, .. }) => Ok(None),
            described => described.map(|()| Some((offset, size))),
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod simulated;
