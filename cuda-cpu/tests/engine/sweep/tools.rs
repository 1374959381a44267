//! Tools that create the golden hashes, run the whole sweep and explain differences.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use super::kernel::{CHUNK, Form, THREADS};
use super::table::{Compared, HEAD, table};
use super::{forms, golden, sums, total};
use crate::args;
use crate::host::Host;

/// Number of parts into which the 2^32 inputs are divided for hashing.
const PARTS: u32 = 4096;

/// The verdict of `all_inputs` for a form without differences.
const AS: &str = "as on a GPU";

/// The folder in which `write` stores the files for the GPU, and from which the results are read.
fn folder() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("sweep")
}

/// Returns the forms whose name contains `SWEEP`, with their numbers.
fn chosen() -> impl Iterator<Item = (usize, Form)> {
    let part = env::var("SWEEP").unwrap_or_default();
    forms().enumerate().filter(move |(_, form)| form.name.contains(&part))
}

fn chunks(form: &Form) -> usize {
    (form.count() / CHUNK) as usize
}

/// Returns a GPU's sums: of all chunks of each form, and of the parts of all inputs.
fn from_gpu() -> Vec<(Vec<u64>, Vec<u64>)> {
    let words = words(&folder().join("sums.bin"));
    let mut rest = words.as_slice();
    let mut take = |count: usize| {
        let (taken, left) = rest.split_at(count);
        rest = left;
        taken.to_vec()
    };
    let parts = |form: &Form| if form.has_32_bits() { PARTS as usize } else { 0 };
    let sums = forms().map(|form| (take(chunks(&form)), take(parts(&form)))).collect();
    assert!(rest.is_empty(), "of other forms");
    sums
}

fn words(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect()
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
#[ignore = "a tool: writes sweep.golden"]
fn update() {
    let mut golden = String::new();
    for (form, (chunks, every)) in forms().zip(from_gpu()) {
        golden += &format!("{} {:016x} {:016x}", form.name, chunks[0], total(&chunks));
        golden +=
            &if every.is_empty() { "\n".into() } else { format!(" {:016x}\n", total(&every)) };
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/sweep/sweep.golden");
    fs::write(path, golden).unwrap();
}

#[test]
#[ignore = "takes minutes: all values of all forms, or of those that SWEEP names a part of"]
fn all_values() {
    let golden = golden();
    let gpu = if folder().join("sums.bin").exists() { from_gpu() } else { Vec::new() };
    let (mut wanted, mut differ) = (String::new(), String::new());
    for (i, form) in chosen() {
        let got = sums(&form, chunks(&form) as u32);
        if total(&got) != golden[form.name.as_str()].all {
            println!("{}: not as on a GPU", form.name);
            let chunk =
                gpu.get(i).and_then(|(sums, _)| (0..got.len()).find(|&n| got[n] != sums[n]));
            wanted += &chunk.map_or(String::new(), |n| format!("{i} {} 0\n", n as u64 * CHUNK));
            differ += &format!("{}\n", form.name);
        }
    }
    fs::create_dir_all(folder()).unwrap();
    fs::write(folder().join("wanted.txt"), wanted).unwrap();
    fs::write(folder().join("differ.txt"), &differ).unwrap();
    assert!(differ.is_empty(), "not as on a GPU: {differ}");
}

#[test]
#[ignore = "a tool: writes the table of what `all_values` and `all_inputs` found"]
fn results() {
    let differ = fs::read_to_string(folder().join("differ.txt")).unwrap();
    let same = |form: &Form| !differ.lines().any(|name| name == form.name);
    let compared: Vec<Compared> =
        forms().map(|form| Compared { same: same(&form), form }).collect();
    let path = "/../benches/results/2026-11-22-h200-instructions.md";
    let path = format!("{}{path}", env!("CARGO_MANIFEST_DIR"));
    let log = fs::read_to_string(folder().join("every.txt")).unwrap_or_default();
    let line = |name: &str| format!("{name}: {AS}");
    let every: Vec<String> = forms()
        .filter(|form| log.lines().any(|found| found == line(&form.name)))
        .map(|form| format!("`{}`", form.name))
        .collect();
    let every = format!("\nThe same on all 2^32 inputs: {}.\n", every.join(", "));
    fs::write(path, HEAD.to_owned() + &table(&compared) + &every).unwrap();
}

#[test]
#[ignore = "takes minutes a form: all 2^32 inputs of the forms that SWEEP names a part of"]
fn all_inputs() {
    let golden = golden();
    fs::create_dir_all(folder()).unwrap();
    let path = folder().join("every.txt");
    let mut log = fs::OpenOptions::new().append(true).create(true).open(path).unwrap();
    let mut wrong = 0;
    for (_, form) in chosen().filter(|(_, form)| form.has_32_bits()) {
        let h = Host::with_pool(&form.module(), 2);
        let out = h.zeros::<u64>(PARTS as usize);
        let rounds = (1u64 << 32) / u64::from(PARTS * THREADS);
        h.run("every", PARTS, THREADS, args![out, 0u64, rounds as u32]);
        let same =
            Some(total(&h.download(out, PARTS as usize))) == golden[form.name.as_str()].every;
        writeln!(log, "{}: {}", form.name, if same { AS } else { "not as on a GPU" }).unwrap();
        wrong += i32::from(!same);
    }
    assert_eq!(wrong, 0);
}

#[test]
#[ignore = "a tool: prints the values of wanted.txt that differ"]
fn explain() {
    let wanted = fs::read_to_string(folder().join("wanted.txt")).unwrap();
    let theirs = words(&folder().join("wanted.bin"));
    for (line, theirs) in wanted.lines().zip(theirs.chunks(3 * CHUNK as usize)) {
        let numbers: Vec<u64> = line.split(' ').map(|n| n.parse().unwrap()).collect();
        let form = forms().nth(numbers[0] as usize).unwrap();
        let h = Host::new(&form.module());
        let out = h.zeros::<u64>(theirs.len());
        h.run("values", CHUNK as u32 / THREADS, THREADS, args![out, numbers[1], numbers[2] as u32]);
        let ours = h.download::<u64>(out, theirs.len());
        let differ: Vec<_> = ours.chunks(3).zip(theirs.chunks(3)).filter(|(a, b)| a != b).collect();
        println!("{}: {} of {CHUNK}", form.name, differ.len());
        for (ours, theirs) in differ.iter().take(8) {
            println!("    {:x} {:x}: {:x}, not {:x}", ours[0], ours[1], ours[2], theirs[2]);
        }
    }
}
