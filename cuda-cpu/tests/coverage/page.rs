//! The book's page: a table for each section with a row for each opcode.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cuda_cpu::Memory;

use crate::expand::{Line, lines};
use crate::runs;

/// The results for one opcode.
#[derive(Default)]
struct Row {
    forms: usize,
    run: usize,
    /// Patterns of which all forms, or some forms, run.
    whole: Vec<String>,
    partly: Vec<String>,
    none: Vec<String>,
}

/// Maximum number of single forms that a row names. For more, it contains their number.
const MOST: usize = 12;

const INTRODUCTION: &str = "\
# Supported instructions

This page lists the PTX instructions that the CPU device runs. A module with any other instruction is refused when it is
loaded. The error names the instruction and its line.

A test writes this page. It asks the device for every form of PTX's grammar up to `sm_90a`, and for some later ones:
`cargo test -p cuda-cpu --test coverage`. In a form, `{a,b}` is one of the alternatives, and `[.a]` may be left out.

Textures and surfaces are not supported, and not listed.
";

pub(crate) fn write() -> String {
    let memory = Memory::new(1 << 24);
    let lines = lines();
    let mut sections: Vec<(&str, BTreeMap<String, Row>, Vec<String>)> = Vec::new();
    for line in &lines {
        if sections.last().is_none_or(|s| s.0 != line.section) {
            sections.push((line.section, BTreeMap::new(), Vec::new()));
        }
        let (_, rows, order) = sections.last_mut().unwrap();
        ask(line, &memory, rows, order);
    }
    let all = || sections.iter().flat_map(|s| s.1.values());
    let (run, forms) = (all().map(|r| r.run).sum::<usize>(), all().map(|r| r.forms).sum::<usize>());
    let mut page = format!("{INTRODUCTION}\n{run} of {forms} forms are supported.\n");
    for (section, rows, order) in &sections {
        _ = write!(
            page,
            "\n## {section}\n\n| instruction | forms | supported | supported forms | unsupported forms |\n\
             |---|---:|---:|---|---|\n"
        );
        for opcode in order {
            let row = &rows[opcode];
            let cell = |patterns: Vec<&String>| {
                patterns.iter().map(|p| format!("`{p}`")).collect::<Vec<_>>().join(" ")
            };
            let yes = cell(row.whole.iter().collect());
            let no = cell(row.none.iter().chain(&row.partly).collect());
            _ = writeln!(page, "| `{opcode}` | {} | {} | {yes} | {no} |", row.forms, row.run);
        }
    }
    page
}

fn ask(line: &Line, memory: &Memory, rows: &mut BTreeMap<String, Row>, order: &mut Vec<String>) {
    let mut by_opcode: Vec<(String, Vec<(&str, bool)>)> = Vec::new();
    for form in &line.forms {
        let opcode = form.name.split('.').next().unwrap_or_default().to_string();
        let answer = (form.name.as_str(), runs(form, memory));
        match by_opcode.iter_mut().find(|o| o.0 == opcode) {
            Some(found) => found.1.push(answer),
            None => by_opcode.push((opcode, vec![answer])),
        }
    }
    for (opcode, answers) in by_opcode {
        if !order.contains(&opcode) {
            order.push(opcode.clone());
        }
        let row = rows.entry(opcode.clone()).or_default();
        let run = answers.iter().filter(|a| a.1).count();
        row.forms += answers.len();
        row.run += run;
        let tail = line.pattern.find(['.', '[']).filter(|_| !line.pattern.starts_with('{'));
        let tail = tail.or_else(|| line.pattern.find('}').map(|at| at + 1));
        let pattern = tail.map_or("", |at| &line.pattern[at..]).to_string();
        let pattern = if pattern.is_empty() { opcode.clone() } else { pattern };
        // The pattern may already be present with other operands.
        let add = |patterns: &mut Vec<String>| {
            if !patterns.contains(&pattern) {
                patterns.push(pattern.clone());
            }
        };
        if run == answers.len() {
            add(&mut row.whole);
        } else if run == 0 {
            add(&mut row.none);
        } else {
            row.whole.push(format!("{pattern} but for some"));
            row.partly.extend(named(&answers));
        }
    }
}

/// Names the forms that do not run.
fn named(answers: &[(&str, bool)]) -> Vec<String> {
    let missing: Vec<String> = answers.iter().filter(|a| !a.1).map(|a| a.0.to_string()).collect();
    if missing.len() <= MOST {
        return missing;
    }
    let mut some = missing[..MOST].to_vec();
    some.push(format!("and {} more", missing.len() - MOST));
    some
}
