//! The targets of the fuzzers in `fuzz/`, and of the tests that replay their corpora. A target must not panic, hang, or
//! take unbounded memory.
#![allow(dead_code)]

use cuda_cpu::{Checks, Launch, LaunchDims, Limits, Memory, Program, Schedule};
use cuda_ptx::Module;

/// Size of device memory: enough for the variables of kernels, and small enough for the host.
const MEMORY: u64 = 64 << 20;

/// Limits of a launch, as a service would set them: instructions, and loop iterations, which also count printing and
/// bulk copies.
const INSTRUCTIONS: u64 = 1 << 13;
const ITERATIONS: u64 = 1 << 14;

/// Maximum length of an error message: a thousand problems, each with its names.
const MESSAGE: usize = 2 << 20;

/// Parses a text. An error must name a position inside the text.
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

/// Decodes a text. Afterwards all memory must be free again.
pub fn load(text: &str) {
    let Some(module) = parse(text) else { return };
    let memory = Memory::new(MEMORY);
    match Program::load(&module, &memory) {
        Ok(program) => program.unload(&memory),
        Err(error) => assert!(error.to_string().len() < MESSAGE),
    }
    assert_eq!(memory.usage().used, 0);
}

/// Runs every kernel with pointers to a buffer as parameters: first with all checks in a shuffled order and within
/// limits, then, if it stayed within the limits, without observation.
pub fn run(text: &str) {
    let Some(module) = parse(text) else { return };
    let memory = Memory::new(MEMORY).tracking();
    let Ok(program) = Program::load(&module, &memory) else { return };
    let Ok(buffer) = memory.alloc(1 << 16, 256) else { return };
    for entry in 0..program.entries().len().min(4) {
        let bytes = program.entries()[entry].param_bytes as usize;
        let words = (0..bytes.div_ceil(8) as u64).flat_map(|i| (buffer + 64 * i).to_le_bytes());
        let params: Vec<u8> = words.take(bytes).collect();
        let kernel = Kernel { program: &program, memory: &memory, entry, params: &params };
        let schedule = Schedule::Shuffled { seed: text.len() as u64 };
        kernel.launch([33, 1, 1], |launch| Launch { checks: Checks::all(), schedule, ..launch });
        let ended = kernel.launch([8, 4, 2], |launch| launch);
        if ended {
            kernel.launch([33, 1, 1], |launch| {
                let limits = Limits { instructions: None, ..launch.limits };
                Launch { limits, ..launch }
            });
        }
    }
}

struct Kernel<'a> {
    program: &'a Program,
    memory: &'a Memory,
    entry: usize,
    params: &'a [u8],
}

impl Kernel<'_> {
    /// Returns whether the kernel ran to its end.
    fn launch(&self, block: [u32; 3], change: impl FnOnce(Launch<'_>) -> Launch<'_>) -> bool {
        let print = |text: &str| assert!(text.len() < MESSAGE);
        let block = self.program.entries()[self.entry].required_threads.unwrap_or(block);
        let dims = LaunchDims { grid: [2, 1, 1], block, dynamic_shared: 1024 };
        let (instructions, iterations) = (Some(INSTRUCTIONS), Some(ITERATIONS));
        let limits = Limits { instructions, iterations, ..Limits::default() };
        let launch = change(Launch { limits, ..Launch::new(dims, self.params, &print) });
        match self.program.launch(self.memory, self.entry, &launch) {
            Ok(()) => true,
            Err(error) => {
                assert!((1..MESSAGE).contains(&error.to_string().len()));
                false
            }
        }
    }
}
