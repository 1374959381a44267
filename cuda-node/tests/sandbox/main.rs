//! The sandbox of workers, from the side of an attacker: a hostile worker tries to reach its supervisor, other workers
//! and the machine.
//!
//! The program re-executes itself with `--role=NAME`: as a supervisor, as its hostile worker ([`attacks`]), as other
//! workers, and as a node. Each attack is first seen to succeed without a sandbox.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod attacks;
mod cases;
mod node;
mod supervisor;

use std::process::ExitCode;

fn main() -> ExitCode {
    let role = std::env::args().nth(1);
    match role.as_deref().and_then(|argument| argument.strip_prefix("--role=")) {
        Some("attacker") => attacks::run(),
        Some("other-worker") => supervisor::other_worker(),
        Some("supervisor") => supervisor::run(),
        Some("print-memory-limit") => supervisor::print_memory_limit(),
        Some("reporter") => supervisor::reporter(),
        Some("filler") => supervisor::filler(),
        Some("node") => node::run(),
        Some("changing-node") => node::run_changing(),
        Some("changing-worker") => node::changing_worker(),
        Some("greedy-worker") => node::greedy_worker(),
        Some(role) => panic!("no role {role}"),
        None => {
            let arguments = libtest_mimic::Arguments::from_args();
            let _program = cases::publish_program();
            libtest_mimic::run(&arguments, cases::all()).exit_code()
        }
    }
}
