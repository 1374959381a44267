//! `ManagedTensor`: an owned DLPack tensor, and the element types of such tensors.

use std::{any::Any, ffi::c_void, mem::ManuallyDrop, ptr::NonNull};

use cuda_core::{Error, Result};

use super::abi::{
    DL_BFLOAT, DL_BOOL, DL_FLOAT, DL_INT, DL_UINT, DLDataType, DLDevice, DLManagedTensor,
    DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};
use crate::{element::DType, error::TensorError};

/// An owned DLPack tensor of this library or of another framework. Dropping it calls its deleter on the current thread.
pub struct ManagedTensor(Raw);

enum Raw {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
}

// SAFETY: it owns its tensor, whose fields do not change. Any thread may call the deleter: the caller of `from_raw`
// promises this, and the owners of tensors of this library are `Send`.
unsafe impl Send for ManagedTensor {}
// SAFETY: it owns its tensor, whose fields do not change, and shared borrows only read.
unsafe impl Sync for ManagedTensor {}

impl ManagedTensor {
    /// Takes ownership of a tensor of DLPack 1.x. In Python, `__dlpack__` returns it in a capsule named
    /// `dltensor_versioned`, which the caller renames to `used_dltensor_versioned`.
    ///
    /// # Errors
    /// [`TensorError::NullTensor`], or [`TensorError::Version`] if the major version is not 1, or
    /// [`TensorError::Malformed`] if the number of dimensions is negative or the shape is missing. The last two also
    /// call the deleter.
    ///
    /// # Safety
    /// - The pointer is null, or points to a valid tensor that no other code owns. If its major version is 1, its
    ///   fields are as in [`abi`](super::abi).
    /// - Until the deleter is called, the memory of the elements is valid and initialized.
    /// - Any thread may call the deleter.
    pub unsafe fn from_raw(tensor: *mut DLManagedTensorVersioned) -> Result<Self> {
        let tensor = NonNull::new(tensor).ok_or_else(null)?;
        let this = Self(Raw::Versioned(tensor));
        // SAFETY: the pointer is to a valid tensor. Every major version has this field.
        let DLPackVersion { major, minor } = unsafe { (*tensor.as_ptr()).version };
        if major != DLPACK_MAJOR_VERSION {
            return Err(TensorError::Version { major, minor }.into());
        }
        this.checked()
    }

    /// Takes ownership of a tensor in the form before DLPack 1.0. In Python, `__dlpack__` returns it in a capsule named
    /// `dltensor`, which the caller renames to `used_dltensor`.
    ///
    /// # Errors
    /// The errors of [`from_raw`](Self::from_raw), except [`TensorError::Version`].
    ///
    /// # Safety
    /// The requirements of [`from_raw`](Self::from_raw). Operations may also write the tensor: this form has no
    /// read-only flag.
    pub unsafe fn from_raw_unversioned(tensor: *mut DLManagedTensor) -> Result<Self> {
        Self(Raw::Unversioned(NonNull::new(tensor).ok_or_else(null)?)).checked()
    }

    fn checked(self) -> Result<Self> {
        let DLTensor { ndim, shape, .. } = *self.tensor();
        match ndim {
            0 => Ok(self),
            1.. if !shape.is_null() => Ok(self),
            1.. => {
                Err(malformed(format!("it has {ndim} dimensions and a null pointer as its shape")))
            }
            _ => Err(malformed(format!("its number of dimensions, {ndim}, is negative"))),
        }
    }

    /// Creates a tensor whose memory `owner` keeps alive. The deleter drops `owner`.
    pub(super) fn of(
        data: *mut c_void,
        (device, dtype): (DLDevice, DLDataType),
        (shape, strides): (Vec<i64>, Vec<i64>),
        flags: u64,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let unboxed = Unboxed::new(data, (device, dtype), (shape, strides), owner);
        Self(Raw::Versioned(unboxed.into_versioned(flags)))
    }

