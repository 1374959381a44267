//! `ManagedTensor`: an owned tensor of DLPack.

use std::{any::Any, ffi::c_void, mem::ManuallyDrop, ptr::NonNull};

use cuda_core::{Error, Result};

use super::abi::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION, DLPackVersion, DLTensor,
};

/// An owned tensor of DLPack, of this library or of another framework. Dropping it calls its deleter, on the thread that
/// drops it.
pub struct ManagedTensor(Raw);

enum Raw {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
}

// SAFETY: it owns its tensor, whose fields do not change. The deleter may be called on any thread: the caller of `from_raw`
// promises it, and the owners of tensors of this library are `Send`.
unsafe impl Send for ManagedTensor {}
// SAFETY: as above. Shared borrows only read.
unsafe impl Sync for ManagedTensor {}

impl ManagedTensor {
    /// Takes ownership of a tensor of DLPack 1.x. In Python, it is the pointer of a capsule named `dltensor_versioned`,
    /// which the caller renames to `used_dltensor_versioned`.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the pointer is null; [`Error::OutOfRange`] if the major version is not 1, the number of
    /// dimensions is negative, or the shape is missing. The deleter is then called.
    ///
    /// # Safety
    /// - The pointer is null, or that of a valid tensor that no other code owns. If its major version is 1, its fields are
    ///   as in [`abi`](super::abi).
    /// - The memory of the elements is valid, and they are initialised, until the deleter is called.
    /// - Every thread may call the deleter.
    pub unsafe fn from_raw(tensor: *mut DLManagedTensorVersioned) -> Result<Self> {
        let tensor = NonNull::new(tensor).ok_or_else(null)?;
        let this = Self(Raw::Versioned(tensor));
        // SAFETY: the caller promises that it is valid. Every major version has this field.
        let DLPackVersion { major, minor } = unsafe { (*tensor.as_ptr()).version };
        if major != DLPACK_MAJOR_VERSION {
            return Err(wrong(format!(
                "its version is {major}.{minor}, but only 1.x is supported; ask the producer for that, in Python with `__dlpack__(max_version=(1, 3))`"
            )));
        }
        this.checked()
    }

    /// Takes ownership of a tensor in the form before DLPack 1.0. In Python, it is the pointer of a capsule named `dltensor`,
    /// which the caller renames to `used_dltensor`.
    ///
    /// # Errors
    /// As [`from_raw`](Self::from_raw), apart from the version.
    ///
    /// # Safety
    /// As for [`from_raw`](Self::from_raw). This form cannot say that the tensor is read-only, so it is not.
    pub unsafe fn from_raw_unversioned(tensor: *mut DLManagedTensor) -> Result<Self> {
        Self(Raw::Unversioned(NonNull::new(tensor).ok_or_else(null)?)).checked()
    }

    fn checked(self) -> Result<Self> {
        let DLTensor { ndim, shape, .. } = *self.tensor();
        match ndim {
            0 => Ok(self),
            1.. if !shape.is_null() => Ok(self),
            1.. => Err(wrong(format!("it has {ndim} dimensions, but its shape is a null pointer"))),
            _ => Err(wrong(format!("its number of dimensions is {ndim}; it may not be negative"))),
        }
    }

    /// Makes a tensor whose memory `owner` keeps alive. The deleter drops `owner`.
    pub(super) fn of(
        data: *mut c_void,
        (device, dtype): (DLDevice, DLDataType),
        (shape, strides): (Vec<i64>, Vec<i64>),
        flags: u64,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        let made = Made::new(data, (device, dtype), (shape, strides), owner);
        Self(Raw::Versioned(made.into_versioned(flags)))
    }

    /// Gives the tensor to code that calls its deleter. A tensor that was taken by
    /// [`from_raw_unversioned`](Self::from_raw_unversioned) gets the form of DLPack 1.x.
    ///
    /// The consumer calls the deleter when its work on the memory is complete, or is enqueued on the stream on which
    /// [`into_dlpack`](crate::tensor::Tensor::into_dlpack) ran.
    pub fn into_raw(self) -> *mut DLManagedTensorVersioned {
        match self.0 {
            Raw::Versioned(raw) => {
                _ = ManuallyDrop::new(self);
                raw.as_ptr()
            }
            Raw::Unversioned(_) => self.into_made().into_versioned(0).as_ptr(),
        }
    }

