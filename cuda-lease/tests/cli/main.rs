//! Runs the program `cuda-lease` against nodes in this process, and checks what it prints and its exit status.
#![allow(clippy::unwrap_used)]

mod certificates;
mod failures;
mod leases;
mod submit;
mod support;
mod terminal;
