//! Runs any kernel of any PTX file from the shell, with arrays in and out as `.npy` files.
//!
//! `cuda-run --help` explains the arguments. From top to bottom: [`cli`] reads the command line and [`arg`]
//! the kernel's arguments; [`run`] loads the module, [`check`]s them against the kernel's parameters,
//! [`place`]s them on the device, [`launch`]es, and passes the results to [`outputs`]; [`watch`] opens the device
//! with its checks. Every error is a [`failure::Failure`]: one line and an exit status.
#![deny(unsafe_code)]

mod arg;
mod array_type;
mod check;
mod cli;
mod dtype;
mod failure;
mod launch;
mod list;
mod npy;
mod outputs;
mod place;
mod run;
mod scalar;
mod stdout;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    let done = cli::parse().and_then(|cli| cli.as_ref().map_or(Ok(()), run::run));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
