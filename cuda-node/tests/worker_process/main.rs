//! Worker processes: real processes, their sockets, their ends and the resources that they leave.
//!
//! The program re-executes itself with `--role=NAME` as a worker or a supervisor. [`roles`] has these programs.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cases;
mod lines;
mod on_gpu;
mod proc_fs;
mod roles;

use std::process::ExitCode;

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    if let Some(role) = role.as_deref().and_then(|argument| argument.strip_prefix("--role=")) {
        return roles::run(role);
    }
    let trials = cases::all().into_iter().chain(on_gpu::all()).collect();
    libtest_mimic::run(&libtest_mimic::Arguments::from_args(), trials).exit_code()
}
