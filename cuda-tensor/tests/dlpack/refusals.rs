//! Refused imports: the messages, and the call of the deleter.

use cuda_tensor::{
    DType, Tensor, TensorError,
    dlpack::{
        ManagedTensor,
        abi::{
            DL_CUDA, DL_INT, DLDataType, DLDevice, DLPACK_FLAG_BITMASK_READ_ONLY, DLPackVersion,
        },
    },
};

use cuda_async::{Error, open_blocking, prelude::*};

use crate::producer::Foreign;

/// Returns the error of `from_raw`, which calls the deleter before it returns.
fn refused_by_from_raw(foreign: Foreign) -> String {
    let (raw, deleted) = foreign.raw();
    // SAFETY: the pointer is valid and is used once.
    let error = unsafe { ManagedTensor::from_raw(raw) }.unwrap_err();
    assert_eq!(deleted.count(), 1);
    error.to_string()
}

/// Returns the error of an import on the CPU device.
fn refused<T: DType>(foreign: Foreign) -> Error {
    let stream = open_blocking("cpu").unwrap().new_stream().unwrap();
    let (managed, deleted) = foreign.managed();
    // SAFETY: no other code uses the memory.
    let error = unsafe { Tensor::<T>::from_dlpack(managed) }.sync_on(&stream).unwrap_err();
    deleted.assert_once();
    error
}

fn on_gpu(foreign: Foreign) -> Foreign {
    Foreign { device: DLDevice { device_type: DL_CUDA, device_id: 3 }, ..foreign }
}

fn two_by_three() -> Foreign {
    Foreign::counting(&[2, 3])
}

#[test]
fn null_pointer_is_an_error() {
    // SAFETY: null is refused.
    let (new, old) = unsafe {
        let old = ManagedTensor::from_raw_unversioned(std::ptr::null_mut());
        (ManagedTensor::from_raw(std::ptr::null_mut()), old)
    };
    for error in [new.unwrap_err(), old.unwrap_err()] {
        assert_eq!(error.downcast_ref(), Some(&TensorError::NullTensor));
        assert!(error.to_string().contains("pointer is null"), "{error}");
    }
}

#[test]
fn other_major_version_is_an_error() {
    let version = DLPackVersion { major: 2, minor: 1 };
    let error = refused_by_from_raw(Foreign { version, ..two_by_three() });
    assert_eq!(
        error,
        "a DLPack tensor: its version is 2.1, but only 1.x is supported; ask the producer for that, in Python with `__dlpack__(max_version=(1, 3))`"
    );
    // A later minor version has the same layout.
    let version = DLPackVersion { major: 1, minor: 99 };
    drop(Foreign { version, ..two_by_three() }.managed());
}

#[test]
fn missing_shape_and_negative_rank_are_errors() {
    let error = refused_by_from_raw(Foreign { shape: None, ndim: Some(2), ..two_by_three() });
    assert!(
        error.contains("it has 2 dimensions and a null pointer as its shape; the producer"),
        "{error}"
    );
    let error = refused_by_from_raw(Foreign { ndim: Some(-1), ..two_by_three() });
    assert!(error.contains("its number of dimensions, -1, is negative; the producer"), "{error}");
}

#[test]
fn other_element_types_are_errors() {
    let error = refused::<i32>(two_by_three());
    let (object, given) = ("a DLPack tensor", "f32".to_owned());
    let expected = TensorError::ElementType { object, given, expected: "i32" };
    assert_eq!(error.downcast_ref(), Some(&expected));
    assert!(error.to_string().contains("its elements are f32, not i32; convert it"), "{error}");
    let complex = DLDataType { code: 5, bits: 64, lanes: 1 };
    let error = refused::<f32>(Foreign { dtype: complex, ..two_by_three() }).to_string();
    assert!(
        error.contains("of DLPack's type code 5 with 64 bits, not f32; convert it first"),
        "{error}"
    );
    let vectors = DLDataType { code: DL_INT, bits: 32, lanes: 4 };
    let error = refused::<i32>(Foreign { dtype: vectors, ..two_by_three() }).to_string();
    assert!(error.contains("its elements are 4 lanes of i32, not i32; convert"), "{error}");
}

