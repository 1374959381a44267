//! Runs a kernel once.
//!
//! 1. [`files`] reads the kernel's file and the input, and [`argument`] checks the arguments against the kernel's
//!    parameters.
//! 2. [`output`](crate::output) checks that the output can be written, in its format.
//! 3. The job runs on an allocated lease, or on a lease that ends with this program.

mod argument;
mod files;

use std::{
    io::{IsTerminal, Write},
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use command_line::{Failure, stdout};
use cuda_core::{Error, LaunchConfig};
use cuda_lease::{Job, Lease, Submit, Submitted, wire};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::runtime::Builder;

use self::files::Image;
use crate::{connect, options::SubmitArgs, output::Output, saved::Named, signals::Signals};

/// The least memory of a lease that is made for one submit: 256 MiB.
const LEAST_VRAM: u64 = 256 << 20;

/// The memory of such a lease besides the region.
const SPARE_VRAM: u64 = 64 << 20;

/// The time after a signal in which a lease arrives that the node has granted already.
const GRANTED: Duration = Duration::from_secs(2);

/// The maximum number of threads of a block, on every device.
const MAX_THREADS: u64 = 1024;

/// The size of an input from which a progress bar is shown.
const LARGE: usize = 1 << 20;

/// Runs the kernel, and writes its output.
pub(crate) fn run(args: &SubmitArgs) -> Result<(), Failure> {
    check_sizes(args)?;
    let image = Image::read(args)?;
    let arguments = argument::read(&args.args, image.entry(&args.kernel)?)?;
    let input = match &args.input {
        Some(path) => files::read(path, wire::Submit::INPUT_LIMIT)?.bytes,
        None => Vec::new(),
    };
    let output = Output::new(args.format, args.out.as_deref())?;
    let submitted = submit(args, job(args, image, arguments, input.into()))?;
    // The text that the kernel printed, which has no effect on a terminal. If stderr is closed, it is discarded.
    let text = match std::io::stderr().is_terminal() {
        true => stdout::escaped(&submitted.text, stdout::LINES),
        false => submitted.text,
    };
    _ = std::io::stderr().write_all(text.as_bytes());
    output.write(&submitted.output)
}

/// Checks the sizes that need no file and no node.
fn check_sizes(args: &SubmitArgs) -> Result<(), Failure> {
    let threads: u64 = args.block.iter().map(|&size| u64::from(size)).fold(1, u64::saturating_mul);
    if threads > MAX_THREADS {
        return Err(Failure::bad_input(format_args!(
            "--block: a block of {threads} threads, the limit is {MAX_THREADS}; use more blocks (--grid)"
        )));
    }
    let (bytes, limit) = (args.output_bytes, wire::Submit::OUTPUT_LIMIT);
    if bytes > limit {
        return Err(Failure::bad_input(format_args!(
            "--output-bytes {bytes}: the limit is {limit} bytes (64 MiB); read less, at another --output-offset"
        )));
    }
    args.format.check(bytes)?;
    let end = args.output_offset.saturating_add(bytes);
    match args.region_bytes {
        Some(region) if region > 0 && end > region => Err(Failure::bad_input(format_args!(
            "the output ends at byte {end}, the region has {region}; use a larger --region-bytes"
        ))),
        _ => Ok(()),
    }
}

fn job(args: &SubmitArgs, image: Image, arguments: Vec<Vec<u8>>, input: Bytes) -> Job {
    let config = {
        let ([gx, gy, gz], [x, y, z]) = (args.grid, args.block);
        LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z).shared_bytes(args.shared)
    };
    let job = image
        .job(&args.kernel)
        .config(config)
        .input_bytes(input)
        .region_bytes(args.region_bytes.unwrap_or(0))
        .output_offset(args.output_offset)
        .max_output(args.output_bytes);
    arguments.iter().fold(job, |job, bytes| job.arg_bytes(bytes))
}

/// Runs the job on the lease that the command line names, or on one of its own. A signal ends both, and frees its own
/// lease.
fn submit(args: &SubmitArgs, job: Job) -> Result<Submitted, Failure> {
    let failed = |error| Failure::failed(error).at("failed to start a runtime");
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    if let Some(named) = Named::of(args.lease.as_deref(), args.token.as_deref())? {
        let client = connect::client(&named.node(&args.node))?;
        let job = client.submit(named.lease, named.token, job);
        let end = format!("; the kernel may run until lease {} ends", named.lease);
        let submitted =
            runtime.block_on(async { launch(job, args, &mut Signals::new()?, &end).await });
        client.close();
        return submitted;
    }
    runtime.block_on(async {
        let mut signals = Signals::new()?;
        let lease = acquire(args, &mut signals).await?;
        let end = ", so its lease ends";
        let submitted = launch(lease.submit_job(job), args, &mut signals, end).await;
        lease.close();
        submitted
    })
}

/// Acquires a lease for the job.
async fn acquire(args: &SubmitArgs, signals: &mut Signals) -> Result<Lease, Failure> {
    let node = &args.node;
    let end = args.output_offset.saturating_add(args.output_bytes);
    let region = args.region_bytes.unwrap_or(0).max(end);
    let least = LEAST_VRAM.max(region.saturating_add(SPARE_VRAM));
    let request = connect::request(node, &args.terms, least)?;
    let mut acquired = pin!(request.acquire());
    let interruption = tokio::select! {
        lease = &mut acquired => {
            return lease.map_err(|error| connect::refused(node, &args.terms, error));
        }
        interruption = signals.next() => interruption,
    };
    // A lease that the node has granted already is freed.
    if let Ok(Ok(lease)) = tokio::time::timeout(GRANTED, acquired).await {
        lease.close();
    }
    Err(interruption.failure(" before it had a lease").at(kernel(args)))
}

/// Runs the job. `end` states in words the end of its lease after a signal.
async fn launch(
    submit: Submit<'_>,
    args: &SubmitArgs,
    signals: &mut Signals,
    end: &str,
) -> Result<Submitted, Failure> {
    let (submit, bar) = with_progress(submit);
    let over = async {
        match args.timeout {
            None => std::future::pending().await,
            Some(limit) => {
                tokio::time::sleep(Duration::from_secs(limit)).await;
                limit
            }
        }
    };
    let submitted = tokio::select! {
        submitted = submit.launch() => Ok(submitted),
        limit = over => {
            let message = format!("did not end within {limit} s (--timeout), so its lease ends");
            Err(Failure::unavailable(message))
        }
        interruption = signals.next() => Err(interruption.failure(end)),
    };
    bar.finish_and_clear();
    submitted.map_err(|failure| failure.at(kernel(args)))?.map_err(|error| match error {
        // The node names itself and its status, which the exit status tells. The user knows the kernel.
        Error::Remote { .. } => Failure::from(error).at(kernel(args)),
        error => error.into(),
    })
}

fn kernel(args: &SubmitArgs) -> String {
    format!("kernel `{}`", args.kernel)
}

/// Shows the progress of a large input on stderr, if that is a terminal.
fn with_progress(submit: Submit<'_>) -> (Submit<'_>, ProgressBar) {
    let length = submit.input_len();
    if length < LARGE {
        return (submit, ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()));
    }
    const LOOK: &str =
        "input {bar:40.cyan/blue} {binary_bytes} of {binary_total_bytes}, {binary_bytes_per_sec}";
    let style = ProgressStyle::with_template(LOOK);
    let bar = ProgressBar::new(length as u64)
        .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let moved = bar.clone();
    (submit.on_sent(move |sent| moved.set_position(sent)), bar)
}
