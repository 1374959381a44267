//! Finds the frequencies of signals: Fourier transforms, a matrix product, and a sum over all devices.
//!
//! `cargo run -p interop-example`. On a GPU with cuFFT, cuBLAS and NCCL the program uses them, and passes memory from
//! and to cudarc. On another machine the same lines run on the CPU device.

use std::{error::Error, f32::consts::TAU};

use cuda_tensor::{
    Tensor, TensorOps,
    collective::{Communicator, Reduction},
};

use cuda_async::{
    Device,
    cuda_cpu::CpuProvider,
    devices,
    interop::{self, cudarc::driver::CudaContext},
    join_all, open_blocking,
    prelude::*,
};

/// The numbers of a signal.
const N: usize = 1 << 10;
/// The frequencies of the signals: periods in `N` numbers.
const FREQUENCIES: [usize; 4] = [3, 17, 100, 311];

fn main() -> Result<(), Box<dyn Error>> {
    let group = Communicator::new(&all_devices()?)?;
    println!("devices: {:?}, NCCL: {}", group.devices(), group.uses_nccl());

    // Each device transforms the signals and finds the strongest frequency of each.
    let found = group.devices().iter().map(|device| frequencies(signals()).on(device));
    let found = join_all(found).sync()?;
    for (found, device) in found.iter().zip(group.devices()) {
        println!("frequencies: {:?}", found.view().to_host_vec().on(device).sync()?);
    }

    // Every device has found the same frequencies, so each sum is a frequency times the number of devices.
    let counts = found
        .into_iter()
        .zip(group.devices())
        .map(|(found, device)| found.cast::<f32>().on(device));
    let sums = join_all(counts).then({
        let group = group.clone();
        move |counts| group.all_reduce(counts, Reduction::Sum)
    });
    let sums = sums.sync()?;
    println!("sums: {:?}", sums[0].view().to_host_vec().on(&group.devices()[0]).sync()?);

    // The correlations of the signals with each other. Their frequencies differ, so this is a scaled identity matrix.
    let first = &group.devices()[0];
    let matrix = Tensor::from_host(signals(), [FREQUENCIES.len(), N, 2]);
    let real = matrix.try_map(|matrix| matrix.index(2, 0)).on(first).sync()?.into_shared();
    let correlations = real.clone().matmul(real.transpose(0, 1)?).mul_scalar(2.0 / N as f32);
    let correlations = correlations.to_host_vec().on(first).sync()?;
    println!(
        "correlations: {:?}",
        correlations.iter().map(|correlation| correlation.round()).collect::<Vec<_>>()
    );

    if first.info().address.starts_with("cuda:") {
        with_cudarc()?;
    }
    Ok(())
}

/// The GPUs of this machine, or two CPU devices.
fn all_devices() -> cuda_async::Result<Vec<Device>> {
    let gpus = devices().into_iter().filter(|device| device.address.starts_with("cuda:"));
    let gpus =
        gpus.map(|gpu| open_blocking(&gpu.address)).collect::<cuda_async::Result<Vec<_>>>()?;
    if !gpus.is_empty() {
        return Ok(gpus);
    }
    (0..2).map(|_| Device::open(&CpuProvider::default(), 0)).collect()
}

/// A sine of each frequency, as complex numbers.
fn signals() -> Vec<f32> {
    let wave = |frequency: usize| {
        (0..N).flat_map(move |at| {
            let turn = (frequency * at % N) as f32 / N as f32;
            [(TAU * turn).sin(), 0.0]
        })
    };
    FREQUENCIES.into_iter().flat_map(wave).collect()
}

/// Gives the strongest frequency of each signal.
fn frequencies(signals: Vec<f32>) -> impl DeviceOp<Output = Tensor<u64>> {
    Tensor::from_host(signals, [FREQUENCIES.len(), N, 2]).fft().then(|spectrum| {
        let spectrum = spectrum.into_shared();
        let power = spectrum.clone().mul(spectrum).sum_dim(2);
        // The second half of the spectrum of real numbers mirrors the first.
        power.try_map(|power| power.slice(1, ..N / 2)).argmax(1)
    })
}

/// Passes memory of cudarc through an operation on a stream of cudarc, and back.
fn with_cudarc() -> Result<(), Box<dyn Error>> {
    let theirs = CudaContext::new(0)?.new_stream()?;
    // SAFETY: no code captures the stream.
    let stream = unsafe { interop::stream(&theirs) }?;
    let numbers = interop::from_slice(theirs.clone_htod(&[1.0f32, 2.0, 3.0])?)?;
    let doubled = Tensor::<f32>::from_buffer(numbers, 3)?.mul_scalar(2.0).sync_on(&stream)?;
    let doubled = interop::into_slice(doubled.into_buffer(), &theirs)?;
    println!("from cudarc and back: {:?}", theirs.clone_dtoh(&doubled)?);
    Ok(())
}
