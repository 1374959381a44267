//! Compares the loader with NVIDIA's assembler, `ptxas`: both accept and refuse the same instructions.
//!
//! The instructions are every form of the table, and [`CASES`] changed ones, made from a fixed seed. An instruction
//! that the CPU device does not run is judged by the parser and the table. [`DIFFERENCES`] lists the remaining
//! differences, each with its reason and an example.
//!
//! Run `cargo xtask ci ptxas`, or `PTXAS=$(bash .ci/ptxas) cargo test -p cuda-cpu --test ptxas -- --ignored`. `SEED=7`
//! makes other instructions.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod assembler;
mod differences;
mod generate;
mod loader;
mod place;

use std::collections::BTreeMap;

use cuda_ptx::table::rows;

use differences::{DIFFERENCES, Difference};
use generate::Random;
use place::{Case, Place};

/// The number of changed instructions.
const CASES: usize = 10_000;

/// The judgments of both sides: the reason why a case is refused.
struct Judged {
    case: Case,
    loader: Result<(), String>,
    assembler: Result<(), String>,
}

fn judge(cases: Vec<Case>) -> Vec<Judged> {
    let assembled = assembler::judge(&cases);
    let judged = cases.into_iter().zip(assembled);
    judged
        .map(|(case, assembler)| Judged { loader: loader::judge(&case), case, assembler })
        .collect()
}

/// Panics if a difference is not listed, or if a listed one does not occur.
fn compare(cases: Vec<Case>, listed: &[Difference]) {
    let examples = judge(listed.iter().map(Difference::case).collect());
    let stale =
        listed.iter().zip(&examples).filter(|(difference, judged)| !difference.matches(judged));
    let stale: Vec<_> = stale
        .map(|(_, Judged { case, loader, assembler })| {
            format!("{}: loader {loader:?}, ptxas {assembler:?}\n", case.text)
        })
        .collect();
    let judged = judge(cases);
    let mut occurrences = vec![0; listed.len()];
    let mut unexpected: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut crashes = 0;
    for one in &judged {
        let (who, reason) = match (&one.loader, &one.assembler) {
            (_, Err(reason)) if reason == assembler::CRASH => {
                crashes += 1;
                continue;
            }
            (Err(reason), Ok(())) => ("the loader", reason),
            (Ok(()), Err(reason)) => ("ptxas", reason),
            _ => continue,
        };
        match listed.iter().position(|difference| difference.matches(one)) {
            Some(index) => occurrences[index] += 1,
            None => {
                let texts = unexpected.entry(format!("{who} refuses: {}", without_names(reason)));
                texts.or_default().push(format!("{}: {}", one.case.place, one.case.text));
            }
        }
    }
    let accepted = judged.iter().filter(|one| one.assembler.is_ok()).count();
    println!("{} cases, {accepted} accepted by ptxas", judged.len());
    println!("{crashes} at which ptxas crashes, without a judgment");
    println!("{} listed differences", occurrences.iter().sum::<usize>());
    for (difference, count) in listed.iter().zip(&occurrences) {
        println!("  {count:>4} {:24} {}", difference.text, difference.reason);
    }
    let mut report = String::new();
    for (reason, texts) in &unexpected {
        report += &format!("{} times {reason}\n", texts.len());
        texts.iter().take(20).for_each(|text| report += &format!("      {text}\n"));
    }
    assert!(unexpected.is_empty(), "differences that are not listed:\n{report}");
    assert!(stale.is_empty(), "listed differences that do not occur:\n{}", stale.concat());
}

/// Returns a message without the quoted names, so that equal messages are listed together.
fn without_names(message: &str) -> String {
    let parts = message.split(['`', '\'']).enumerate();
    parts.map(|(i, part)| if i % 2 == 0 { part } else { "..." }).collect()
}

#[test]
#[ignore = "needs NVIDIA's assembler: set PTXAS to its path, see .ci/ptxas"]
fn ptxas_accepts_every_form_of_the_table() {
    let forms = rows().iter().flat_map(|row| row.forms());
    let cases = forms.map(|form| Case { place: Place::of_form(&form), text: form.text });
    let cases: Vec<_> = cases.collect();
    let judged = cases.iter().zip(assembler::judge(&cases));
    let refused: Vec<_> = judged
        .filter_map(|(case, judged)| Some(format!("{}: {}", case.text, judged.err()?)))
        .collect();
    assert!(
        refused.is_empty(),
        "{} of {} forms:\n{}",
        refused.len(),
        cases.len(),
        refused.join("\n")
    );
}

#[test]
#[ignore = "needs NVIDIA's assembler: set PTXAS to its path, see .ci/ptxas"]
fn loader_and_ptxas_judge_changed_instructions_alike() {
    let seed = std::env::var("SEED").map_or(1, |seed| seed.parse().unwrap());
    compare(generate::cases(Random::new(seed), CASES), DIFFERENCES);
}
