//! PTX in the spelling that ptoxide reads.
//!
//! ptoxide 0.1.0 has no rounding mode on `add`, `sub` and `mul` (it rounds to nearest; a product is written `mul.lo.f32`),
//! no `.nc` on loads, no module variables. None of these changes what a kernel computes; the variables that stand in
//! these modules are constants of the CUDA source that no instruction names.

/// The spellings, and ptoxide's.
const SPELLINGS: [(&str, &str); 4] = [
    ("add.rn.", "add."),
    ("sub.rn.", "sub."),
    ("mul.rn.", "mul.lo."),
    ("ld.global.nc.", "ld.global."),
];

/// The module's head and this entry of it, respelled.
pub fn respell(ptx: &str, entry: &str) -> String {
    let mut parts = ptx.split(".visible .entry ");
    let head = parts.next().unwrap_or_default();
    let head = head.lines().filter(|line| !line.starts_with(".global ")).collect::<Vec<_>>();
    let body = parts.find(|part| part.starts_with(&format!("{entry}("))).unwrap_or_default();
    let alone = format!("{}\n.visible .entry {body}", head.join("\n"));
    SPELLINGS.iter().fold(alone, |ptx, (theirs, ours)| ptx.replace(theirs, ours))
}
