//! The C structs of DLPack, as in `dlpack.h` of DLPack 1.3 (<https://github.com/dmlc/dlpack>), with the names of that file.

// Declared here, and not taken from a crate: pointers to these structs are part of this crate's API, and every crate that
// binds `dlpack.h` has types of its own.

use std::ffi::c_void;

/// The major version of these structs. A tensor with another one has another layout.
pub const DLPACK_MAJOR_VERSION: u32 = 1;
/// The minor version of these structs.
pub const DLPACK_MINOR_VERSION: u32 = 3;

/// A flag of a tensor that consumers do not write.
pub const DLPACK_FLAG_BITMASK_READ_ONLY: u64 = 1;
/// A flag of a tensor whose producer has copied the elements for it.
pub const DLPACK_FLAG_BITMASK_IS_COPIED: u64 = 2;

/// Memory of the host.
pub const DL_CPU: u32 = 1;
/// Memory of a CUDA GPU.
pub const DL_CUDA: u32 = 2;
/// Memory of the host that CUDA has pinned.
pub const DL_CUDA_HOST: u32 = 3;

/// Signed integers.
pub const DL_INT: u8 = 0;
/// Unsigned integers.
pub const DL_UINT: u8 = 1;
/// Floating-point numbers of IEEE 754.
pub const DL_FLOAT: u8 = 2;
/// `bf16`.
pub const DL_BFLOAT: u8 = 4;
/// `bool`, one byte each.
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
    /// The number of the device among those of its kind.
    pub device_id: i32,
}

/// An element type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct DLDataType {
    /// The kind, such as [`DL_FLOAT`].
    pub code: u8,
    /// The number of bits.
    pub bits: u8,
    /// The number of numbers in an element.
    pub lanes: u16,
}

/// A tensor without an owner.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct DLTensor {
    /// The memory, an address of the device.
    pub data: *mut c_void,
    /// The device of the memory.
    pub device: DLDevice,
    /// The number of dimensions.
    pub ndim: i32,
    /// The element type.
    pub dtype: DLDataType,
    /// The sizes of the dimensions, outermost first.
    pub shape: *mut i64,
    /// For each dimension, the distance between neighbouring elements, in elements. Null for row-major order.
    pub strides: *mut i64,
    /// The distance from `data` to the first element, in bytes.
    pub byte_offset: u64,
}

/// A tensor with an owner, as before DLPack 1.0.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensor {
    /// The tensor.
    pub dl_tensor: DLTensor,
    /// Data of the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and its memory.
    pub deleter: Option<unsafe extern "C" fn(*mut DLManagedTensor)>,
}

/// A tensor with an owner.
#[derive(Debug)]
#[repr(C)]
pub struct DLManagedTensorVersioned {
    /// The version of the fields after [`flags`](Self::flags).
    pub version: DLPackVersion,
    /// Data of the producer.
    pub manager_ctx: *mut c_void,
    /// Frees the tensor and its memory.
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
