//! The table of `benches/results`: the forms of one instruction and type share a row.

use super::kernel::Form;

/// The comparison of a form.
pub(super) struct Compared {
    pub(super) form: Form,
    pub(super) same: bool,
}

pub(super) const HEAD: &str = "\
# Single instructions, NVIDIA H200, 2026-11-22

Every approximated function, every division and root, products and sums in all rounding modes, and every conversion that
ptxas 13.0 takes for sm_90: the same inputs on an NVIDIA H200 (driver 580.159.04) and on the CPU device. Their results are
compared by hashes of all bits of all results, NaNs too. Written by the ignored tests `all_values`, `all_inputs` and then
`results` of `cuda-cpu/tests/engine/sweep/tools.rs`.

Inputs of 16 bits are all there are. Of others the first 4096 are edge cases: 64 of them in all pairs (zeros, denormals,
the smallest and largest numbers, infinities, NaNs, the bounds of all narrower types, with both signs); what follows
is random: any bits, exponents around what the results' types hold, trailing zeros and their neighbors, where ties are.

";

/// Returns the table as Markdown.
pub(super) fn table(compared: &[Compared]) -> String {
    let mut rows: Vec<(String, Vec<&Compared>)> = Vec::new();
    for one in compared {
        let name = row(&one.form);
        match rows.iter_mut().find(|(row, _)| *row == name) {
            Some((_, forms)) => forms.push(one),
            None => rows.push((name, vec![one])),
        }
    }
    let mut text =
        "| instruction | with | forms | values of each | values | largest difference |\n|---|---|---:|---:|---:|---|\n"
            .to_owned();
    for (name, forms) in rows {
        let (with, each) = (modifiers(&forms), forms[0].form.count());
        let differ: Vec<String> = forms
            .iter()
            .filter(|one| !one.same)
            .map(|one| format!("`{}` differs", one.form.name))
            .collect();
        let found = if differ.is_empty() { "bit for bit".into() } else { differ.join(", ") };
        let values: u64 = forms.iter().map(|one| one.form.count()).sum();
        text += &format!("| {name} | {with} | {} | {each} | {values} | {found} |\n", forms.len());
    }
    let values: u64 = compared.iter().map(|one| one.form.count()).sum();
    let same = compared.iter().filter(|one| one.same).count();
    text + &format!(
        "\n{same} of {} forms are the same bit for bit, of {values} values in all.\n",
        compared.len()
    )
}

/// Returns the opcode and the types.
fn row(form: &Form) -> String {
    let (opcode, result) = (form.name.split('.').next().unwrap(), form.result());
    match (opcode, form.name.contains(".pack.")) {
        ("cvt", true) => "`cvt.pack`".into(),
        ("cvt", false) => format!("`cvt` {} to {result}", form.sources[0]),
        _ => format!("`{opcode}` {result}"),
    }
}

/// Returns all modifiers of some forms without repetition.
fn modifiers(forms: &[&Compared]) -> String {
    let mut seen: Vec<&str> = Vec::new();
    for one in forms {
        let types = [one.form.result(), &one.form.sources[0]];
        for modifier in one.form.name.split('.').skip(1) {
            if !types.contains(&modifier) && !seen.contains(&modifier) {
                seen.push(modifier);
            }
        }
    }
    seen.join(" ")
}