    /// Transfers ownership to a consumer, which calls the deleter. A tensor of
    /// [`from_raw_unversioned`](Self::from_raw_unversioned) gets the form of DLPack 1.x.
    ///
    /// The consumer calls the deleter when its work on the memory is complete, or is enqueued on the stream on which
    /// [`into_dlpack`](crate::Tensor::into_dlpack) ran.
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        match self.0 {
            Raw::Versioned(raw) => {
                _ = ManuallyDrop::new(self);
                raw.as_ptr()
            }
            Raw::Unversioned(_) => self.rewrap().into_versioned(0).as_ptr(),
        }
    }

    /// Transfers ownership to a consumer as [`into_raw`](Self::into_raw) does, in the form before DLPack 1.0.
    ///
    /// # Errors
    /// [`TensorError::ReadOnlyUnversioned`], because this form has no read-only flag. This calls the deleter.
    pub fn into_raw_unversioned(self) -> Result<*mut DLManagedTensor> {
        match self.0 {
            Raw::Unversioned(raw) => {
                _ = ManuallyDrop::new(self);
                Ok(raw.as_ptr())
            }
            Raw::Versioned(_) if self.is_read_only() => {
                Err(TensorError::ReadOnlyUnversioned.into())
            }
            Raw::Versioned(_) => Ok(self.rewrap().into_unversioned().as_ptr()),
        }
    }

    /// Wraps this tensor into a new one that owns it, because each form needs a struct and a deleter of its own.
    fn rewrap(self) -> Unboxed {
        let (data, dtype) = (self.data(), self.dtype());
        let strides = self.strides().map_or_else(|| row_major(self.shape()), <[_]>::to_vec);
        let dims = (self.shape().to_vec(), strides);
        Unboxed::new(data, (self.device(), dtype), dims, Box::new(self))
    }

    fn tensor(&self) -> &DLTensor {
        match &self.0 {
            // SAFETY: the tensor is valid until the deleter is called, and has this major version.
            Raw::Versioned(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
            // SAFETY: it is valid until the deleter is called.
            Raw::Unversioned(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
        }
    }

    /// Returns the sizes of the dimensions, outermost first, as the producer gave them. Those of an invalid tensor may
    /// be negative.
    pub fn shape(&self) -> &[i64] {
        self.numbers(self.tensor().shape).unwrap_or_default()
    }

    /// Returns the strides: for each dimension, the distance between neighboring elements, in elements. `None` if the
    /// elements are in row-major order without gaps.
    pub fn strides(&self) -> Option<&[i64]> {
        self.numbers(self.tensor().strides)
    }

    /// Reads one number for each dimension. `None` if the pointer is null or there are no dimensions.
    fn numbers(&self, of: *const i64) -> Option<&[i64]> {
        let rank = usize::try_from(self.tensor().ndim).ok()?;
        // SAFETY: the pointer is null or points to as many numbers as there are dimensions.
        (!of.is_null() && rank > 0).then(|| unsafe { std::slice::from_raw_parts(of, rank) })
    }

    /// Returns the address of the first element on its device.
    pub fn data(&self) -> *mut c_void {
        let tensor = self.tensor();
        tensor.data.wrapping_byte_add(tensor.byte_offset as usize)
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> DLDevice {
        self.tensor().device
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DLDataType {
        self.tensor().dtype
    }

    /// Returns whether only the producer may write the elements.
    pub fn is_read_only(&self) -> bool {
        match &self.0 {
            // SAFETY: it is valid until the deleter is called.
            Raw::Versioned(raw) => unsafe {
                (*raw.as_ptr()).flags & DLPACK_FLAG_BITMASK_READ_ONLY != 0
            },
            Raw::Unversioned(_) => false,
        }
    }
}

impl Drop for ManagedTensor {
    fn drop(&mut self) {
        match self.0 {
            // SAFETY: this is the only owner, so the deleter is called once. Every major version has this field.
            Raw::Versioned(raw) => unsafe {
                if let Some(delete) = (*raw.as_ptr()).deleter {
                    delete(raw.as_ptr());
                }
            },
            // SAFETY: this is the only owner, so the deleter is called once.
            Raw::Unversioned(raw) => unsafe {
                if let Some(delete) = (*raw.as_ptr()).deleter {
                    delete(raw.as_ptr());
                }
            },
        }
    }
}

impl std::fmt::Debug for ManagedTensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("ManagedTensor");
        debug.field("device", &self.device()).field("dtype", &self.dtype());
        debug.field("shape", &self.shape()).field("strides", &self.strides()).finish()
    }
}

/// A tensor of this library before it becomes one of the two C structs.
struct Unboxed {
    tensor: DLTensor,
    parts: Box<Parts>,
}

/// The data of a deleter of this library (`manager_ctx`).
struct Parts {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _owner: Box<dyn Any + Send + Sync>,
}

impl Unboxed {
    fn new(
        data: *mut c_void,
        (device, dtype): (DLDevice, DLDataType),
        (shape, strides): (Vec<i64>, Vec<i64>),
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        // A layout has up to 8 dimensions, and a DLPack tensor has an `i32` of them.
        let ndim = i32::try_from(shape.len()).unwrap_or(i32::MAX);
        let mut parts = Box::new(Parts { shape, strides, _owner: owner });
        let (shape, strides) = (parts.shape.as_mut_ptr(), parts.strides.as_mut_ptr());
        let tensor = DLTensor { data, device, ndim, dtype, shape, strides, byte_offset: 0 };
        Self { tensor, parts }
    }

    fn into_versioned(self, flags: u64) -> NonNull<DLManagedTensorVersioned> {
        NonNull::from(Box::leak(Box::new(DLManagedTensorVersioned {
            version: DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION },
            manager_ctx: Box::into_raw(self.parts).cast(),
            deleter: Some(delete_versioned),
            flags,
            dl_tensor: self.tensor,
        })))
    }

    fn into_unversioned(self) -> NonNull<DLManagedTensor> {
        NonNull::from(Box::leak(Box::new(DLManagedTensor {
            dl_tensor: self.tensor,
            manager_ctx: Box::into_raw(self.parts).cast(),
            deleter: Some(delete_unversioned),
        })))
    }
}

