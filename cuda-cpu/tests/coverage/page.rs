//! The book's page: a table for each section of the table of instructions, with a row for each line.

use std::fmt::Write as _;

use crate::expand::lines;

const INTRODUCTION: &str = "\
# Supported instructions

This page lists the PTX instructions that the library knows, with the first version of PTX and the first target that
have them. The CPU device runs those without a remark. A module with any other instruction is refused when it is loaded.
The error names the instruction and its line.

In a name, `{a,b}` is one of the alternatives, and `[.a]` may be left out. A word with `!` directly follows the words
before it. Types stand in this order, other words in any order. A requirement behind a comma holds for the forms with
that word.

A test writes this page from the table of instructions: `cargo test -p cuda-cpu --test coverage`. Another one loads
every form on the CPU device.

Textures and surfaces are not supported, and not listed.
";

pub(crate) fn write() -> String {
    let mut page = INTRODUCTION.to_owned();
    let mut section = "";
    for line in lines() {
        if line.section != section {
            section = line.section;
            _ = write!(page, "\n## {section}\n\n| instruction | from | remark |\n|---|---|---|\n");
        }
        let from = line.remarks.strip_suffix("no").unwrap_or(line.remarks).trim_end_matches(", ");
        let remark =
            if line.rows.iter().all(|row| row.runs()) { "" } else { "not on the CPU device" };
        _ = writeln!(page, "| `{}` | {from} | {remark} |", line.pattern);
    }
    page
}
