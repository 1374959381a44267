//! Tensor cores and the instructions that move their data, compared with the results of an H200.
//!
//! A case is a kernel with its inputs. `tensor.golden` contains a hash of the GPU's results for each case. To add
//! cases: add them, run the ignored test `write`, run `gpu_cases.py` on a machine with a GPU, and run `update`.

mod fragments;
mod inputs;
mod kernels;
mod late;
mod misuse;
mod mma;
mod refused;
mod registers;
mod sync;
mod transfers;

use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;

use crate::args;
use crate::host::Host;

const GOLDEN: &str = include_str!("tensor.golden");

/// A kernel with the parameters `a, b, c, out`.
pub(crate) struct Case {
    /// The name in the golden file.
    pub(crate) name: String,
    pub(crate) ptx: Rc<String>,
    pub(crate) kernel: &'static str,
    pub(crate) inputs: [Rc<Vec<u8>>; 3],
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    /// Size of the output in bytes. It is filled with 0xAA before the launch.
    pub(crate) out: usize,
}

impl Case {
    /// Creates a case with blocks of one warp.
    pub(crate) fn new(
        name: String,
        ptx: String,
        inputs: [Rc<Vec<u8>>; 3],
        blocks: u32,
        out: usize,
    ) -> Self {
        Self { name, ptx: Rc::new(ptx), kernel: "k", inputs, blocks, threads: 32, out }
    }
}

/// Returns a kernel with its addresses in `a`, `b`, `c` and `o`, and block and lane in `blk` and `lane`. Each block is
/// a cluster, because an H200 without clusters rejects copies from shared memory to that of the cluster.
pub(crate) fn kernel(registers: &str, body: &str) -> String {
    // Matrices of bytes are newer than the H200.
    let bytes = ["m16n16", "m16n8.", "m8n16"].iter().any(|shape| body.contains(shape));
    let target = if bytes { "sm_100a" } else { "sm_90" };
    format!(
        ".version 9.0\n.target {target}\n.address_size 64
.visible .entry k(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 po)
.reqnctapercluster 1, 1, 1 {{
.reg .b64 a, b, c, o, x, y; .reg .b32 blk, lane, t, u;
{registers}
ld.param.u64 a, [pa]; ld.param.u64 b, [pb]; ld.param.u64 c, [pc]; ld.param.u64 o, [po];
mov.u32 blk, %ctaid.x; mov.u32 lane, %laneid;
{body}
ret; }}\n"
    )
}

fn cases() -> Vec<Case> {
    let mut cases = mma::cases();
    cases.extend(fragments::cases());
    cases.extend(kernels::cases());
    cases.extend(sync::cases());
    cases.extend(transfers::cases());
    cases
}

fn run(case: &Case) -> Vec<u8> {
    let h = Host::new(&case.ptx);
    let out = h.upload(&vec![0xAAu8; case.out]);
    let [a, b, c] = case.inputs.each_ref().map(|bytes| h.upload(bytes));
    h.run(case.kernel, case.blocks, case.threads, args![a, b, c, out]);
    h.download(out, case.out)
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xCBF2_9CE4_8422_2325, |h, &v| {
        (h ^ u64::from(v)).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23)
    })
}

/// Returns the hashes of a GPU's results by name.
fn golden() -> HashMap<&'static str, u64> {
    let lines = GOLDEN.lines().map(|line| line.split_once(' ').unwrap());
    lines.map(|(hash, name)| (name, u64::from_str_radix(hash, 16).unwrap())).collect()
}

#[test]
fn matches_a_gpu() {
    let golden = golden();
    let cases = cases();
    let wrong: Vec<&str> = cases
        .iter()
        .filter(|case| golden.get(&*case.name) != Some(&hash(&run(case))))
        .map(|case| &*case.name)
        .collect();
    assert!(wrong.is_empty(), "not as on a GPU: {wrong:#?}");
    assert_eq!(golden.len(), cases.len());
}

/// The folder in which `write` stores the files for the GPU, and from which the results are read.
fn folder() -> PathBuf {
    std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tensor")
}

#[test]
#[ignore = "a tool: writes kernels and inputs for a GPU"]
fn write() {
    _ = std::fs::remove_dir_all(folder());
    std::fs::create_dir_all(folder()).unwrap();
    let file = |bytes: &[u8], kind: &str| {
        let name = format!("{:016x}.{kind}", hash(bytes));
        std::fs::write(folder().join(&name), bytes).unwrap();
        name
    };
    let mut index = String::new();
    for case in cases() {
        let inputs = case.inputs.each_ref().map(|bytes| file(bytes, "in")).join(" ");
        let ptx = file(case.ptx.as_bytes(), "ptx");
        let Case { name, kernel, blocks, threads, out, .. } = case;
        index += &format!("{ptx} {kernel} {blocks} {threads} {out} {inputs} {name}\n");
    }
    std::fs::write(folder().join("index"), index).unwrap();
}

#[test]
#[ignore = "a tool: compares with a GPU's results and writes tensor.golden"]
fn update() {
    let mut golden = String::new();
    let results = std::fs::read(folder().join("results")).unwrap();
    let mut at = 0;
    for case in cases() {
        let want = &results[at..][..case.out];
        at += case.out;
        golden += &format!("{:016x} {}\n", hash(want), case.name);
        let got = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(&case)));
        let Ok(got) = got else {
            println!("cannot run: {}", case.name);
            continue;
        };
        let words = |bytes: &[u8]| -> Vec<u32> {
            bytes.chunks(4).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect()
        };
        let (got, want) = (words(&got), words(want));
        let differ: Vec<usize> = (0..got.len()).filter(|&i| got[i] != want[i]).collect();
        if let Some(&i) = differ.first() {
            let (n, all) = (differ.len(), got.len());
            println!(
                "{n} of {all} differ, word {i}: {:08x}, not {:08x}: {}",
                got[i], want[i], case.name
            );
        }
    }
    std::fs::write(
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/engine/tensor/tensor.golden"),
        golden,
    )
    .unwrap();
}