#[test]
fn null_and_misaligned_memory_are_errors() {
    let null = Foreign { data: std::ptr::null_mut(), ..two_by_three() };
    let error = refused::<f32>(null).to_string();
    assert!(error.contains("its address is null, but the shape [2, 3] has elements"), "{error}");
    let error = refused::<f32>(Foreign { byte_offset: 2, ..two_by_three() }).to_string();
    assert!(error.contains("and must be a multiple of 4; use aligned memory"), "{error}");
}

#[test]
fn negative_and_oversized_shapes_are_errors() {
    let error = refused::<f32>(Foreign { shape: Some(vec![2, -3]), ..two_by_three() }).to_string();
    assert!(error.contains("a size of the shape [2, -3] is negative or too large"), "{error}");
    let shape = Some(vec![i64::MAX, 4]);
    let error = refused::<f32>(Foreign { shape, ..two_by_three() }).to_string();
    assert!(error.contains("must have at most 2^63 - 1 elements"), "{error}");
    let error = refused::<f32>(Foreign { shape: Some(vec![1; 9]), ..two_by_three() }).to_string();
    assert!(error.contains("the number of dimensions is 9 and must be at most 8"), "{error}");
    let strides = Some(vec![i64::MAX, 1]);
    let error = refused::<f32>(Foreign { strides, ..two_by_three() }).to_string();
    assert!(error.contains("of the shape [2, 3] reach past any address"), "{error}");
}

/// A stride of 0 makes many elements of one.
#[test]
fn more_elements_than_the_host_has_memory_are_an_error() {
    for len in [1 << 50, 1 << 62] {
        let error = refused::<f32>(Foreign::of(vec![1.0], 0, &[len], Some(&[0])));
        let requested = 4u64.saturating_mul(len as u64);
        assert_eq!(error, Error::OutOfHostMemory { requested });
    }
}

#[test]
fn wrong_devices_are_errors() {
    let error = refused::<f32>(on_gpu(two_by_three()));
    assert!(matches!(error, Error::WrongDevice { .. }));
    assert_eq!(
        error.to_string(),
        "a DLPack tensor lives on `cuda:3` and was used on `cpu`; run the operation on its own device, with `.on(&device)`"
    );
    let metal = DLDevice { device_type: 8, device_id: 0 };
    let error = refused::<f32>(Foreign { device: metal, ..two_by_three() }).to_string();
    assert!(
        error.contains("it is on a device of DLPack's type 8; copy it to a CUDA GPU"),
        "{error}"
    );
}

#[test]
fn negative_and_overlapping_strides_of_gpu_memory_are_errors() {
    let with = |strides: [i64; 2]| Foreign { strides: Some(strides.to_vec()), ..two_by_three() };
    let error = refused::<f32>(on_gpu(with([3, -1]))).to_string();
    assert!(error.contains("not in row-major order without gaps; copy it"), "{error}");
    let error = refused::<f32>(on_gpu(with([1, 1]))).to_string();
    assert!(error.contains("with strides [1, 1]: the memory is broadcast"), "{error}");
}

#[test]
fn read_only_memory_of_a_gpu_is_an_error() {
    let read_only = || Foreign { flags: DLPACK_FLAG_BITMASK_READ_ONLY, ..two_by_three() };
    let error = refused::<f32>(on_gpu(read_only()));
    assert_eq!(error.downcast_ref(), Some(&TensorError::ReadOnly));
    assert!(error.to_string().contains("ask the producer for a copy"), "{error}");
    // A copy of host memory may be written.
    let stream = open_blocking("cpu").unwrap().new_stream().unwrap();
    let (managed, _deleted) = read_only().managed();
    assert!(managed.is_read_only());
    // SAFETY: no other code uses the memory.
    assert!(unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).is_ok());
    // The form before DLPack 1.0 has no read-only flag.
    let (managed, deleted) = read_only().managed();
    let error = managed.into_raw_unversioned().unwrap_err().to_string();
    assert!(error.contains("the form before DLPack 1.0 has no read-only flag"), "{error}");
    assert_eq!(deleted.count(), 1);
}
