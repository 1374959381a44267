//! The suite: what compilers make of `kernels/suite/*.cu`, run here and compared with an H200's results.
//!
//! The cases stand in the sources as comments (`case`), inputs are made by rule (`inputs`), `golden` holds what the
//! H200 gave, `reference` what a plain loop gives. `kernels/suite/README.md` tells how cases are added.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod case;
mod compare;
mod device;
mod golden;
mod inputs;
mod npy;
mod reference;
mod table;
mod tools;

use case::{Case, themes};
use compare::Difference;
use cuda_cpu::{Checks, Schedule};

/// What one case under one compiler came to.
pub(crate) struct Verdict {
    pub(crate) name: String,
    pub(crate) elements: usize,
    pub(crate) difference: Difference,
    /// `None`: as wanted.
    pub(crate) wrong: Option<String>,
}

#[test]
fn as_on_an_h200() {
    let verdicts = all(golden_verdict);
    let wrong: Vec<String> = verdicts
        .iter()
        .filter_map(|v| v.wrong.as_ref().map(|w| format!("{}: {w}", v.name)))
        .collect();
    let exact = verdicts.iter().filter(|v| v.difference.count == 0).count();
    println!("{} runs, {exact} of them bit for bit", verdicts.len());
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        verdicts.len(),
        wrong.join("\n")
    );
}

/// Where a plain loop can say what the result must be.
#[test]
fn as_a_plain_loop() {
    let verdicts =
        all(|case, variant| case.reference.as_ref().map(|_| reference::verdict(case, variant)));
    let wrong: Vec<String> = verdicts
        .iter()
        .filter_map(|v| v.wrong.as_ref().map(|w| format!("{}: {w}", v.name)))
        .collect();
    println!("{} runs compared with references", verdicts.len());
    assert!(
        wrong.is_empty(),
        "{} of {} differ:\n{}",
        wrong.len(),
        verdicts.len(),
        wrong.join("\n")
    );
}

/// What is accused, and rightly: `structs` unoptimised copies the padding of a struct to global memory, and who waits for
/// `message_passing`'s flag may find that it has changed once more.
const ACCUSED: [&str; 2] = ["control.clang22-sm_80-G:structs", ":message_passing"];

/// Nothing else in it is accused by a check, in whatever order it runs.
#[test]
#[ignore = "takes minutes: cargo test --release -p cuda-cpu --test suite -- --ignored accused"]
fn nothing_is_accused() {
    let accused = all(|case, variant| {
        let name = case.full_name(variant);
        if ACCUSED.iter().any(|known| name.contains(known)) {
            return None;
        }
        let seed = name.len() as u64;
        let orders = [Schedule::Parallel, Schedule::Shuffled { seed }];
        let mut found = orders.into_iter().filter_map(|schedule| {
            let error = device::run_with(case, variant, Checks::all(), schedule).err()?;
            Some(format!("{name}, {schedule:?}: {error}"))
        });
        found.next()
    });
    assert!(accused.is_empty(), "{} accused:\n{}", accused.len(), accused.join("\n"));
}

/// Every source has cases, every variant its PTX, and no PTX lies about that nobody runs.
#[test]
fn the_suite_is_complete() {
    let mut expected: Vec<String> = themes().iter().flat_map(|t| t.files()).collect();
    let mut found: Vec<String> = std::fs::read_dir(case::folder().join("ptx"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    expected.sort();
    found.sort();
    assert_eq!(expected, found);
    assert!(themes().iter().all(|t| !t.cases.is_empty() && !t.variants.is_empty()));
    let kernels: usize = themes().iter().map(|t| t.kernels()).sum();
    assert!(kernels >= 70, "{kernels} kernels");
}

/// What is said of each case and variant, on all cores; `SUITE=theme.variant:case` runs only names that contain that.
fn all<V: Send, F>(judge: F) -> Vec<V>
where
    F: Fn(&Case, &str) -> Option<V> + Sync,
{
    use rayon::prelude::*;
    let only = std::env::var("SUITE").unwrap_or_default();
    let themes = themes();
    let runs: Vec<(&Case, &str)> = themes
        .iter()
        .flat_map(|t| t.cases.iter().flat_map(|c| t.variants.iter().map(move |v| (c, v.as_str()))))
        .filter(|(c, v)| c.full_name(v).contains(&only))
        .collect();
    runs.par_iter().filter_map(|(case, variant)| judge(case, variant)).collect()
}

fn golden_verdict(case: &Case, variant: &str) -> Option<Verdict> {
    let got = device::run(case, variant);
    Some(golden::verdict(case, variant, got))
}
