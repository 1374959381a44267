//! The table of `benches/results`: forms of one instruction and type are a row.

use super::kernel::Form;

/// What was compared of a form, and in how many values of it the CPU device differs.
pub(super) struct Compared {
    pub(super) form: Form,
    pub(super) values: u64,
    pub(super) differ: u64,
}

/// As Markdown.
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
        "| instruction | with | forms | values | differ |\n|---|---|---:|---:|---:|\n".to_owned();
    for (name, forms) in rows {
        let values: u64 = forms.iter().map(|one| one.values).sum();
        let differ: u64 = forms.iter().map(|one| one.differ).sum();
        let with = modifiers(&forms);
        text += &format!("| {name} | {with} | {} | {values} | {differ} |\n", forms.len());
    }
    text
}

/// The opcode and the types.
fn row(form: &Form) -> String {
    let (opcode, result) = (form.name.split('.').next().unwrap(), form.result());
    match (opcode, form.name.contains(".pack.")) {
        ("cvt", true) => "`cvt.pack`".into(),
        ("cvt", false) => format!("`cvt` {} to {result}", form.sources[0]),
        _ => format!("`{opcode}` {result}"),
    }
}

/// All modifiers of some forms, each once.
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
