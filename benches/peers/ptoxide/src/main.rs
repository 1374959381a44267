//! The benchmark `cpu_device` at its small sizes, run by ptoxide 0.1.0, an interpreter of PTX.
//!
//! `cargo run --release --locked [-- NAME]`. Each kernel is tried twice: in the compiler's PTX, and alone in the syntax
//! that ptoxide reads (see `respell`). Results are compared before timing.

mod attempt;
mod cases;
#[path = "../../../cpu_device/inputs.rs"]
mod inputs;
mod respell;
#[path = "../../../cpu_device/scalar.rs"]
mod scalar;
#[path = "../../../cpu_device/sizes.rs"]
#[expect(dead_code, reason = "the full sizes are not for interpreters")]
mod sizes;

use crate::{attempt::Failure, cases::Case};

fn main() {
    let asked = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    attempt::keep_panics();
    println!("| what | size | PTX as it is, ms | alone and respelled, ms |\n|---|---|---:|---:|");
    for case in cases::all(&sizes::SMALL) {
        if asked.as_ref().is_some_and(|asked| asked != case.name) {
            continue;
        }
        let size = sizes::SMALL.text(case.name);
        let respelled = respell::respell(case.ptx, case.entry);
        let [as_it_is, respelled] = [case.ptx, &respelled].map(|ptx| cell(ptx, &case));
        println!("| {} | {size} | {as_it_is} | {respelled} |", case.name);
    }
}

/// Formats the table entry: the time, or the failure.
fn cell(ptx: &str, case: &Case) -> String {
    match attempt::attempt(ptx, case) {
        Ok(time) => format!("{:.3}", time.as_secs_f64() * 1e3),
        Err(Failure::Refused(error)) => refused(ptx, &error),
        Err(Failure::Panicked(message)) => format!("panic: {message}"),
        Err(Failure::Differs) => "wrong result".to_owned(),
    }
}

/// The error with the text of the line that it names.
fn refused(ptx: &str, error: &str) -> String {
    let number =
        error.split_once("line: ").and_then(|(_, rest)| rest.split(',').next()?.parse().ok());
    let line = number.and_then(|number: usize| ptx.lines().nth(number.checked_sub(1)?));
    match (error.split_once(", SourceLocation"), line) {
        (Some((error, _)), Some(line)) => {
            let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
            format!("{error}) in `{words}`")
        }
        _ => format!("error: {error}"),
    }
}
