//! The command line.

use std::{num::NonZeroUsize, path::PathBuf};

use cuda_async::{Device, default_device, open_blocking};
use examples::decode::{Error, MAX_BATCH, Mode, Symbols, prompts};

/// Continues texts with a small transformer, on a GPU or on the CPU.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// The device: cpu, cuda, cuda:1. The default is the first GPU, or the CPU if there is none.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// The number of characters to generate behind each prompt.
    #[arg(long, value_name = "N", default_value = "200")]
    pub(crate) tokens: usize,

    /// The number of sequences that are decoded together.
    #[arg(long, value_name = "B", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=MAX_BATCH as i64))]
    batch: u16,

    /// The way in which steps are launched.
    #[arg(long, value_name = "MODE", default_value = "all", value_parser = ["direct", "graph", "cache", "all"])]
    mode: String,

    /// The text to continue. The default is one of eight prompts for each sequence.
    #[arg(long, value_name = "TEXT")]
    prompt: Option<String>,

    /// Generates the texts N times in each mode, and reports the fastest.
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) repeat: NonZeroUsize,

    /// Writes the symbols to a file, one row for each sequence, for torch_baseline.py.
    #[arg(long, value_name = "PATH")]
    pub(crate) save: Option<PathBuf>,
}

impl Options {
    /// Opens the requested device.
    pub(crate) fn device(&self) -> cuda_async::Result<Device> {
        self.device.as_deref().map_or_else(default_device, open_blocking)
    }

    /// The requested modes.
    pub(crate) fn modes(&self) -> impl Iterator<Item = Mode> {
        Mode::ALL.into_iter().filter(|mode| self.mode == "all" || self.mode == mode.name())
    }

    /// The prompts of the sequences.
    pub(crate) fn prompts(&self) -> Result<Vec<Symbols>, Error> {
        let prompt = |default| Symbols::encode(self.prompt.as_deref().unwrap_or(default));
        prompts().take(self.batch.into()).map(prompt).collect()
    }
}
