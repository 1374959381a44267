//! Classifies 1,797 handwritten digits with a small neural network, on a GPU or on the CPU.
//!
//! ```text
//! cargo run --release --example digits                       # on the first GPU, else on the CPU
//! cargo run --release --example digits -- --device cpu       # on a named device: cpu, cuda, cuda:1
//! cargo run --release --example digits -- --repeat 50        # long enough to measure the throughput
//! cargo run --release --example digits --features lease -- --device lease://127.0.0.1:5701 # on a leased device
//! ```
//!
//! The program prints the accuracy on the held-out digits, which were not used in the training, and draws a picture of
//! them. The digits, the weights and the kernels are embedded in the program.
//!
//! The example shows that operations are values. `read` composes a pipeline without using a device. `classify` keeps
//! several pipelines in flight, and no thread blocks on the device. `model.rs` wraps the kernels in operations.

mod options;

use std::{
    error::Error,
    io::{Write, stdout},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use clap::Parser;
use cuda_async::{prelude::*, set_default_device};
use examples::digits::{Digits, Model, Readings, Weights, draw};
use futures::{TryStreamExt, stream};
use indicatif::ProgressBar;

use options::Options;

/// The number of images in a batch.
const BATCH: usize = 64;

/// The number of batches in flight.
const IN_FLIGHT: usize = 8;

/// Returns an operation that classifies one batch. It uploads the pixels and runs the layers. Then two concurrent
/// kernels compute the digits and the probabilities from the same logits.
fn read<'a>(
    model: &Model,
    pixels: &'a [u8],
) -> impl DeviceOp<Output = (Vec<u32>, Vec<f32>)> + use<'a> {
    let (layers, heads) = (model.clone(), model.clone());
    h2d(pixels).then(move |pixels| layers.logits(pixels)).map(Arc::new).then(move |logits| {
        zip!(heads.labels(logits.clone()).then(to_host), heads.probabilities(logits).then(to_host))
    })
}

/// Classifies all digits, with several batches in flight. The results are in the order of the images.
async fn classify(
    model: &Model,
    digits: &Digits,
    progress: &ProgressBar,
) -> cuda_async::Result<Readings> {
    let batches = digits.batches(BATCH).map(|pixels| read(model, pixels));
    let mut answers = stream::iter(batches).run_buffered(IN_FLIGHT);
    let mut readings = Readings::default();
    while let Some((labels, probabilities)) = answers.try_next().await? {
        readings.push(&labels, &probabilities);
        progress.inc(labels.len() as u64);
    }
    Ok(readings)
}

async fn run(options: &Options, device: &Device) -> Result<(), Box<dyn Error>> {
    set_default_device(device)?; // the device that `.await` uses
    let mut out = stdout();
    let info = device.info();
    writeln!(out, "device {} ({})", info.address, info.name)?;

    let digits = Digits::load()?;
    let model = Model::upload(device, &Weights::load()?)?.await?;

    let images = digits.len() as u64 * options.repeat.get();
    let progress = options::progress_bar(images);
    let start = Instant::now();
    let mut readings = Readings::default();
    for _ in 0..options.repeat.get() {
        readings = classify(&model, &digits, &progress).await?;
    }
    let took = start.elapsed();
    progress.finish_and_clear();

    let score = readings.held_out_score(&digits);
    writeln!(out, "accuracy {:.4}", score.accuracy())?;
    writeln!(out, "held out {} of {} right", score.right, score.of)?;
    writeln!(out, "predictions fnv1a:{:016x}", readings.checksum())?;
    writeln!(out, "speed {:.0} images per second", images as f64 / took.as_secs_f64())?;

    draw(&options.picture, &digits, &readings, &info.address)?;
    writeln!(out, "picture {}", options.picture.display())?;
    Ok(())
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let device = match options.device() {
        Ok(device) => device,
        Err(error) => {
            eprintln!("digits: {error}");
            return ExitCode::from(4);
        }
    };
    match run(&options, &device).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("digits: {error}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn reads_the_digits() -> Result<(), Box<dyn Error>> {
        let device = cuda_async::open_blocking("cpu")?;
        set_default_device(&device)?;
        let digits = Digits::load()?;
        let model = Model::upload(&device, &Weights::load()?)?.await?;
        let readings = classify(&model, &digits, &ProgressBar::hidden()).await?;
        assert_eq!(readings.labels.len(), 1797);
        assert_eq!(readings.confidence.len(), 1797);
        assert_eq!(readings.held_out_score(&digits).right, 358);
        Ok(())
    }
}
