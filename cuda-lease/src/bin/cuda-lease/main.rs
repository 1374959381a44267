//! Leases devices of nodes and runs kernels on them, from the shell.
//!
//! `cuda-lease --help` explains the subcommands. [`options`] declares the command line. Each subcommand has a file or a
//! folder: [`inventory`], [`top`], [`leases`] (alloc, renew, free), [`submit`] and [`certs`]. They reach the node through
//! [`connect`], and keep a lease in a file through [`saved`].
//!
//! Every error is a [`command_line::Failure`]: a message and an exit status.
#![forbid(unsafe_code)]

mod certs;
mod connect;
mod format;
mod inventory;
mod leases;
mod listing;
mod options;
mod saved;
mod submit;
mod table;
mod top;

use std::process::ExitCode;

use clap::Parser;
use command_line::Failure;

use options::{Command, Options};

fn main() -> ExitCode {
    // clap prints its own errors and exits with 2, the status of bad input.
    let Options { node, command } = Options::parse();
    match run(&node, command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report("cuda-lease"),
    }
}

fn run(node: &options::NodeArgs, command: Command) -> Result<(), Failure> {
    match command {
        Command::Inventory(args) => inventory::run(node, &args),
        Command::Alloc(args) => leases::alloc(node, &args),
        Command::Renew(args) => leases::renew(node, &args),
        Command::Free(args) => leases::free(node, &args),
        Command::Submit(args) => submit::run(node, &args),
        Command::Top(args) => top::run(node, &args),
        Command::Certs(args) => certs::run(&args),
    }
}
