//! Sends requests to a server from many connections, and reports counts, latencies and memory as Markdown.
//!
//! ```text
//! cargo run --release --bin server_load
//! cargo run --release --bin server_load -- --device cuda:0 --requests 1000000
//! cargo run --release --bin server_load -- --server 127.0.0.1:3000 --pid $(pidof server)
//! ```
//!
//! Without `--server` it runs a server in this process, so that the memory is that of server and clients. First it
//! sends one request at a time. Then all connections send requests. One request of 100 is cancelled: its connection is
//! closed as soon as the request is sent. One of 100 is malformed. One more client sends requests all the time and
//! never reads a response. The program fails if a valid request gets no answer, or if two requests with the same image
//! get different answers.

mod client;
mod report;
mod target;
mod work;

use std::{error::Error, net::SocketAddr, process::ExitCode};

use clap::Parser;
use examples::digits::Digits;

use report::Report;
use target::Target;
use work::Load;

/// Sends requests to the example server, and reports latencies and memory.
#[derive(Debug, Parser)]
struct Options {
    /// The number of requests from all connections.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(10..))]
    requests: u64,

    /// The number of requests that are sent one at a time, before the others.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    one_at_a_time: u64,

    /// The number of connections.
    #[arg(long, value_name = "N", default_value_t = 64)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// The address of a running server. By default the program runs one itself.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "device")]
    server: Option<SocketAddr>,

    /// The process of a running server, whose memory is reported.
    #[arg(long, value_name = "PID", requires = "server")]
    pid: Option<u32>,

    /// The device of the server in this process, as the option of `server`.
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,
}

#[tokio::main]
async fn main() -> ExitCode {
    match run(Options::parse()).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("server_load: valid requests failed, or their answers changed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("server_load: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether all valid requests had the expected answers.
async fn run(options: Options) -> Result<bool, Box<dyn Error + Send + Sync>> {
    let digits = Digits::load()?;
    let bodies = (0..digits.len()).map(|row| format!("[{:?}]", digits.image(row)).into());
    let target = match options.server {
        Some(address) => Target::running(address, options.pid),
        None => Target::start(options.device, options.connections).await?,
    };
    let load = Load::new(target.address, bodies.collect());
    let report = Report {
        alone: load.one_at_a_time(options.one_at_a_time).await?,
        together: load.together(options.requests, options.connections, &target).await?,
    };
    print!("{report}");
    target.stop().await?;
    Ok(report.is_good())
}
