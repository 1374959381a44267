//! The driver's handles and addresses.

use std::ffi::c_void;

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
