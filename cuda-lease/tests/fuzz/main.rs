//! Replays the corpora of the lease fuzzers in `fuzz/` with their targets.
// Helpers of tests may fail in the same way as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../fuzz/corpus.rs"]
mod corpus;
mod targets;

/// Runs a target on every seed and on every input of a corpus. A panic of any thread ends the process, as in a fuzzer.
fn replay(name: &str, target: impl Fn(&[u8])) {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
    let seeds = corpus::seeds("seeds-lease").into_iter().filter(|(path, _)| path.contains(name));
    let inputs = corpus::unpack(name);
    assert!(inputs.len() > 20, "the corpus is gone");
    let numbered = inputs.into_iter().enumerate().map(|(i, input)| (format!("{name} {i}"), input));
    for (name, input) in seeds.chain(numbered) {
        println!("{name}");
        target(&input);
    }
}

#[test]
fn lease_frames() {
    replay("lease_frames", targets::frames);
}

#[test]
fn lease_sequence() {
    replay("lease_sequence", targets::sequence);
}

#[test]
fn lease_session() {
    replay("lease_session", targets::session);
}

#[test]
fn lease_token() {
    replay("lease_token", targets::token);
}
