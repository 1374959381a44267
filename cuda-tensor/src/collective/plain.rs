//! Collectives by copies between devices, and kernels of this crate.

use cuda_async::{DeviceOp, join_all, script, to_device};
use cuda_core::{Device, Error, Result};

use super::Reduction;
use crate::{Number, Tensor, TensorOps};

/// Reduces on the first device, in the order of the devices, and copies the result to the others.
pub(super) fn all_reduce<T: Number>(
    devices: Vec<Device>,
    tensors: Vec<Tensor<T>>,
    reduction: Reduction,
) -> impl DeviceOp<Output = Vec<Tensor<T>>> {
    reduced(devices.clone(), tensors, reduction).then(move |sum| copies(devices, sum))
}

/// Collects all tensors on the first device, and copies the result to the others.
pub(super) fn all_gather<T: Number>(
    devices: Vec<Device>,
    tensors: Vec<Tensor<T>>,
) -> impl DeviceOp<Output = Vec<Tensor<T>>> {
    let home = devices.first().cloned();
    let gathered = script(async move |cx| {
        let home = home.ok_or(Error::AlreadyEnded)?;
        let shape = tensors.first().map(|tensor| tensor.shape().to_vec()).unwrap_or_default();
        let all: Vec<_> = [tensors.len()].into_iter().chain(shape.iter().copied()).collect();
        let mut gathered = cx.run(Tensor::<T>::zeros(all).on(&home)).await?;
        for (rank, tensor) in tensors.into_iter().enumerate() {
            let here = cx.run(moved(tensor, &home)?).await?;
            let part = gathered.view_mut().index(0, rank)?;
            cx.run(part.memcpy(here).on(&home)).await?;
        }
        Ok(gathered)
    });
    gathered.then(move |all| copies(devices, all))
}

/// Reduces on the first device, and copies a part of the result to each device.
pub(super) fn reduce_scatter<T: Number>(
    devices: Vec<Device>,
    tensors: Vec<Tensor<T>>,
    reduction: Reduction,
) -> impl DeviceOp<Output = Vec<Tensor<T>>> {
    reduced(devices.clone(), tensors, reduction).then(move |sum| {
        let ranks = devices.len();
        let size = sum.shape().first().copied().unwrap_or_default() / ranks;
        let sum = sum.into_shared();
        let parts = devices.iter().enumerate().map(|(rank, device)| {
            let part = sum.clone().slice(0, rank * size..(rank + 1) * size)?;
            let (home, device) = (sum.device().clone(), device.clone());
            Ok(part.dup().on(&home).then(move |part| moved(part, &device)))
        });
        parts.collect::<Result<Vec<_>>>().map(join_all)
    })
}

/// Gives the reduction on the first device.
fn reduced<T: Number>(
    devices: Vec<Device>,
    tensors: Vec<Tensor<T>>,
    reduction: Reduction,
) -> impl DeviceOp<Output = Tensor<T>> {
    script(async move |cx| {
        let home = devices.first().cloned().ok_or(Error::AlreadyEnded)?;
        let mut tensors = tensors.into_iter();
        let mut sum = tensors.next().ok_or(Error::AlreadyEnded)?;
        for tensor in tensors {
            let here = cx.run(moved(tensor, &home)?).await?;
            sum = cx.run(sum.map2(here, reduction.of_two()).on(&home)).await?;
        }
        Ok(sum)
    })
}

/// Copies a tensor of the first device to all others.
fn copies<T: Number>(
    devices: Vec<Device>,
    tensor: Tensor<T>,
) -> impl DeviceOp<Output = Vec<Tensor<T>>> {
    script(async move |cx| {
        let mut others = Vec::new();
        for device in devices.iter().skip(1) {
            let shape = tensor.shape().to_vec();
            let there = cx.run(to_device(tensor.buffer(), device)).await?;
            others.push(Tensor::from_buffer(there, shape)?);
        }
        Ok([tensor].into_iter().chain(others).collect())
    })
}

/// Moves a contiguous tensor to another device.
fn moved<T: Number>(
    tensor: Tensor<T>,
    device: &Device,
) -> Result<impl DeviceOp<Output = Tensor<T>> + use<T>> {
    let shape = tensor.shape().to_vec();
    let buffer = tensor.into_buffer();
    Ok(to_device(buffer, device).try_map(move |buffer| Tensor::from_buffer(buffer, shape)))
}
