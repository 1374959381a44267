//! Loads and runs one kernel with ptoxide.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::Mutex,
    time::{Duration, Instant},
};

use ptoxide::{Argument, Context, LaunchParams};

use crate::cases::{Arg, Case};

/// Timed runs; the result is their median.
const ROUNDS: usize = 7;

pub enum Failure {
    /// ptoxide returned this error.
    Refused(String),
    /// ptoxide panicked with this message.
    Panicked(String),
    /// The result is wrong.
    Differs,
}

/// The message and location of the last panic. ptoxide panics on many instructions that it does not implement.
static PANIC: Mutex<String> = Mutex::new(String::new());

/// Stores panic messages instead of printing them.
pub fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map(|at| {
            let file = at.file().rsplit("ptoxide-0.1.0/").next().unwrap_or_default();
            format!(" at {file}:{}", at.line())
        });
        let said = info.payload_as_str().unwrap_or_default();
        *PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) =
            format!("{said}{}", place.unwrap_or_default());
    }));
}

/// Measures the median time of a run, after one run with a correct result.
pub fn attempt(ptx: &str, case: &Case) -> Result<Duration, Failure> {
    panic::catch_unwind(AssertUnwindSafe(|| run(ptx, case))).unwrap_or_else(|_| {
        let message = PANIC.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        Err(Failure::Panicked(message.clone()))
    })
}

fn run(ptx: &str, case: &Case) -> Result<Duration, Failure> {
    let mut context = Context::new_with_module(ptx).map_err(refused)?;
    let mut out = None;
    let mut arguments = Vec::new();
    for arg in &case.args {
        arguments.push(match arg {
            Arg::Array(bytes) | Arg::Result(bytes) => {
                let pointer = context.alloc_raw(bytes.len(), 256);
                context.write_raw(pointer, 0, bytes);
                out = matches!(arg, Arg::Result(_)).then_some(pointer).or(out);
                Argument::Ptr(pointer)
            }
            Arg::U32(value) => Argument::U32(*value),
            Arg::F32(value) => Argument::U32(value.to_bits()),
        });
    }
    launch(&mut context, case, &arguments)?;
    let mut got = vec![0; case.want.bytes()];
    if let Some(pointer) = out {
        context.read_raw(pointer, 0, &mut got);
    }
    if !case.want.agrees(&got, case.tolerance) {
        return Err(Failure::Differs);
    }
    let mut times = Vec::new();
    for _ in 0..ROUNDS {
        times.push(launch(&mut context, case, &arguments)?);
    }
    times.sort_unstable();
    Ok(times[ROUNDS / 2])
}

fn launch(
    context: &mut Context,
    case: &Case,
    arguments: &[Argument<'_>],
) -> Result<Duration, Failure> {
    let ([gx, gy], [bx, by]) = (case.grid, case.block);
    let config = LaunchParams::func(case.entry).grid2d(gx, gy).block2d(bx, by);
    let start = Instant::now();
    context.run(config, arguments).map_err(refused)?;
    Ok(start.elapsed())
}

fn refused(error: impl std::fmt::Display) -> Failure {
    Failure::Refused(error.to_string())
}
