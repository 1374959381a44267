//! The command line.

use std::time::Duration;

use server_example::Limits;

/// Classifies handwritten digits over HTTP.
#[derive(Debug, clap::Parser)]
pub(crate) struct Options {
    /// The address to listen on.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:3000")]
    pub(crate) listen: String,

    /// The device: cpu, cuda:0, or lease://HOST:PORT for a device of a node. The default is the first GPU, or the CPU
    /// if there is none.
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<String>,

    /// The maximum number of requests that wait for a batch. Further ones get status 503.
    #[arg(long, value_name = "N", default_value_t = 256)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    queue: u32,

    /// The maximum number of requests in a batch.
    #[arg(long, value_name = "N", default_value_t = 32)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    batch: u32,

    /// The time for which the first request of a batch waits for others, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=60_000))]
    wait_ms: u32,

    /// The maximum time from request to response, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=600_000))]
    deadline_ms: u32,

    /// The maximum number of connections. Further clients wait.
    #[arg(long, value_name = "N", default_value_t = 512)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    connections: u32,

    /// The time that requests have to end at a shutdown, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 10_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=600_000))]
    grace_ms: u32,

    /// Prints the spans of runs and operations, and all submissions, to standard error.
    #[arg(long)]
    pub(crate) trace: bool,
}

impl Options {
    pub(crate) fn limits(&self) -> Limits {
        let ms = |ms: u32| Duration::from_millis(ms.into());
        Limits {
            queue: self.queue as usize,
            batch: self.batch as usize,
            wait: ms(self.wait_ms),
            deadline: ms(self.deadline_ms),
            connections: self.connections as usize,
            grace: ms(self.grace_ms),
            ..Limits::default()
        }
    }
}
