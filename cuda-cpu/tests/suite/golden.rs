//! Results of the H200. `golden/THEME.txt` has a line per variant, case and output with a hash. For results with a
//! permitted difference, the line also has the position of their bytes in `golden/THEME.bin`.
//!
//! A GPU of the H200's generation runs PTX for targets up to sm_90. Variants for later targets are compared with the
//! results of the same compiler's sm_90 variant with the same options.

use crate::Verdict;
use crate::case::{Case, folder};
use crate::compare::{Difference, compare, hash};
use crate::device::Outcome;

/// Returns the variant whose H200 results apply to this one.
pub(crate) fn judged_by(variant: &str) -> String {
    let parts: Vec<&str> = variant.split('-').collect();
    let number: u32 = parts[1][3..].trim_end_matches(['a', 'f']).parse().unwrap();
    if number <= 90 {
        return variant.into();
    }
    let mut parts: Vec<&str> = parts;
    parts[1] = "sm_90";
    parts.join("-")
}

/// The record of an output.
struct Record {
    hash: u64,
    bytes: Option<Vec<u8>>,
}

fn record(case: &Case, variant: &str, output: &str) -> Option<Record> {
    let text = std::fs::read_to_string(folder().join(format!("golden/{}.txt", case.theme))).ok()?;
    let key = format!("{} {} {output} ", judged_by(variant), case.name);
    let line = text.lines().find_map(|line| line.strip_prefix(&key))?;
    let mut words = line.split(' ');
    let hash = u64::from_str_radix(words.next()?, 16).ok()?;
    let bytes = match (words.next(), words.next()) {
        (Some(at), Some(length)) => {
            let all = std::fs::read(folder().join(format!("golden/{}.bin", case.theme))).ok()?;
            let at: usize = at.parse().ok()?;
            Some(all.get(at..at + length.parse::<usize>().ok()?)?.to_vec())
        }
        _ => None,
    };
    Some(Record { hash, bytes })
}

/// Returns the printed lines, sorted, because their order depends on the schedule.
pub(crate) fn sorted_lines(text: &str) -> Vec<u8> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines.join("\n").into_bytes()
}

/// Compares an outcome with the golden results.
pub(crate) fn verdict(case: &Case, variant: &str, got: Result<Outcome, String>) -> Verdict {
    let mut verdict = Verdict {
        name: case.full_name(variant),
        elements: 0,
        difference: Difference::default(),
        wrong: None,
    };
    let got = match got {
        Ok(got) => got,
        Err(why) => {
            verdict.wrong = Some(why);
            verdict.difference.count = usize::MAX;
            return verdict;
        }
    };
    for ((index, ty), bytes) in case.outputs().into_iter().zip(&got.outputs) {
        let d = match record(case, variant, &index.to_string()) {
            None => lacking("the H200's result is not recorded"),
            Some(r) if r.hash == hash(bytes) => {
                Difference { elements: bytes.len() / ty.size(), ..Difference::default() }
            }
            Some(Record { bytes: Some(want), .. }) => {
                compare(ty, bytes, &want, case.ulp, case.floor)
            }
            Some(_) => lacking("another hash than on the H200"),
        };
        add(&mut verdict, &d, index);
    }
    if case.prints {
        let d = match record(case, variant, "printed") {
            Some(r) if r.hash == hash(&sorted_lines(&got.printed)) => Difference::default(),
            _ => lacking(&format!("printed otherwise than on the H200: {:?}", got.printed)),
        };
        add(&mut verdict, &d, usize::MAX);
    }
    verdict
}

fn lacking(why: &str) -> Difference {
    Difference { count: 1, first: Some((0, why.into())), ..Difference::default() }
}

pub(crate) fn add(verdict: &mut Verdict, d: &Difference, output: usize) {
    verdict.elements += d.elements;
    verdict.difference.count += d.count;
    verdict.difference.ulp = verdict.difference.ulp.max(d.ulp);
    verdict.difference.ulp_beyond = verdict.difference.ulp_beyond.max(d.ulp_beyond);
    if let (Some((at, what)), None) = (&d.first, &verdict.wrong) {
        verdict.wrong =
            Some(format!("argument {output}, element {at}: {what} ({} differ)", d.count));
    }
}
