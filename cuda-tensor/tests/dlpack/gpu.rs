//! Import and export of memory of the first GPU, without copies. Without a GPU, the tests pass and check nothing.

use std::ffi::c_void;

use cuda_tensor::{
    Tensor, TensorOps,
    dlpack::{
        ManagedTensor,
        abi::{DL_CUDA, DLDevice},
    },
};

use cuda_async::{Device, Error, h2d, memory::fill, open_blocking, prelude::*};

use crate::producer::Foreign;

/// Returns the first GPU. `None`, after a message, on a machine without a GPU.
fn gpu() -> Option<Device> {
    open_blocking("cuda:0").inspect_err(|error| println!("not run: {error}")).ok()
}

/// Returns a foreign tensor in the memory of a buffer on the GPU. The tensor keeps the buffer.
fn on_gpu(elements: Vec<f32>, shape: &[i64], strides: Option<&[i64]>, device: &Device) -> Foreign {
    let stream = device.new_stream().unwrap();
    let buffer = h2d(elements).sync_on(&stream).unwrap();
    let data = buffer.lend_raw(&stream).unwrap() as *mut c_void;
    let keeps = Box::new(buffer);
    let device = DLDevice { device_type: DL_CUDA, device_id: 0 };
    Foreign { data, device, keeps, ..Foreign::of(Vec::new(), 0, shape, strides) }
}

#[test]
fn import_of_gpu_memory_copies_nothing() {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    let elements: Vec<f32> = (0..6).map(|number| number as f32).collect();
    let (managed, deleted) = on_gpu(elements, &[3, 2], Some(&[1, 3]), &device).managed();
    let address = managed.data() as u64;
    // SAFETY: no other code uses the memory.
    let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).unwrap();
    assert!(x.buffer().is_foreign() && !x.is_contiguous());
    assert_eq!(x.buffer().lend_raw(&stream).unwrap(), address);
    let doubled = x.view().mul_scalar(2.0).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(doubled, [0.0, 6.0, 2.0, 8.0, 4.0, 10.0]);
    assert_eq!(deleted.count(), 0);
    drop(x);
    deleted.assert_once();
}

#[test]
fn export_of_gpu_memory_copies_nothing() {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    for _ in 0..100 {
        let x = Tensor::<i32>::arange(0..1 << 20).sync_on(&stream).unwrap();
        let address = x.buffer().lend_raw(&stream).unwrap();
        let x =
            x.reshape([1 << 10, 1 << 10]).unwrap().transpose(0, 1).unwrap().slice(0, 3..).unwrap();
        let managed = x.into_dlpack().sync_on(&stream).unwrap();
        assert_eq!(managed.device(), DLDevice { device_type: DL_CUDA, device_id: 0 });
        assert_eq!(managed.data() as u64, address + 3 * 4);
        assert_eq!(managed.strides().unwrap(), [1, 1 << 10]);
        let other = device.new_stream().unwrap();
        // SAFETY: all work is complete, and no other code uses the memory.
        let x = unsafe { Tensor::<i32>::from_dlpack(managed) }.sync_on(&other).unwrap();
        assert_eq!(x.buffer().lend_raw(&other).unwrap(), address + 3 * 4);
        let x = x.index(1, 1).unwrap().to_host_vec().sync_on(&other).unwrap();
        assert_eq!(x, ((1 << 10) + 3..(2 << 10)).collect::<Vec<_>>());
    }
}

#[test]
fn shared_and_broadcast_tensors_are_read_only_for_the_consumer() {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    let x = Tensor::<f32>::ones(4).sync_on(&stream).unwrap();
    let wide = x.broadcast([3, 4]).unwrap();
    assert!(wide.into_dlpack().sync_on(&stream).unwrap().is_read_only());
    let shared = Tensor::<f32>::ones(4).sync_on(&stream).unwrap().into_shared();
    let managed = shared.clone().into_dlpack().sync_on(&stream).unwrap();
    assert!(managed.is_read_only());
    assert_eq!(shared.to_host_vec().sync_on(&stream).unwrap(), [1.0; 4]);
    // SAFETY: no other code writes the memory.
    let refused = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream);
    assert!(matches!(refused, Err(Error::Misuse(_))));
    let none = Tensor::<f32>::zeros([0, 2]).then(|x| x.into_dlpack()).sync_on(&stream).unwrap();
    assert_eq!((none.device().device_type, none.data().is_null()), (DL_CUDA, true));
}

#[test]
fn deleter_is_called_after_the_last_use_of_a_dropped_tensor() {
    let Some(device) = gpu() else { return };
    let (stream, other) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
    for turn in 0..50 {
        let (managed, deleted) = on_gpu(vec![1.0; 1 << 22], &[1 << 22], None, &device).managed();
        // SAFETY: no other code uses the memory.
        let x = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&stream).unwrap();
        let sum = x.add_scalar(turn as f32);
        // SAFETY: foreign code does not use the output.
        let sum = unsafe { sum.async_on(&other) }.unwrap();
        deleted.assert_once();
        assert_eq!(sum.max().item().sync_on(&stream).unwrap(), 1.0 + turn as f32);
    }
}

#[test]
fn deleter_is_called_once_if_the_import_of_gpu_memory_is_refused() {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    let (managed, deleted) = on_gpu(vec![0.0; 4], &[2], None, &device).managed();
    let cpu = open_blocking("cpu").unwrap().new_stream().unwrap();
    // SAFETY: no other code uses the memory.
    let error = unsafe { Tensor::<f32>::from_dlpack(managed) }.sync_on(&cpu).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    deleted.assert_once();
    let (managed, deleted) = on_gpu(vec![0.0; 4], &[2], None, &device).managed();
    // SAFETY: no other code uses the memory.
    let error = unsafe { Tensor::<f32>::from_dlpack(managed) }.graph_on(&stream).map(drop);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("before the recording"), "{error}");
    deleted.assert_once();
}

#[test]
fn export_of_memory_of_a_graph_is_an_error() {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
    let x = Tensor::<f32>::ones(4).sync_on(&stream).unwrap().into_shared();
    let graph = x.clone().mul_scalar(2.0).graph_on(&stream).unwrap();
    assert!(x.into_dlpack().sync_on(&stream).is_err());
    let recorded = Tensor::<f32>::ones(4).then(|x| x.into_dlpack()).graph_on(&stream).map(drop);
    assert!(recorded.unwrap_err().to_string().contains("outside of the recording"));
    drop(graph);
}

#[test]
fn exported_memory_is_freed_after_the_deleter() {
    let Some(device) = gpu() else { return };
    let stream = device.new_stream().unwrap();
    for turn in 0..200u8 {
        let x = Tensor::<u8>::zeros(64 << 20).sync_on(&stream).unwrap();
        let managed = x.into_dlpack().sync_on(&stream).unwrap();
        // The consumer writes on the stream on which the tensor was exported, and does not wait.
        let raw = managed.into_raw();
        // SAFETY: the pointer is valid and is used once. The work is on the stream of the export.
        unsafe {
            let managed = ManagedTensor::from_raw(raw).unwrap();
            let x = Tensor::<u8>::from_dlpack(managed).async_on(&stream).unwrap();
            drop(fill(x.into_buffer(), turn).async_on(&stream).unwrap());
        }
    }
    // If the memory leaked, the loop would have allocated 12.5 GiB.
    assert!(device.memory().unwrap().used < 8 << 30);
}