    /// Gives the tensor, in the form before DLPack 1.0, to code that calls its deleter, as [`into_raw`](Self::into_raw)
    /// does.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the tensor is read-only, which this form cannot say. The deleter is then called.
    pub fn into_raw_unversioned(self) -> Result<*mut DLManagedTensor> {
        match self.0 {
            Raw::Unversioned(raw) => {
                _ = ManuallyDrop::new(self);
                Ok(raw.as_ptr())
            }
            Raw::Versioned(_) if self.is_read_only() => {
                let detail = "it is read-only, which the form before DLPack 1.0 cannot say; use `into_raw`, or copy it first, with `dup()`".into();
                Err(Error::Misuse { what: "a DLPack tensor".into(), detail })
            }
            Raw::Versioned(_) => Ok(self.into_made().into_unversioned().as_ptr()),
        }
    }

    /// The same tensor, in parts that another form can have. They own this one.
    fn into_made(self) -> Made {
        let (data, dtype) = (self.data(), self.dtype());
        let strides = self.strides().map_or_else(|| row_major(self.shape()), <[_]>::to_vec);
        let places = (self.shape().to_vec(), strides);
        Made::new(data, (self.device(), dtype), places, Box::new(self))
    }

    fn tensor(&self) -> &DLTensor {
        match &self.0 {
            // SAFETY: it is valid until the deleter is called, and of this major version.
            Raw::Versioned(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
            // SAFETY: it is valid until the deleter is called.
            Raw::Unversioned(raw) => unsafe { &(*raw.as_ptr()).dl_tensor },
        }
    }

    /// Returns the sizes of the dimensions, outermost first. They may be negative in a tensor that is not valid.
    pub fn shape(&self) -> &[i64] {
        self.numbers(self.tensor().shape).unwrap_or_default()
    }

    /// Returns the strides: for each dimension, the distance between neighbouring elements, in elements. `None` if the
    /// elements are in row-major order without gaps.
    pub fn strides(&self) -> Option<&[i64]> {
        self.numbers(self.tensor().strides)
    }

    /// One number for each dimension.
    fn numbers(&self, of: *const i64) -> Option<&[i64]> {
        let rank = usize::try_from(self.tensor().ndim).ok()?;
        // SAFETY: each field is null or has as many numbers as there are dimensions.
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

/// A tensor that this library makes. It has the form that it is converted into.
struct Made {
    tensor: DLTensor,
    parts: Box<Parts>,
}

/// The data of a deleter of this library.
struct Parts {
    shape: Vec<i64>,
    strides: Vec<i64>,
    _owner: Box<dyn Any + Send + Sync>,
}

impl Made {
    fn new(
        data: *mut c_void,
        (device, dtype): (DLDevice, DLDataType),
        (shape, strides): (Vec<i64>, Vec<i64>),
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        // No tensor has more dimensions than the one that it was made from.
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

/// The deleter of [`Made::into_versioned`].
///
/// # Safety
/// The tensor comes from there, and this is the first call with it.
unsafe extern "C" fn delete_versioned(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: both were boxes, and the caller gives them back.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.manager_ctx.cast::<Parts>()));
    }
}

/// The deleter of [`Made::into_unversioned`].
///
/// # Safety
/// The tensor comes from there, and this is the first call with it.
unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: both were boxes, and the caller gives them back.
    unsafe {
        let tensor = Box::from_raw(tensor);
        drop(Box::from_raw(tensor.manager_ctx.cast::<Parts>()));
    }
}

/// The strides of row-major order without gaps. They wrap for a shape that is not valid.
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
    let detail = "its pointer is null; pass the pointer of a tensor that is still owned".into();
    Error::Misuse { what: "a DLPack tensor".into(), detail }
}

/// The error for a tensor that cannot be used.
pub(super) fn wrong(detail: String) -> Error {
    Error::OutOfRange { what: "a DLPack tensor".into(), detail }
}
