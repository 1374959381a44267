//! Replays the corpora of the fuzzers in `fuzz/`, and texts that no fuzzer would find, with the fuzz targets.
// Helpers of tests may fail in the same way as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../fuzz/corpus.rs"]
mod corpus;
mod large;
mod targets;

/// Runs a target on every seed and on every text of a corpus. There must be at least 100 of each.
fn replay(name: &str, target: impl Fn(&str)) {
    let seeds = corpus::seeds("seeds");
    assert!(seeds.len() > 100, "the seeds are gone");
    let texts = corpus::unpack(name);
    assert!(texts.len() > 100, "the corpus is gone");
    let numbered = texts.into_iter().enumerate().map(|(i, text)| (format!("{name} {i}"), text));
    for (name, text) in seeds.into_iter().chain(numbered) {
        println!("{name}");
        target(std::str::from_utf8(&text).unwrap());
    }
}

#[test]
fn parse() {
    replay("parse", |text| _ = targets::parse(text));
}

#[test]
fn load() {
    replay("load", targets::load);
}

#[test]
fn run() {
    replay("run", targets::run);
}
