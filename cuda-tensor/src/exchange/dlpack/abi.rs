//! The C structs of DLPack, as in `dlpack.h` of DLPack 1.3 (<https://github.com/dmlc/dlpack>). Structs, fields and
//! macros have the names of that file. Each constant of an enumeration names its counterpart there.

// Declared here instead of taken from a crate: pointers to these structs are part of this crate's API, and each crate
// that binds `dlpack.h` has types of its own.

use std::ffi::c_void;

/// The major version of these structs. A tensor with another major version has another layout.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// The minor version of these structs.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// The flag of a tensor that consumers must not write.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
/// The flag of a tensor whose elements the producer has copied. Only the consumer uses them until it calls the deleter.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 2;

/// Memory of the host (`kDLCPU`).
pub const DL_CPU: u32 = 1;
/// Memory of a CUDA GPU (`kDLCUDA`).
pub const DL_CUDA: u32 = 2;
/// Memory of the host that CUDA has pinned (`kDLCUDAHost`).
pub const DL_CUDA_HOST: u32 = 3;

/// Signed integers (`kDLInt`).
pub const DL_INT: u8 = 0;
/// Unsigned integers (`kDLUInt`).
pub const DL_UINT: u8 = 1;
/// Floating-point numbers of IEEE 754 (`kDLFloat`).
pub const DL_FLOAT: u8 = 2;
/// `bf16` (`kDLBfloat`).
pub const DL_BFLOAT: u8 = 4;
/// `bool`, one byte each (`kDLBool`).
pub const DL_BOOL: u8 = 6;

/// The version of a tensor's layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLPackVersion {
    /// Changes with the layout.
    pub major: u32,
    /// Changes with new devices and element types.
    pub minor: u32,
}

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDevice {
    /// The kind, such as [`DL_CUDA`].
    pub device_type: u32,
    /// The index of the device among those of its kind.
    pub device_id: i32,
}

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// The kind, such as [`DL_FLOAT`].
    pub code: u8,
    /// The number of bits of a lane.
    pub bits: u8,
    /// The number of lanes of an element: more than 1 for short vectors.
    pub lanes: u16,
}

/// A tensor without an owner.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DLTensor {
    /// The address of the memory on the device.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The element type.
    pub dtype: DLDataType,
    /// The sizes of the dimensions, outermost first.
    pub shape: *mut i64,
    /// For each dimension, the distance between neighboring elements, in elements. Null means row-major order; DLPack
    /// 1.2 and newer require the strides.
    pub strides: *mut i64,
    /// The distance from `data` to the first element, in bytes.
    pub byte_offset: u64,
}

/// A tensor with an owner, in the form before DLPack 1.0.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Data of the producer, for the deleter.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and its memory. May be null.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor with an owner.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of the struct. The fields up to [`deleter`](Self::deleter) are the same in every major version.
    pub version: DLPackVersion,
    /// Data of the producer, for the deleter.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and its memory. May be null.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensorVersioned)>,
    /// Flags, such as [`DLPACK_FLAG_BITMASK_READ_ONLY`].
    pub flags: u64,
    /// The tensor.
    pub dl_tensor: DLTensor,
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<DLTensor>() == 48 && size_of::<DLManagedTensor>() == 64);
    assert!(size_of::<DLManagedTensorVersioned>() == 80);
    assert!(std::mem::offset_of!(DLManagedTensorVersioned, dl_tensor) == 32);
};
