//! Functions of newer drivers.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::{
    Api, Condition, ContextHandle, FunctionHandle, GraphHandle, LoopParams, ModuleHandle,
    NodeHandle,
};
use crate::driver::status::{Failed, INVALID_VALUE, NOT_SUPPORTED};

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
pub(super) struct Newer {
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
    pub(super) unsafe fn look_up(library: &Library) -> Self {
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
