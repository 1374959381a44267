//! Runs the program `cuda-lease` against nodes in this process, and checks its output and its exit status. [`node`] runs
//! the program `cuda-node`.
#![allow(clippy::unwrap_used)]

mod certificates;
mod failures;
mod leases;
mod node;
mod submit;
mod support;
mod terminal;
