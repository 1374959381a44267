//! Conversions that are errors, with their messages.

use candle_core::{DType, Storage, Tensor as Theirs, op::BackpropOp};
use cuda_async::{
    Error,
    interop::cudarc::driver::sys::{CUgraphInstantiate_flags, CUstreamCaptureMode},
    open_blocking,
    prelude::*,
};
use cuda_tensor::{SharedTensor, Tensor, TensorOps};

use crate::gpu::{cuda, gpus};

/// Converts a tensor that no code writes.
fn take(theirs: &Theirs) -> impl DeviceOp<Output = SharedTensor<f32>> {
    // SAFETY: no code writes the elements.
    unsafe { SharedTensor::<f32>::from_candle_cuda(theirs.clone()) }
}

#[test]
fn tensor_on_the_cpu_is_refused() {
    for (_, stream, _) in gpus() {
        let theirs = Theirs::zeros(4, DType::F32, &candle_core::Device::Cpu).unwrap();
        let error = take(&theirs).sync_on(&stream).unwrap_err();
        let message = "a tensor of candle: it is not on a CUDA GPU; use `from_candle` and `to_candle`, which copy";
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn other_element_type_is_refused() {
    for (_, stream, device) in gpus() {
        let theirs = Theirs::zeros(4, DType::F64, &device).unwrap();
        let error = take(&theirs).sync_on(&stream).unwrap_err();
        assert!(error.to_string().contains("its elements are f64, not f32"), "{error}");
    }
}

#[test]
fn operation_on_another_device_is_refused() {
    let cpu = open_blocking("cpu").unwrap().new_stream().unwrap();
    for (_, stream, device) in gpus() {
        let theirs = Theirs::zeros(4, DType::F32, &device).unwrap();
        let error = take(&theirs).sync_on(&cpu).unwrap_err().to_string();
        assert!(error.contains("lives on `cuda:0` and was used on `cpu`; run"), "{error}");
        let x = Tensor::<f32>::zeros(4).sync_on(&cpu).unwrap();
        let error = x.into_candle_cuda(&device).sync_on(&cpu).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
        let x = Tensor::<f32>::zeros(4).sync_on(&cpu).unwrap();
        let error = x.into_shared().into_candle_cuda(&device).sync_on(&stream).unwrap_err();
        assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
        match open_blocking("cuda:1") {
            Ok(second) => {
                let other = second.new_stream().unwrap();
                let error = take(&theirs).sync_on(&other).unwrap_err().to_string();
                assert!(error.contains("`cuda:0` and was used on `cuda:1`"), "{error}");
                let x = Tensor::<f32>::zeros(4).sync_on(&other).unwrap();
                let error = x.into_candle_cuda(&device).sync_on(&other).unwrap_err();
                assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
            }
            Err(error) => println!("not run with a second GPU: {error}"),
        }
    }
}

#[test]
fn cpu_device_of_candle_is_refused() {
    for (_, stream, _) in gpus() {
        let x = Tensor::<f32>::zeros(4).sync_on(&stream).unwrap();
        let error = x.into_candle_cuda(&candle_core::Device::Cpu).sync_on(&stream).unwrap_err();
        let message = "a device of candle: it is not on a CUDA GPU; use `from_candle` and `to_candle`, which copy";
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[test]
fn recordings_are_refused() {
    for (_, stream, device) in gpus() {
        let theirs = Theirs::zeros(4, DType::F32, &device).unwrap();
        Tensor::<f32>::warm_up().sync_on(&stream).unwrap();
        let error = take(&theirs).graph_on(&stream).map(drop).unwrap_err();
        assert!(matches!(error, Error::Misuse(_)), "{error}");
        let given = Tensor::<f32>::zeros(4).then(|x| x.into_candle_cuda(&device));
        let error = given.graph_on(&stream).map(drop).unwrap_err();
        assert!(matches!(error, Error::Misuse(_)), "{error}");
        let x = Tensor::<f32>::zeros(4).sync_on(&stream).unwrap().into_shared();
        let graph = x.clone().mul_scalar(2.0).graph_on(&stream).unwrap();
        let copy = x.clone().into_candle_cuda(&device).sync_on(&stream).unwrap();
        assert_eq!(copy.to_vec1::<f32>().unwrap(), [0.0; 4]);
        let error = x.into_candle_cuda(&device).sync_on(&stream).unwrap_err();
        assert!(matches!(error, Error::Misuse(_)), "{error}");
        drop(graph);
    }
}

#[test]
fn tensor_that_reaches_past_its_memory_is_refused() {
    for (_, stream, device) in gpus() {
        let slice = cuda(&device).alloc_zeros::<f32>(5).unwrap();
        let storage = candle_core::CudaStorage::wrap_cuda_slice(slice, cuda(&device).clone());
        let storage = Storage::Cuda(storage);
        let theirs = Theirs::from_storage(storage, (2, 3), BackpropOp::none(), false);
        let error = take(&theirs).sync_on(&stream).unwrap_err().to_string();
        assert!(error.contains("the end is 6 and must be at most 5"), "{error}");
        // The part inside the memory converts.
        let inside = theirs.narrow(0, 0, 1).unwrap();
        assert_eq!(take(&inside).then(|x| x.to_host_vec()).sync_on(&stream).unwrap(), [0.0; 3]);
    }
}

#[test]
fn memory_of_other_foreign_code_is_refused() {
    for (_, stream, device) in gpus() {
        let theirs = Theirs::zeros(4, DType::F32, &device).unwrap();
        let owned = take(&theirs).sync_on(&stream).unwrap().into_owned().unwrap();
        let error = owned.into_candle_cuda(&device).sync_on(&stream).unwrap_err().to_string();
        assert!(
            error.contains("giving memory to cudarc: the memory belongs to foreign code; copy it"),
            "{error}"
        );
    }
}

#[test]
fn captured_stream_is_refused() {
    let Some((_, stream, device)) = gpus().pop() else { return };
    let theirs = Theirs::zeros(4, DType::F32, &device).unwrap();
    let captured = cuda(&device).cuda_stream();
    captured.begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).unwrap();
    let taken = take(&theirs).sync_on(&stream);
    assert!(matches!(taken, Err(Error::Misuse(_))), "{taken:?}");
    let given = Tensor::<f32>::zeros(4).then(|x| x.into_candle_cuda(&device)).sync_on(&stream);
    assert!(matches!(given, Err(Error::Misuse(_))), "{given:?}");
    let flags = CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    _ = captured.end_capture(flags);
}
