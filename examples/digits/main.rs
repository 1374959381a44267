//! Reads 1,797 handwritten digits with a small neural network, on a GPU or on a machine without one.
//!
//! ```text
//! cargo run --release --example digits                       # the best device there is
//! cargo run --release --example digits -- --device cpu       # or one by name: cpu, cuda, cuda:1
//! cargo run --release --example digits -- --repeat 50        # for a throughput that means something
//! ```
//!
//! It prints how many of the digits that the network had never seen were read right, and draws a picture
//! of them. The digits, the weights and the kernels are part of the program, so it runs anywhere alone.
//!
//! What it shows: operations are values. `read` composes a whole pipeline without touching a device,
//! `classify` keeps several of them in flight, and no thread waits for the device. The kernels are made
//! into operations in `model.rs`.

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

/// Images that go through the network together.
const BATCH: usize = 64;

/// Batches that are on the device at the same time.
const IN_FLIGHT: usize = 8;

/// Takes one batch from pixels to answers: up to the device, through the layers, and then two kernels
/// side by side that make of the same logits a digit and how likely each digit is.
fn read<'a>(
    model: &Model,
    pixels: &'a [u8],
) -> impl DeviceOp<Output = (Vec<u32>, Vec<f32>)> + use<'a> {
    let (layers, heads) = (model.clone(), model.clone());
    h2d(pixels).then(move |pixels| layers.logits(pixels)).map(Arc::new).then(move |logits| {
        zip!(heads.labels(logits.clone()).then(to_host), heads.probabilities(logits).then(to_host))
    })
}

/// Reads all digits, several batches at a time. Answers come in the order of the images.
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
    set_default_device(device)?; // what `.await` runs on
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
        let device = cuda_async::open("cpu")?;
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
