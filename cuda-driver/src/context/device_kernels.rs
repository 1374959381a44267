//! The kernels of this library on a device: one writes the time to memory, one sets the condition of a loop in a graph.
//!
//! They are loaded when the device is opened: a later load would wait for every running kernel. They are never
//! unloaded.

use std::ffi::{CStr, c_void};

use super::bound::Bound;
use crate::driver::{
    api::{Address, Api, FunctionHandle, ModuleHandle, StreamHandle},
    status::Failed,
};

/// The clock of a device: a kernel that writes the time to memory.
///
/// Event timing needs a driver call per pair of events. A kernel writes a time like any other value, so it can be read
/// back with the data, replayed, and sent over a link. `%globaltimer` counts nanoseconds; on an H200 it advances in
/// steps of 32.
#[derive(Debug)]
pub(crate) struct DeviceClock(FunctionHandle);

impl DeviceClock {
    /// Loads the kernel.
    pub(super) fn load(api: &Api, bound: &Bound) -> Result<Self, Failed> {
        load(api, CLOCK_PTX, c"timestamp", bound).map(Self)
    }

    /// The kernel. Its only parameter is the address.
    pub(crate) fn function(&self) -> FunctionHandle {
        self.0
    }

    /// Enqueues a write of the time to eight bytes at `to`.
    ///
    /// # Safety
    /// The bytes are inside live device memory, and aligned to eight. The caller holds the stream.
    pub(crate) unsafe fn write(
        &self,
        api: &Api,
        mut to: Address,
        stream: StreamHandle,
        _: &Bound,
    ) -> Result<(), Failed> {
        let mut params = [(&raw mut to).cast::<c_void>()];
        let (params, extra) = (params.as_mut_ptr(), std::ptr::null_mut());
        // SAFETY: the kernel has one parameter of eight bytes, which the driver copies before it returns. It writes the
        // bytes that the caller names.
        unsafe { api.launch(self.0, 1, 1, 1, 1, 1, 1, 0, stream, params, extra) }
    }
}

/// The kernel that sets the condition of a loop in a graph from a word of device memory.
///
/// The driver provides the function `cudaGraphSetConditional` when it compiles the kernel, since CUDA 12.4.
#[derive(Debug)]
pub(crate) struct ConditionKernel(FunctionHandle);

impl ConditionKernel {
    /// Loads the kernel, if the driver has loops.
    pub(super) fn load(api: &Api, bound: &Bound) -> Option<Self> {
        let load = || load(api, CONDITION_PTX, c"set_condition", bound).ok().map(Self);
        api.has_loops().then(load).flatten()
    }

    /// The kernel. Its parameters are the handle of the condition and the address of the word, of eight bytes each.
    pub(crate) fn function(&self) -> FunctionHandle {
        self.0
    }
}

const CLOCK_PTX: &CStr = c"
.version 6.0
.target sm_50
.address_size 64

.visible .entry timestamp(.param .u64 to) {
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [to];
    mov.u64 %d2, %globaltimer;
    st.u64 [%d1], %d2;
    ret;
}
";

const CONDITION_PTX: &CStr = c"
.version 6.0
.target sm_50
.address_size 64

.extern .func cudaGraphSetConditional(.param .b64 condition, .param .b32 value);

.visible .entry set_condition(.param .u64 condition, .param .u64 word) {
    .reg .b64 %d<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [condition];
    ld.param.u64 %d2, [word];
    ld.u32 %r1, [%d2];
    {
        .param .b64 to;
        .param .b32 value;
        st.param.b64 [to], %d1;
        st.param.b32 [value], %r1;
        call.uni cudaGraphSetConditional, (to, value);
    }
    ret;
}
";

/// Loads the kernel `name` of a PTX text.
fn load(api: &Api, text: &CStr, name: &CStr, _: &Bound) -> Result<FunctionHandle, Failed> {
    let (mut module, mut function) = (ModuleHandle::NULL, FunctionHandle::NULL);
    let none = std::ptr::null_mut();
    // SAFETY: the text ends with a NUL; there are no options; writes one handle.
    unsafe { api.module_load(&mut module, text.as_ptr().cast(), 0, none, none.cast()) }?;
    // SAFETY: the module was loaded above; the name ends with a NUL; writes one handle.
    unsafe { api.module_function(&mut function, module, name.as_ptr()) }?;
    // SAFETY: the function is one of the module's.
    unsafe { api.function_load(function) }?;
    Ok(function)
}
