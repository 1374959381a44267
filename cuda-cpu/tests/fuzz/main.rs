//! The texts that the fuzzers begin with, through what they do with a text.
// Helpers of tests fail as tests do.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod large;
mod targets;

use std::path::PathBuf;

/// Feeds every text to a target; there must be some.
fn replay(target: impl Fn(&str)) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds");
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(paths.len() > 100, "the seeds are gone");
    for path in paths {
        println!("{}", path.display());
        target(&std::fs::read_to_string(&path).unwrap());
    }
}

#[test]
fn parse() {
    replay(|text| _ = targets::parse(text));
}

#[test]
fn load() {
    replay(targets::load);
}

#[test]
fn run() {
    replay(targets::run);
}
