//! `cargo xtask ci`: runs the checks of this repository. `cargo xtask ci --help` lists them.

mod features;
mod run;
mod steps;

use std::{path::Path, process::ExitCode};

use steps::{Runs, STEPS, Step};

const USAGE: &str = "usage: cargo xtask ci [--discard] [--fast | STEP..]
       cargo xtask ci --names
       cargo xtask features CRATE..

ci        runs all steps except `unit` and those marked +, or those that are named; some run side by side
features  checks CRATE with each of its features alone and with each pair, without default features
--discard deletes the build outputs that no later step uses
--fast    runs the steps marked *
--names   prints the names of all steps except `unit` as a JSON array, for .github/workflows
";

fn main() -> ExitCode {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    if let Some(Err(error)) = root.map(std::env::set_current_dir) {
        eprintln!("failed to enter the root of the repository: {error}");
        return ExitCode::FAILURE;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let passed = match arguments.as_slice() {
        ["ci", options @ ..] => ci(options),
        ["features", crates @ ..] if !crates.is_empty() => features::check(crates),
        _ => usage(),
    };
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ci(options: &[&str]) -> bool {
    let (mut discard, mut fast, mut names) = (false, false, Vec::new());
    for option in options {
        match *option {
            "--help" => {
                usage();
                return true;
            }
            "--discard" => discard = true,
            "--fast" => fast = true,
            "--names" => {
                let full = STEPS.iter().filter(|step| step.runs != Runs::Fast);
                let names: Vec<&str> = full.map(|step| step.name).collect();
                println!("{names:?}");
                return true;
            }
            name if STEPS.iter().any(|step| step.name == name) => names.push(name),
            unknown => {
                eprintln!("there is no step or option `{unknown}`");
                return usage();
            }
        }
    }
    let selected = |step: &&Step| match fast {
        true => matches!(step.runs, Runs::Fast | Runs::Both),
        false if names.is_empty() => matches!(step.runs, Runs::Full | Runs::Both),
        false => names.contains(&step.name),
    };
    run::all(STEPS.iter().filter(selected).collect(), discard)
}

fn usage() -> bool {
    eprint!("{USAGE}\nsteps:\n");
    for step in STEPS {
        eprintln!(
            "{} {:<12} {}",
            match step.runs {
                Runs::Full => ' ',
                Runs::Fast | Runs::Both => '*',
                Runs::Apart => '+',
            },
            step.name,
            step.about
        );
    }
    false
}
