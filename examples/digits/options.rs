//! The command line, and the progress bar.

use std::{num::NonZeroU64, path::PathBuf};

use cuda_async::{Device, default_device, open_blocking};
use indicatif::{ProgressBar, ProgressStyle};

/// Classifies handwritten digits with a small neural network, on a GPU or on the CPU.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// The device: cpu, cuda, cuda:1, or with the feature `lease` lease://HOST:PORT. The default is the first GPU, or
    /// the CPU if there is none.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Classifies all digits N times, to measure the throughput.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: NonZeroU64,

    /// The path of the picture of the results, a PNG.
    #[arg(long, value_name = "PATH", default_value = "target/digits.png")]
    pub(crate) picture: PathBuf,
}

impl Options {
    /// Opens the requested device.
    pub(crate) fn device(&self) -> cuda_async::Result<Device> {
        self.device.as_deref().map_or_else(default_device, open_blocking)
    }
}

/// Creates a progress bar on stderr. It is hidden if stderr is not a terminal.
pub(crate) fn progress_bar(images: u64) -> ProgressBar {
    const LOOK: &str = "{bar:40.cyan/blue} {human_pos} of {human_len} images, {per_sec}";
    let style = ProgressStyle::with_template(LOOK);
    ProgressBar::new(images).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}
