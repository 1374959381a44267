//! Replays the corpora of the fuzzers in `fuzz/`, and texts that no fuzzer would find, with the fuzz targets.
// Helpers of tests may fail in the same way as tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod large;
mod targets;

use std::io::Read;
use std::path::PathBuf;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// Runs a target on every seed and on every text of a corpus. There must be at least one of each.
fn replay(corpus: &str, target: impl Fn(&str)) {
    let mut paths: Vec<_> = std::fs::read_dir(folder().join("seeds"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    assert!(paths.len() > 100, "the seeds are gone");
    for path in paths {
        println!("{}", path.display());
        target(&std::fs::read_to_string(&path).unwrap());
    }
    let texts = unpack(corpus);
    assert!(texts.len() > 100, "the corpus is gone");
    for (i, text) in texts.iter().enumerate() {
        println!("{corpus} {i}");
        target(text);
    }
}

/// Returns the texts of a corpus that `fuzz/pack.py` has packed. Each follows its length in bytes and a newline.
fn unpack(corpus: &str) -> Vec<String> {
    let file = std::fs::File::open(folder().join(format!("corpora/{corpus}.gz"))).unwrap();
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let (mut rest, mut texts) = (bytes.as_slice(), Vec::new());
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let length: usize = std::str::from_utf8(&rest[..end]).unwrap().parse().unwrap();
        let (text, after) = rest[end + 1..].split_at(length);
        texts.push(String::from_utf8(text.to_vec()).unwrap());
        rest = after;
    }
    texts
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
