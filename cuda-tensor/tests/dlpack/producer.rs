//! A DLPack producer that counts the calls of its deleter.

use std::{
    any::Any,
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cuda_tensor::dlpack::{
    ManagedTensor,
    abi::{
        DL_CPU, DL_FLOAT, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned,
        DLPackVersion, DLTensor,
    },
};

/// The number of calls of a deleter.
#[derive(Clone, Default)]
pub struct Deleted(Arc<AtomicUsize>);

impl Deleted {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Waits for the first call, and 2 ms more to detect a second one.
    pub fn assert_once(&self) {
        let begin = Instant::now();
        while self.count() == 0 {
            assert!(begin.elapsed() < Duration::from_secs(60), "the deleter was not called");
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(self.count(), 1);
    }
}

/// The fields of an exported tensor of another framework.
pub struct Foreign {
    pub version: DLPackVersion,
    pub flags: u64,
    pub ndim: Option<i32>,
    pub shape: Option<Vec<i64>>,
    pub strides: Option<Vec<i64>>,
    pub data: *mut c_void,
    pub byte_offset: u64,
    pub device: DLDevice,
    pub dtype: DLDataType,
    pub keeps: Box<dyn Any>,
}

/// The data of the deleter.
struct Kept {
    deleted: Deleted,
    shape: Option<Vec<i64>>,
    strides: Option<Vec<i64>>,
    _keeps: Box<dyn Any>,
}

impl Foreign {
    /// A tensor of `f32` on the host, whose first element is `elements[first]`.
    pub fn of(elements: Vec<f32>, first: usize, shape: &[i64], strides: Option<&[i64]>) -> Self {
        let mut elements = elements;
        Self {
            version: DLPackVersion { major: 1, minor: 0 },
            flags: 0,
            ndim: None,
            shape: Some(shape.to_vec()),
            strides: strides.map(<[_]>::to_vec),
            data: elements.as_mut_ptr().cast(),
            byte_offset: 4 * first as u64,
            device: DLDevice { device_type: DL_CPU, device_id: 0 },
            dtype: DLDataType { code: DL_FLOAT, bits: 32, lanes: 1 },
            keeps: Box::new(elements),
        }
    }

    /// The elements `0, 1, ..` in row-major order.
    pub fn counting(shape: &[i64]) -> Self {
        let len: i64 = shape.iter().product();
        Self::of((0..len).map(|number| number as f32).collect(), 0, shape, None)
    }

    fn parts(self) -> (DLTensor, Box<Kept>, Deleted) {
        let deleted = Deleted::default();
        let mut kept = Box::new(Kept {
            deleted: deleted.clone(),
            shape: self.shape,
            strides: self.strides,
            _keeps: self.keeps,
        });
        let rank = kept.shape.as_ref().map_or(0, |shape| shape.len() as i32);
        let pointer = |numbers: &mut Option<Vec<i64>>| {
            numbers.as_mut().map_or(std::ptr::null_mut(), |numbers| numbers.as_mut_ptr())
        };
        let (shape, strides) = (pointer(&mut kept.shape), pointer(&mut kept.strides));
        let tensor = DLTensor {
            data: self.data,
            device: self.device,
            ndim: self.ndim.unwrap_or(rank),
            dtype: self.dtype,
            shape,
            strides,
            byte_offset: self.byte_offset,
        };
        (tensor, kept, deleted)
    }

    pub fn raw(self) -> (*mut DLManagedTensorVersioned, Deleted) {
        let (version, flags) = (self.version, self.flags);
        let (dl_tensor, kept, deleted) = self.parts();
        let managed = Box::new(DLManagedTensorVersioned {
            version,
            manager_ctx: Box::into_raw(kept).cast(),
            deleter: Some(delete),
            flags,
            dl_tensor,
        });
        (Box::into_raw(managed), deleted)
    }

    pub fn raw_unversioned(self) -> (*mut DLManagedTensor, Deleted) {
        let (dl_tensor, kept, deleted) = self.parts();
        let manager_ctx = Box::into_raw(kept).cast();
        let deleter = Some(delete_unversioned as _);
        let managed = Box::new(DLManagedTensor { dl_tensor, manager_ctx, deleter });
        (Box::into_raw(managed), deleted)
    }

    pub fn managed(self) -> (ManagedTensor, Deleted) {
        let (raw, deleted) = self.raw();
        // SAFETY: the pointer is valid and is used once.
        (unsafe { ManagedTensor::from_raw(raw) }.unwrap(), deleted)
    }
}

unsafe fn count(kept: *mut c_void) {
    // SAFETY: the deleters pass the `manager_ctx` of a tensor of this file.
    let kept = unsafe { Box::from_raw(kept.cast::<Kept>()) };
    kept.deleted.0.fetch_add(1, Ordering::SeqCst);
}

unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: made by `raw`.
    unsafe { count(Box::from_raw(tensor).manager_ctx) }
}

unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: made by `raw_unversioned`.
    unsafe { count(Box::from_raw(tensor).manager_ctx) }
}
