//! Foreign submissions see a bound context, and the thread's own is back afterwards.

use std::{ffi::c_void, ptr::null_mut};

use cuda_core::Error;
use libloading::Library;

use crate::harness::gpu;

/// The context of this thread, asked of the driver itself.
fn current() -> *mut c_void {
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    let mut context = null_mut();
    // SAFETY: the driver's library, loaded by the device that exists; the function has this type and
    // writes one pointer.
    unsafe {
        let library = Library::new(name).unwrap();
        let ask = library
            .get::<unsafe extern "system" fn(*mut *mut c_void) -> i32>(b"cuCtxGetCurrent\0")
            .unwrap();
        assert_eq!(ask(&mut context), 0);
    }
    context
}

#[test]
fn the_context_is_current_inside_and_not_afterwards() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    assert!(current().is_null());
    let mut submit = |raw: cuda_core::RawStream| {
        assert!(!raw.stream.is_null() && raw.context == current());
        // A call inside a call finds the context current and leaves it so.
        gpu.sync(stream).unwrap();
        assert_eq!(raw.context, current());
        Ok(())
    };
    // SAFETY: enqueues nothing.
    unsafe { gpu.backend.external(stream, &mut submit) }.unwrap();
    assert!(current().is_null());
    // SAFETY: enqueues nothing.
    let error = unsafe { gpu.backend.external(stream, &mut |_| Err(Error::NeedsHostData)) };
    assert_eq!(error, Err(Error::NeedsHostData));
    assert!(current().is_null());
}
