//! Every approximate function, division, root and conversion on millions of inputs, compared with an H200.
//!
//! `instructions.txt` lists the forms (`instructions.py` gets them from ptxas). `sweep.golden` contains hashes of a
//! GPU's results: of the first chunk, of all values, and for instructions with 2^32 inputs, of all those. The ignored
//! tests take long. To update the hashes: run `write`, run `gpu.py` on a machine with a GPU, and run `update`. If a
//! chunk differs, `all_values` adds it to `wanted.txt`; run `gpu.py` again, and `explain`.

mod kernel;
mod table;
mod tools;

use std::collections::HashMap;

use crate::args;
use crate::host::Host;
use kernel::{Form, ROUNDS, THREADS};

const INSTRUCTIONS: &str = include_str!("instructions.txt");
const GOLDEN: &str = include_str!("sweep.golden");

fn forms() -> impl Iterator<Item = Form> {
    INSTRUCTIONS.lines().map(Form::new)
}

/// A GPU's hashes of an instruction's results.
#[derive(Debug, Clone, Copy)]
struct Golden {
    first: u64,
    all: u64,
    every: Option<u64>,
}

fn golden() -> HashMap<&'static str, Golden> {
    let hash = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let line = |line: &'static str| {
        let words: Vec<&str> = line.split(' ').collect();
        let every = words.get(3).map(|word| hash(word));
        (words[0], Golden { first: hash(words[1]), all: hash(words[2]), every })
    };
    GOLDEN.lines().map(line).collect()
}

/// Returns the sums of the first chunks of an instruction's results.
fn sums(form: &Form, chunks: u32) -> Vec<u64> {
    let h = Host::with_pool(&form.module(), 2);
    let out = h.zeros::<u64>(chunks as usize);
    h.run("sums", chunks, THREADS, args![out, 0u64, ROUNDS]);
    h.download(out, chunks as usize)
}

fn total(sums: &[u64]) -> u64 {
    sums.iter().fold(0, |sum, part| sum.wrapping_add(*part))
}

#[test]
fn matches_a_gpu() {
    let golden = golden();
    let wrong: Vec<String> = forms()
        .filter(|form| sums(form, 1)[0] != golden[form.name.as_str()].first)
        .map(|form| form.name)
        .collect();
    assert!(wrong.is_empty(), "not as on a GPU: {wrong:#?}");
}

/// Forms that assemblers reject have no meaning and are rejected here, too.
#[test]
fn refused() {
    for line in [
        "cvt.f32.s32 s32",
        "cvt.rn.f32.f16 f16",
        "cvt.rn.s32.f32 f32",
        "cvt.rzi.relu.s32.f32 f32",
        "cvt.sat.s64.s32 s32",
        "cvt.rn.relu.f32.f64 f64",
        "cvt.rm.relu.f16.f32 f32",
        "cvt.rn.satfinite.f32.f64 f64",
        "cvt.rn.e4m3x2.f32 f32 f32",
        "cvt.rz.satfinite.e4m3x2.f32 f32 f32",
        "cvt.rna.f16.f32 f32",
        "cvt.rn.bf16.u8 u8",
        "cvt.pack.u8.s32.b32 s32 s32 b32",
        "tanh.approx.ftz.f32 f32",
        "ex2.approx.bf16 bf16",
        "sqrt.approx.f64 f64",
        "rcp.rn.sat.f32 f32",
        "div.full.f64 f64 f64",
    ] {
        assert!(Host::try_new(&Form::new(line).module()).is_err(), "accepted: {line}");
    }
}
