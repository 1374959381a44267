//! Replays the corpus of the fuzzer `lease_session` in `fuzz/` with its target.
// Helpers of tests may fail in the same way as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../fuzz/replay.rs"]
mod replay;
mod targets;

#[test]
fn lease_session() {
    replay::replay("lease_session", targets::session);
}
