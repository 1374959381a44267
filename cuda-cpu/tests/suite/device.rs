//! Runs a case on the CPU device.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

use cuda_cpu::{Checks, Launch, LaunchDims, Limits, Memory, Program, Schedule};

use crate::case::{Arg, Case, unpack};

/// The results of a launch.
pub(crate) struct Outcome {
    /// The bytes of the outputs, in order.
    pub(crate) outputs: Vec<Vec<u8>>,
    pub(crate) printed: String,
}

/// Loop iterations after which a launch counts as hung.
const MOST_ITERATIONS: u64 = 200_000_000;

type Loaded = Result<(Program, Memory), String>;

/// Loaded programs by path. The first thread that needs a program loads it.
type Cache = Mutex<HashMap<String, Arc<OnceLock<Arc<Loaded>>>>>;

/// Loads the program of a case. Each PTX file is decoded once.
fn load(case: &Case, variant: &str) -> Arc<Loaded> {
    static LOADED: OnceLock<Cache> = OnceLock::new();
    let path = case.file(variant);
    let cell = {
        let mut loaded = LOADED.get_or_init(Mutex::default).lock().unwrap();
        loaded.entry(path.display().to_string()).or_default().clone()
    };
    cell.get_or_init(|| {
        let text = unpack(&path);
        let module = match cuda_ptx::parse(&text) {
            Ok(module) => module,
            Err(error) => return Arc::new(Err(error.to_string())),
        };
        let memory = Memory::new(1 << 32);
        let program = Program::load(&module, &memory).map_err(|e| e.to_string());
        Arc::new(program.map(|program| (program, memory)))
    })
    .clone()
}

/// Runs a case. Returns the reason on failure.
pub(crate) fn run(case: &Case, variant: &str) -> Result<Outcome, String> {
    run_with(case, variant, Checks::none(), Schedule::Parallel)
}

/// As [`run`], with these checks and in this order.
pub(crate) fn run_with(
    case: &Case,
    variant: &str,
    checks: Checks,
    schedule: Schedule,
) -> Result<Outcome, String> {
    let loaded = load(case, variant);
    let (program, memory) = (*loaded).as_ref().map_err(Clone::clone)?;
    let entry = program.entry(case.kernel()).ok_or("no such kernel")?;
    let info = &program.entries()[entry];
    if info.params.len() != case.args.len() {
        return Err(format!("{} parameters, not {}", info.params.len(), case.args.len()));
    }
    let mut params = vec![0; info.param_bytes as usize];
    let mut arrays = Vec::new();
    for (i, (arg, param)) in case.args.iter().zip(&info.params).enumerate() {
        let mut bytes = case.input(i);
        if let Arg::Array { .. } = arg {
            let at = memory.alloc(bytes.len().max(1) as u64, 256).map_err(|e| e.to_string())?;
            memory.write(at, &bytes).map_err(|e| e.to_string())?;
            arrays.push((i, at, bytes.len()));
            bytes = at.to_le_bytes().to_vec();
        }
        if bytes.len() != param.size as usize {
            return Err(format!("parameter {i} has {} bytes, not {}", param.size, bytes.len()));
        }
        params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    let printed = Mutex::new(String::new());
    let print = |text: &str| printed.lock().unwrap().push_str(text);
    let dims = LaunchDims { grid: case.grid, block: case.block, dynamic_shared: case.shared };
    let limits = Limits { iterations: Some(MOST_ITERATIONS), ..Limits::default() };
    let launch = Launch { limits, checks, schedule, ..Launch::new(dims, &params, &print) };
    let done = program.launch(memory, entry, &launch).map_err(|e| e.to_string());
    let wanted: Vec<usize> = case.outputs().iter().map(|&(i, _)| i).collect();
    let mut outputs = Vec::new();
    for (i, at, length) in arrays {
        if wanted.contains(&i) {
            let mut bytes = vec![0; length];
            memory.read(at, &mut bytes).map_err(|e| e.to_string())?;
            outputs.push(bytes);
        }
        memory.free(at).map_err(|e| e.to_string())?;
    }
    done?;
    Ok(Outcome { outputs, printed: printed.into_inner().unwrap() })
}
