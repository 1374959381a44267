//! Leases devices of nodes and runs kernels on them, from the shell.
//!
//! `cuda-lease --help` explains the subcommands. [`options`] declares the command line. The subcommands are in
//! [`listing`] (inventory, top), [`leases`] (alloc, renew, free), [`submit`] and [`certs`]. They reach the node through
//! [`connect`], and keep a lease in a file through [`saved`]. [`out_file`] writes files. [`signals`] waits for Ctrl-C.
//!
//! Every error is a [`command_line::Failure`]: a message and an exit status.
#![forbid(unsafe_code)]

mod certs;
mod connect;
mod leases;
mod listing;
mod options;
mod out_file;
mod output;
mod saved;
mod signals;
mod submit;

use std::process::ExitCode;

use clap::Parser;
use command_line::Failure;
use options::{Command, Options};

fn main() -> ExitCode {
    // clap prints its own errors and exits with 2, the status of bad input.
    match run(Options::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("cuda-lease"),
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Inventory(args) => listing::inventory(&args),
        Command::Alloc(args) => leases::alloc(&args),
        Command::Renew(args) => leases::renew(&args),
        Command::Free(args) => leases::free(&args),
        Command::Submit(args) => submit::run(&args),
        Command::Top(args) => listing::top(&args),
        Command::Certs(args) => certs::run(&args),
    }
}
