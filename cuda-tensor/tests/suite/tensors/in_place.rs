//! Operations that write into an existing tensor.

use cuda_tensor::{Binary, Number, Tensor, TensorOps, bf16, f16};

use cuda_async::{Device, Error, graph::GraphExt, prelude::*};

use super::BINARY;
use crate::{modules::prepared, on_every_device};

on_every_device! {
    results_are_those_of_new_tensors
    forms_come_back
    parts_are_written
    other_tensor_is_broadcast
    shapes_that_do_not_fit_leave_the_tensor
    launches_of_a_graph_accumulate
}

fn agree<T: Number>(device: &Device, of: fn(usize) -> T) {
    let stream = device.new_stream().unwrap();
    // Lengths with and without whole packs, and an address that is aligned to no pack.
    for (len, skip) in [(1, 0), (64, 0), (1000, 0), (1003, 1), (4100, 0)] {
        let tensor = |begin: usize| {
            let elements: Vec<T> = (begin..begin + len).map(of).collect();
            Tensor::from_host(elements, len).sync_on(&stream).unwrap().slice(0, skip..).unwrap()
        };
        for operation in BINARY {
            let expected = tensor(1).map2(tensor(5), operation).to_host_vec();
            let expected = expected.sync_on(&stream).unwrap();
            let x = tensor(1).map2_assign(tensor(5), operation).to_host_vec();
            assert_eq!(format!("{:?}", x.sync_on(&stream).unwrap()), format!("{expected:?}"));
            let expected = tensor(1).map_scalar(operation, of(7)).to_host_vec();
            let expected = expected.sync_on(&stream).unwrap();
            let x = tensor(1).map_scalar_assign(operation, of(7)).to_host_vec();
            assert_eq!(format!("{:?}", x.sync_on(&stream).unwrap()), format!("{expected:?}"));
        }
    }
}

fn results_are_those_of_new_tensors(device: &Device) {
    agree::<f32>(device, |at| at as f32 * 0.3 - 50.0);
    agree::<i64>(device, |at| at as i64 % 7 - 3);
    agree::<u8>(device, |at| at as u8);
    agree::<f16>(device, |at| f16::from_f32(at as f32 * 0.01));
    agree::<bf16>(device, |at| bf16::from_f32(at as f32 * 0.01));
}

fn forms_come_back(device: &Device) {
    let stream = device.new_stream().unwrap();
    let step = Tensor::<i32>::arange(0..6).sync_on(&stream).unwrap().reshape([2, 3]).unwrap();
    let step = step.into_shared();
    let mut x: Tensor<i32> =
        Tensor::zeros([2, 3]).add_assign(step.clone()).sync_on(&stream).unwrap();
    let same: &mut Tensor<i32> =
        (&mut x).sub_assign(Tensor::ones([2, 3])).sync_on(&stream).unwrap();
    let view = same.view_mut().mul_assign(&step).sync_on(&stream).unwrap();
    let view = view.div_assign(Tensor::full(2, [2, 3])).sync_on(&stream).unwrap();
    assert_eq!(view.shape(), [2, 3]);
    // (n - 1) * n / 2
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), [0, 0, 1, 3, 6, 10]);
}

/// Columns and transposed tensors have gaps, so their results go through another tensor.
fn parts_are_written(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = Tensor::<u32>::arange(0..12).sync_on(&stream).unwrap().reshape([3, 4]).unwrap();
    let column = x.view_mut().slice(1, 1..2).unwrap();
    column.map_scalar_assign(Binary::Add, 100).sync_on(&stream).unwrap();
    let rows = x.view_mut().slice(0, 1..).unwrap();
    rows.map_scalar_assign(Binary::Mul, 2).sync_on(&stream).unwrap();
    let columns = x.view_mut().transpose(0, 1).unwrap();
    columns.add_assign(Tensor::from_host(vec![1000, 2000, 3000], 3)).sync_on(&stream).unwrap();
    let expected = [1000, 1101, 1002, 1003, 2008, 2210, 2012, 2014, 3016, 3218, 3020, 3022];
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), expected);
}

fn other_tensor_is_broadcast(device: &Device) {
    let stream = device.new_stream().unwrap();
    let x = Tensor::<f32>::zeros([2, 3]).add_assign(Tensor::from_host(vec![1.0, 2.0, 3.0], 3));
    let x = x.sync_on(&stream).unwrap();
    let x = x.mul_assign(Tensor::from_host(vec![1.0, 10.0], [2, 1])).to_host_vec();
    assert_eq!(x.sync_on(&stream).unwrap(), [1.0, 2.0, 3.0, 10.0, 20.0, 30.0]);
    let empty = Tensor::<f32>::zeros([0, 3]).add_assign(Tensor::ones(3)).to_host_vec();
    assert!(empty.sync_on(&stream).unwrap().is_empty());
}

fn shapes_that_do_not_fit_leave_the_tensor(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = Tensor::<f32>::ones([2, 3]).sync_on(&stream).unwrap();
    for shape in [vec![2], vec![4, 2, 3], vec![2, 4]] {
        let wrong = (&mut x).add_assign(Tensor::ones(shape)).sync_on(&stream).map(drop);
        assert!(matches!(wrong.unwrap_err(), Error::Shape { .. }));
    }
    let row = x.view_mut().slice(0, ..1).unwrap().broadcast([2, 3]).unwrap();
    let error = row.add_assign(Tensor::ones(3)).sync_on(&stream).map(drop).unwrap_err();
    assert!(matches!(error, Error::Misuse(_)), "{error:?}");
    assert_eq!(x.to_host_vec().sync_on(&stream).unwrap(), [1.0; 6]);
}

fn launches_of_a_graph_accumulate(device: &Device) {
    let stream = device.new_stream().unwrap();
    Tensor::<i32>::warm_up().sync_on(&stream).unwrap();
    let x = Tensor::<i32>::zeros([3, 2]).sync_on(&stream).unwrap();
    let graph = x.add_assign(Tensor::from_host(vec![1, 2], 2)).graph_on(&stream).unwrap();
    let graph = prepared(graph);
    for _ in 0..3 {
        graph.launch().sync_on(&stream).unwrap();
    }
    let x = graph.launch().then(|x| x.dup()).to_host_vec().sync_on(&stream).unwrap();
    assert_eq!(x, [4, 8, 4, 8, 4, 8]);
}
