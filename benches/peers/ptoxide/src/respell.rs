//! Rewrites PTX in the syntax that ptoxide reads.
//!
//! ptoxide 0.1.0 does not accept rounding modes on `add`, `sub` and `mul` (it rounds to nearest and writes a product
//! `mul.lo.f32`), `.nc` on loads, or module variables. The rewrite does not change a kernel's result: the variables of
//! these modules are constants of the CUDA source that no instruction uses.

/// Each PTX spelling with ptoxide's.
const SPELLINGS: [(&str, &str); 4] = [
    ("add.rn.", "add."),
    ("sub.rn.", "sub."),
    ("mul.rn.", "mul.lo."),
    ("ld.global.nc.", "ld.global."),
];

/// The module's head and one entry, rewritten.
pub fn respell(ptx: &str, entry: &str) -> String {
    let mut parts = ptx.split(".visible .entry ");
    let head = parts.next().unwrap_or_default();
    let head = head.lines().filter(|line| !line.starts_with(".global ")).collect::<Vec<_>>();
    let body = parts.find(|part| part.starts_with(&format!("{entry}("))).unwrap_or_default();
    let alone = format!("{}\n.visible .entry {body}", head.join("\n"));
    SPELLINGS.iter().fold(alone, |ptx, (theirs, ours)| ptx.replace(theirs, ours))
}
