//! Parses mutated texts: truncated, changed at random, spliced. The parser never panics, and errors have positions
//! inside the text.
// Helper functions of tests may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::PathBuf;

use cuda_ptx::{module_signature, parse};

/// The corpus without long files, which would take too much time.
fn corpus() -> Vec<String> {
    const LONGEST: usize = 16 << 10;
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut paths: Vec<_> = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "ptx"));
    paths.sort();
    let texts = paths.iter().map(|path| std::fs::read_to_string(path).unwrap());
    texts.filter(|text| text.len() <= LONGEST).collect()
}

/// A reproducible random generator, xorshift64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end.max(1) as u64) as usize
    }
}

fn check(text: &str) {
    let lines = text.split('\n').count() as u32;
    let errors = [parse(text).err(), module_signature(text).err()];
    for error in errors.into_iter().flatten() {
        assert!((1..=lines).contains(&error.line), "{error} of {lines} lines");
        assert!(error.column >= 1);
        let message = error.to_string();
        assert!(message.len() < 300, "{message}");
    }
}

#[test]
fn truncated_texts_do_not_panic() {
    for text in corpus() {
        for end in (0..text.len()).step_by(7) {
            check(text.get(..end).unwrap_or_default());
        }
    }
}

#[test]
fn changed_bytes_do_not_panic() {
    const INTERESTING: &[u8] = b"{}()[]<>;:,.@!|%$_\"/*\\\n\0 0x9fU-+=\xc3";
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for text in corpus() {
        for _ in 0..400 {
            let mut bytes = text.clone().into_bytes();
            for _ in 0..1 + random.below(4) {
                let at = random.below(bytes.len());
                let byte = INTERESTING[random.below(INTERESTING.len())];
                match random.below(3) {
                    0 => bytes[at] = byte,
                    1 => bytes.insert(at, byte),
                    _ => _ = bytes.remove(at),
                }
            }
            check(&String::from_utf8_lossy(&bytes));
        }
    }
}

#[test]
fn spliced_texts_do_not_panic() {
    let texts = corpus();
    let words: Vec<&str> = texts.iter().flat_map(|text| text.split_whitespace()).collect();
    let mut random = Random(0x0123_4567_89ab_cdef);
    for text in &texts {
        let own: Vec<&str> = text.split_inclusive(char::is_whitespace).collect();
        for _ in 0..300 {
            let mut mixed = own.clone();
            for _ in 0..1 + random.below(3) {
                let at = random.below(mixed.len());
                match random.below(3) {
                    0 => mixed[at] = words[random.below(words.len())],
                    1 => mixed.insert(at, words[random.below(words.len())]),
                    _ => _ = mixed.remove(at),
                }
            }
            check(&mixed.concat());
        }
    }
}
