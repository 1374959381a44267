//! Classifies handwritten digits over HTTP, on a GPU, on the CPU or on a leased device.
//!
//! ```text
//! cargo run --release --bin server
//! curl localhost:3000/classify -d "[[$(head -1 examples/digits/data/digits.csv | cut -d, -f1-64)]]"
//! curl localhost:3000/metrics
//! ```
//!
//! Open <http://localhost:3000> and draw a digit. The example shows the parts of a service: requests are collected
//! into batches, a full queue refuses requests, each request has a deadline, all memory is bounded, and after Ctrl-C
//! or SIGTERM the server answers the remaining requests and ends.

mod options;
mod signals;

use std::{
    io::{IsTerminal, stderr},
    process::ExitCode,
};

use clap::Parser;
use server_example::{Classifier, serve};
use tokio::net::TcpListener;
use tracing_subscriber::{filter::LevelFilter, fmt::format::FmtSpan};

use options::Options;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    if options.trace {
        let lines = tracing_subscriber::fmt().with_writer(stderr).with_ansi(stderr().is_terminal());
        lines.with_max_level(LevelFilter::TRACE).with_span_events(FmtSpan::CLOSE).init();
    }
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Box<dyn std::error::Error>> {
    // Handle signals before the first line of output: a signal that follows it must start a graceful shutdown.
    let signal = signals::shutdown()?;
    let listener = TcpListener::bind(&options.listen)
        .await
        .map_err(|error| format!("cannot listen on {}: {error}", options.listen))?;
    println!("listening on http://{}", listener.local_addr()?);
    let limits = options.limits();
    let device = options.device;
    let load = async {
        let classifier = Classifier::open(device).await?;
        println!("ready, device {}", classifier.address());
        Ok(classifier)
    };
    let shutdown = async {
        signal.await;
        println!("shutting down");
    };
    match serve(listener, limits, load, shutdown).await? {
        0 => println!("all requests are answered"),
        cut => println!("{cut} connections were closed during a request"),
    }
    Ok(())
}
