//! Replays the corpora of the lease fuzzers in `fuzz/` with their targets.
// Helpers of tests may fail in the same way as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../fuzz/replay.rs"]
mod replay;
mod targets;

use replay::replay;

#[test]
fn lease_frames() {
    replay("lease_frames", targets::frames);
}

#[test]
fn lease_sequence() {
    replay("lease_sequence", targets::sequence);
}

#[test]
fn lease_token() {
    replay("lease_token", targets::token);
}
