//! The conditions of loops: a kernel that sets the condition of a loop in a graph from a word of device memory.
//!
//! The driver provides the function `cudaGraphSetConditional` when it compiles the kernel, since CUDA 12.4. The kernel
//! is loaded when the device is opened: a later load would wait for every running kernel.

use std::ffi::CStr;

use super::bound::Bound;
use crate::driver::{
    api::{Api, FunctionHandle, ModuleHandle},
    status::Failed,
};

const PTX: &CStr = c"
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

/// The kernel. Never unloaded.
#[derive(Debug)]
pub(crate) struct ConditionKernel(FunctionHandle);

impl ConditionKernel {
    /// Loads the kernel, if the driver has loops.
    pub(super) fn load(api: &Api, _: &Bound) -> Option<Self> {
        api.has_loops().then(|| Self::loaded(api).ok()).flatten()
    }

    fn loaded(api: &Api) -> Result<Self, Failed> {
        let (mut module, mut function) = (ModuleHandle::NULL, FunctionHandle::NULL);
        let none = std::ptr::null_mut();
        // SAFETY: the text ends with a NUL; there are no options; writes one handle.
        unsafe { api.module_load(&mut module, PTX.as_ptr().cast(), 0, none, none.cast()) }?;
        // SAFETY: the module was loaded above; the name ends with a NUL; writes one handle.
        unsafe { api.module_function(&mut function, module, c"set_condition".as_ptr()) }?;
        // SAFETY: the function is one of the module's.
        unsafe { api.function_load(function) }?;
        Ok(Self(function))
    }

    /// The kernel. Its parameters are the handle of the condition and the address of the word, of eight bytes each.
    pub(crate) fn function(&self) -> FunctionHandle {
        self.0
    }
}
