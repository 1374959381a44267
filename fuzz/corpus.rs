//! Reads the packed corpora and the seeds of the fuzzers, for the tests that replay them.

use std::{fs, io::Read, path::PathBuf};

use flate2::read::GzDecoder;

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

/// Returns the seeds of a folder in the order of their names: name and bytes.
pub fn seeds(name: &str) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder().join(name)).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let read = |path: PathBuf| (path.display().to_string(), fs::read(&path).unwrap());
    paths.into_iter().map(read).collect()
}

/// Returns the inputs of a corpus that `pack.py` has packed. Each follows its length in bytes and a newline.
pub fn unpack(name: &str) -> Vec<Vec<u8>> {
    let file = fs::File::open(folder().join(format!("corpora/{name}.gz"))).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
    let (mut rest, mut inputs) = (bytes.as_slice(), Vec::new());
    while let Some(end) = rest.iter().position(|&byte| byte == b'\n') {
        let length: usize = std::str::from_utf8(&rest[..end]).unwrap().parse().unwrap();
        let (input, after) = rest[end + 1..].split_at(length);
        inputs.push(input.to_vec());
        rest = after;
    }
    inputs
}
