//! Runs any kernel of any PTX file from the shell. Arrays are read from and written to `.npy` files.
//!
//! `cuda-run --help` explains the arguments. The steps of a run:
//!
//! 1. [`cli`] parses the command line, and [`arg`] the kernel's arguments.
//! 2. [`device_options`] opens the device with its checks, and [`run`] loads the module.
//! 3. [`place`] compares the arguments with the kernel's parameters, and copies them to the device.
//! 4. [`run`] launches the kernel, and [`outputs`] writes the results.
//!
//! Every error is a [`command_line::Failure`]: a message and an exit status.
#![deny(unsafe_code)]

mod arg;
mod cli;
mod device_options;
mod outputs;
mod place;
mod run;

use std::process::ExitCode;

fn main() -> ExitCode {
    let done = cli::parse().and_then(|cli| cli.as_ref().map_or(Ok(()), run::run));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("cuda-run"),
    }
}
