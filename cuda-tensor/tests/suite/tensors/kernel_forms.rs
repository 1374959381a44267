//! Tensors as arguments of declared kernels, in every form, and partitions.

use std::sync::Arc;

use cuda_tensor::{Tensor, TensorOps};

use cuda_async::{Device, Error, launch, prelude::*};

use crate::{modules::load_ptx, on_every_device};

on_every_device! {
    tensors_are_arguments_in_every_form
    non_contiguous_views_are_refused
    conditions_use_the_number_of_elements
    partitions_are_outputs
}

cuda_async::kernels! {
    #[ptx = "../kernels/saxpy.ptx"]
    unsafe struct Vectors; // SAFETY: each kernel stays below n, which is the length of both buffers.

    #[elements(n)]
    safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len()) where x.len() == y.len();
}

fn vectors(device: &Device) -> Vectors {
    Vectors::of_module(&load_ptx(device, Vectors::PTX).unwrap()).unwrap()
}

fn tensors_are_arguments_in_every_form(device: &Device) {
    let (stream, vectors) = (device.new_stream().unwrap(), vectors(device));
    let ones = || Tensor::<f32>::ones([2, 3]);
    let mut y = Tensor::<f32>::zeros([2, 3]).sync_on(&stream).unwrap();
    let owned = ones().sync_on(&stream).unwrap();
    // Lazy, owned, shared and borrowed inputs; borrowed and owned outputs. Each form comes back.
    let (owned, _) = vectors.saxpy(owned, &mut y, 1.0).sync_on(&stream).unwrap();
    let (shared, _) = vectors.saxpy(Arc::new(owned), &mut y, 1.0).sync_on(&stream).unwrap();
    vectors.saxpy(&*shared, y.view_mut(), 1.0).sync_on(&stream).unwrap();
    let (view, _) = vectors.saxpy(shared.view(), &mut y, 1.0).sync_on(&stream).unwrap();
    assert_eq!(view.shape(), [2, 3]);
    let handle = Arc::into_inner(shared).unwrap().into_shared();
    let (handle, y) = vectors.saxpy(handle, y, 1.0).sync_on(&stream).unwrap();
    let (_, y) = vectors.saxpy(&handle, y, 1.0).sync_on(&stream).unwrap();
    let (x, y) = vectors.saxpy(ones(), y, 1.0).sync_on(&stream).unwrap();
    assert_eq!((x.shape(), y.shape()), (&[2, 3][..], &[2, 3][..]));
    // With a buffer, and after an operation on tensors.
    let buffer = h2d(vec![1.0f32; 6]).sync_on(&stream).unwrap();
    let (_, y) = vectors.saxpy(buffer, y.mul_scalar(2.0), 1.0).sync_on(&stream).unwrap();
    assert_eq!(y.to_host_vec().sync_on(&stream).unwrap(), [15.0; 6]);
}

fn non_contiguous_views_are_refused(device: &Device) {
    let (stream, vectors) = (device.new_stream().unwrap(), vectors(device));
    let x = Tensor::<f32>::arange(0.0..12.0).sync_on(&stream).unwrap().reshape([3, 4]).unwrap();
    let x = x.into_shared();
    let zeros = || Tensor::<f32>::zeros(6);
    let gaps = x.clone().slice(1, 1..3).unwrap();
    let error = vectors.saxpy(gaps.clone(), zeros(), 1.0).sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::Arguments { .. }), "{error:?}");
    assert!(error.to_string().contains("[3, 2] has the strides [4, 1]"), "{error}");
    let repeated =
        x.clone().slice(0, ..1).unwrap().slice(1, ..1).unwrap().broadcast(6).unwrap_err();
    assert!(matches!(repeated, Error::Shape { .. }), "{repeated:?}");
    let one = x.clone().index(0, 0).unwrap().slice(0, ..1).unwrap().broadcast(6).unwrap();
    assert!(vectors.saxpy(one, zeros(), 1.0).sync_on(&stream).is_err());
    // A contiguous part is passed from its first element on. A copy of any view is contiguous.
    let rows = x.slice(0, 1..).unwrap().slice(0, ..1).unwrap();
    let (_, y) = vectors.saxpy(rows, Tensor::zeros(4), 1.0).sync_on(&stream).unwrap();
    assert_eq!(y.to_host_vec().sync_on(&stream).unwrap(), [4.0, 5.0, 6.0, 7.0]);
    let (_, y) = vectors.saxpy(gaps.dup(), zeros(), 1.0).sync_on(&stream).unwrap();
    assert_eq!(y.to_host_vec().sync_on(&stream).unwrap(), [1.0, 2.0, 5.0, 6.0, 9.0, 10.0]);
}

fn conditions_use_the_number_of_elements(device: &Device) {
    let (stream, vectors) = (device.new_stream().unwrap(), vectors(device));
    let op = vectors.saxpy(Tensor::ones(5), Tensor::zeros([2, 3]), 1.0);
    let error = op.sync_on(&stream).map(drop).unwrap_err();
    assert!(error.to_string().contains("`x.len()` is 5, `y.len()` is 6"), "{error}");
}

fn partitions_are_outputs(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = Tensor::<f32>::ones(1000).sync_on(&stream).unwrap();
    let part = x.view_mut().partition(300).unwrap();
    assert_eq!((part.tile(), part.tiles()), (&[300][..], vec![4]));
    let config = part.launch_config(320);
    assert_eq!((config.grid, config.block), ([4, 1, 1], [320, 1, 1]));
    let basic = load_ptx(device, include_str!("../../../../kernels/basic.ptx")).unwrap();
    let scale = basic.function("scale").unwrap();
    // SAFETY: `scale(x, factor, n)` writes x, all below n.
    let op = unsafe { launch(&scale, config, (part, 3.0f32, 1000u32)) };
    let part = op.sync_on(&stream).unwrap();
    assert_eq!(part.unpartition().shape(), [1000]);
    let vectors = vectors(device);
    let whole = x.partition(1000).unwrap();
    let (_, whole) = vectors.saxpy(Tensor::<f32>::ones(1000), whole, 1.0).sync_on(&stream).unwrap();
    let sum = whole.unpartition().sum().item().sync_on(&stream).unwrap();
    assert_eq!(sum, 4000.0);
    let cube =
        Tensor::<u8>::zeros([5, 6, 7]).sync_on(&stream).unwrap().partition([2, 3, 4]).unwrap();
    assert_eq!(cube.launch_config(1).grid, [3, 2, 2]);
    for wrong in [vec![1], vec![1, 0, 1], vec![1; 4]] {
        let error = Tensor::<u8>::zeros([5, 6, 7]).sync_on(&stream).unwrap().partition(wrong);
        assert!(matches!(error, Err(Error::Shape { .. })));
    }
}
