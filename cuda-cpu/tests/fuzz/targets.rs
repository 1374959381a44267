//! What the fuzzers in `fuzz/` do with a text, and the tests with those that the fuzzers found interesting. Nothing
//! here may panic, hang, or take memory without bound.
#![allow(dead_code)]

use std::sync::atomic::AtomicBool;

use cuda_cpu::{Launch, LaunchDims, Limits, Memory, Program};
use cuda_ptx::Module;

/// Device memory: enough for what kernels declare, too little to hurt.
const MEMORY: u64 = 64 << 20;

/// Loop iterations of one launch.
const ITERATIONS: u64 = 1 << 14;

/// What printf may write to.
const PRINTED: usize = 1 << 20;

/// Parses; a refusal names a place inside the text.
pub fn parse(text: &str) -> Option<Module> {
    let lines = text.split('\n').count() as u32;
    _ = cuda_ptx::signatures(text);
    match cuda_ptx::parse(text) {
        Ok(module) => Some(module),
        Err(error) => {
            assert!((1..=lines).contains(&error.line) && error.column >= 1, "{error}");
            None
        }
    }
}

/// Decodes; afterwards all memory is free again.
pub fn load(text: &str) {
    let Some(module) = parse(text) else { return };
    let memory = Memory::new(MEMORY);
    match Program::load(&module, &memory) {
        Ok(program) => program.unload(&memory),
        Err(error) => assert!(error.to_string().len() < 64 << 10),
    }
    assert_eq!(memory.usage().used, 0);
}

/// Runs every kernel, in two shapes, with pointers to a buffer (and what lies behind it) as parameters.
pub fn run(text: &str) {
    let Some(module) = parse(text) else { return };
    let memory = Memory::new(MEMORY);
    let Ok(program) = Program::load(&module, &memory) else { return };
    let Ok(buffer) = memory.alloc(1 << 16, 256) else { return };
    for entry in 0..program.entries().len().min(4) {
        let bytes = program.entries()[entry].param_bytes as usize;
        let words = (0..bytes.div_ceil(8) as u64).flat_map(|i| (buffer + 64 * i).to_le_bytes());
        let params: Vec<u8> = words.take(bytes).collect();
        let asked = program.entries()[entry].required_threads;
        for block in [asked.unwrap_or([33, 1, 1]), [8, 4, 2]] {
            launch(&program, &memory, entry, &params, block);
        }
    }
}

fn launch(program: &Program, memory: &Memory, entry: usize, params: &[u8], block: [u32; 3]) {
    let cancel = AtomicBool::new(false);
    let left = std::sync::Mutex::new(PRINTED);
    let print = |text: &str| {
        let Ok(mut left) = left.lock() else { return };
        *left = left.saturating_sub(text.len());
    };
    let dims = LaunchDims { grid: [2, 1, 1], block, dynamic_shared: 1024 };
    let limits =
        Limits { iterations: Some(ITERATIONS), cancel: Some(&cancel), ..Limits::default() };
    let launch = Launch { limits, ..Launch::new(dims, params, &print) };
    if let Err(error) = program.launch(memory, entry, &launch) {
        assert!(!error.to_string().is_empty());
    }
}
