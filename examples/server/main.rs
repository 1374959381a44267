//! Classifies handwritten digits over HTTP, on a GPU or on the CPU.
//!
//! ```text
//! cargo run --release --example server
//! curl localhost:3000/classify --json "[[$(head -1 examples/digits/data/digits.csv | cut -d, -f1-64)]]"
//! curl localhost:3000/metrics
//! ```
//!
//! The response contains the digit of each image. The example shows the parts of a service: requests are collected into
//! batches, a full queue refuses requests, each request has a deadline, and after Ctrl-C the server answers the
//! remaining requests and ends.

use std::{error::Error, time::Duration};

use clap::Parser;
use examples::digits::{Model, Weights};
use server_example::{Limits, serve};
use tokio::net::TcpListener;
use tracing_subscriber::{filter::LevelFilter, fmt::format::FmtSpan};

/// Classifies handwritten digits over HTTP.
#[derive(Parser)]
struct Options {
    /// The address to listen on.
    #[arg(long, default_value = "127.0.0.1:3000")]
    listen: String,
    /// Prints the spans of runs and operations, and all submissions, to standard error.
    #[arg(long)]
    trace: bool,
}

const LIMITS: Limits = Limits {
    queue: 256,
    batch: 32,
    wait: Duration::from_millis(2),
    deadline: Duration::from_secs(2),
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse();
    if options.trace {
        let lines = tracing_subscriber::fmt().with_writer(std::io::stderr);
        lines.with_max_level(LevelFilter::TRACE).with_span_events(FmtSpan::CLOSE).init();
    }
    let device = tokio::task::spawn_blocking(cuda_async::default_device).await??;
    let model = Model::upload(&device, &Weights::load()?)?.await?;

    let listener = TcpListener::bind(&options.listen).await?;
    println!("listening on http://{}, device {}", listener.local_addr()?, device.info().address);
    let ctrl_c = async { tokio::signal::ctrl_c().await.unwrap_or_default() };
    serve(listener, model, LIMITS, ctrl_c).await?;
    println!("all requests are answered");
    Ok(())
}
