//! Runs the program `cuda-lease` against nodes in this process, and checks its output and its exit status.
#![allow(clippy::unwrap_used)]

mod certificates;
mod failures;
mod false_nodes;
mod leases;
mod submit;
mod support;
mod terminal;
mod worker;
