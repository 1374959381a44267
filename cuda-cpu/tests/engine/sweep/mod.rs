//! Every approximated function, every division and root and every conversion, on millions of inputs,
//! compared with an H200.
//!
//! `instructions.txt` lists the forms (made by `instructions.py`), `sweep.golden` holds hashes of a GPU's
//! results: of the first chunk, of all values, and where operands have 32 bits of all 2^32. To make it again:
//! run the ignored test `write`, `gpu.py` where a GPU is, and `adopt`. On a difference, `SWEEP_VALUES` ...

mod kernel;

use std::fs;
use std::path::{Path, PathBuf};

use crate::args;
use crate::host::Host;
use kernel::{CHUNK, Form, ROUNDS, THREADS};

const INSTRUCTIONS: &str = include_str!("instructions.txt");

fn forms() -> impl Iterator<Item = Form> {
    INSTRUCTIONS.lines().map(Form::new)
}

/// The sums of some chunks, or why the instruction does not run.
fn sums(
    form: &Form,
    first: u64,
    every: bool,
    chunks: u32,
    rounds: u32,
) -> Result<Vec<u64>, String> {
    let h = Host::try_new(&form.module())?;
    let out = h.zeros::<u64>(chunks as usize);
    h.run(if every { "every" } else { "sums" }, chunks, THREADS, args![out, first, rounds]);
    Ok(h.download(out, chunks as usize))
}

/// Where `write` leaves what the GPU shall run, and `adopt` finds what it gave.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep")
}

#[test]
#[ignore = "a tool: writes kernels for a GPU"]
fn write() {
    fs::create_dir_all(folder()).unwrap();
    for (i, form) in forms().enumerate() {
        let every = if form.has_32_bits() { 'e' } else { '-' };
        let name = format!("{i:04}_{}_{every}.ptx", form.count().ilog2());
        fs::write(folder().join(name), form.module()).unwrap();
    }
}

#[test]
#[ignore = "a tool"]
fn compare() {
    let gpu = std::env::var("SWEEP_GPU").unwrap();
    let full = std::env::var("SWEEP_FULL").is_ok();
    let only = std::env::var("SWEEP_ONLY").unwrap_or_default();
    let word = |name: &str| -> Vec<u64> {
        fs::read(Path::new(&gpu).join(name))
            .unwrap()
            .chunks(8)
            .map(|c| u64::from_le_bytes(c.try_into().unwrap()))
            .collect()
    };
    let (want, values) = (word("sums.bin"), word("values.bin"));
    let mut at = 0;
    for (n, form) in forms().enumerate() {
        let chunks = (form.count() / CHUNK) as usize;
        let mine = &want[at..at + chunks];
        at += chunks + if form.has_32_bits() { 4096 } else { 0 };
        if !form.name.contains(&only) {
            continue;
        }
        let chunks = if full { chunks } else { chunks.min(4) };
        match sums(&form, 0, false, chunks as u32, ROUNDS) {
            Err(e) => println!("{} {}", form.name, e.lines().next().unwrap()),
            Ok(got) => {
                let bad = got.iter().zip(mine).filter(|(a, b)| a != b).count();
                if bad > 0 {
                    println!("{n} {}: {bad} of {chunks} chunks", form.name);
                    let h = Host::new(&form.module());
                    let out = h.zeros::<u64>(3 * 4096);
                    h.run("values", 4096 / THREADS, THREADS, args![out, 0u64, 0u32]);
                    let v = h.download::<u64>(out, 3 * 4096);
                    let diff: Vec<usize> =
                        (0..4096).filter(|&i| v[3 * i + 2] != values[n * 4096 + i]).collect();
                    let mut seen = Vec::new();
                    for &i in &diff {
                        let line = format!(
                            "    {:x} {:x}: {:x} gpu {:x}",
                            v[3 * i],
                            v[3 * i + 1],
                            v[3 * i + 2],
                            values[n * 4096 + i]
                        );
                        if !seen.contains(&line) && seen.len() < 6 {
                            println!("{line}");
                            seen.push(line);
                        }
                    }
                }
            }
        }
    }
    assert_eq!(at, want.len());
}

#[test]
#[ignore = "tmp"]
fn parity() {
    let ok: std::collections::HashSet<String> =
        fs::read_to_string("/tmp/cands_ok.txt").unwrap().lines().map(String::from).collect();
    for line in fs::read_to_string("/tmp/cands.txt").unwrap().lines() {
        let form = Form::new(line);
        let cpu = Host::try_new(&form.module()).is_ok();
        if cpu != ok.contains(line) {
            println!("PARITY cpu {cpu} {line}");
        }
    }
}