/// The deleter of [`Unboxed::into_versioned`].
///
/// # Safety
/// The tensor comes from that method, and this is the first call for it.
unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the tensor and its `manager_ctx` were leaked boxes, and the caller uses neither any more.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.manager_ctx.cast::<Parts>()));
    }
}

/// The deleter of [`Unboxed::into_unversioned`].
///
/// # Safety
/// The tensor comes from that method, and this is the first call for it.
unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: the tensor and its `manager_ctx` were leaked boxes, and the caller uses neither any more.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.manager_ctx.cast::<Parts>()));
    }
}

/// The element types of tensors: the name, and the type code and the bits of DLPack.
const TYPES: [(&str, u8, u8); 13] = [
    ("bool", DL_BOOL, 8),
    ("i8", DL_INT, 8),
    ("i16", DL_INT, 16),
    ("i32", DL_INT, 32),
    ("i64", DL_INT, 64),
    ("u8", DL_UINT, 8),
    ("u16", DL_UINT, 16),
    ("u32", DL_UINT, 32),
    ("u64", DL_UINT, 64),
    ("f16", DL_FLOAT, 16),
    ("f32", DL_FLOAT, 32),
    ("f64", DL_FLOAT, 64),
    ("bf16", DL_BFLOAT, 16),
];

/// Returns the DLPack type of an element type.
///
/// # Errors
/// [`TensorError::ElementType`] for a type that is missing in [`TYPES`]. Currently none is.
pub(super) fn data_type<T: DType>() -> Result<DLDataType> {
    let found = TYPES.iter().find(|(name, ..)| *name == T::NAME);
    let found = found.map(|(_, code, bits)| DLDataType { code: *code, bits: *bits, lanes: 1 });
    found.ok_or_else(|| {
        let (given, expected) = (T::NAME.to_owned(), "a type of DLPack");
        TensorError::ElementType { object: "an export of a tensor", given, expected }.into()
    })
}

/// Checks that the elements are of type `T`.
///
/// # Errors
/// [`TensorError::ElementType`] if they are of another type.
pub(super) fn check_elements<T: DType>(dtype: DLDataType) -> Result<()> {
    let DLDataType { code, bits, lanes } = dtype;
    if dtype == data_type::<T>()? {
        return Ok(());
    }
    let known = TYPES.iter().find(|(_, known, size)| (*known, *size) == (code, bits));
    let mut given = known.map_or_else(
        || format!("of DLPack's type code {code} with {bits} bits"),
        |(name, ..)| (*name).to_owned(),
    );
    if lanes != 1 {
        given = format!("{lanes} lanes of {given}");
    }
    Err(TensorError::ElementType { object: "a DLPack tensor", given, expected: T::NAME }.into())
}

/// Returns the strides of row-major order without gaps. They wrap for an invalid shape.
fn row_major(shape: &[i64]) -> Vec<i64> {
    let mut stride = 1i64;
    let of_dim = |size: &i64| {
        let own = stride;
        stride = stride.wrapping_mul((*size).max(1));
        own
    };
    let mut strides: Vec<_> = shape.iter().rev().map(of_dim).collect();
    strides.reverse();
    strides
}

fn null() -> Error {
    TensorError::NullTensor.into()
}

/// Returns the error for a tensor that cannot be imported.
pub(super) fn malformed(detail: String) -> Error {
    TensorError::Malformed { detail }.into()
}
