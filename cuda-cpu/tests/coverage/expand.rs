//! Expands the lines of the table of instructions to modules with one instruction each.

use cuda_ptx::table::{Form, Row, rows};

/// A line of the table.
pub(crate) struct Line {
    pub(crate) pattern: &'static str,
    pub(crate) remarks: &'static str,
    pub(crate) section: &'static str,
    pub(crate) rows: Vec<&'static Row>,
}

/// Returns the lines in the order of the table. A line may have several rows.
pub(crate) fn lines() -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    let mut rows: Vec<&Row> = rows().iter().collect();
    rows.sort_by_key(|row| row.line());
    for row in rows {
        match lines.last_mut().filter(|line| line.rows.iter().any(|own| own.line() == row.line())) {
            Some(line) => line.rows.push(row),
            None => {
                let (pattern, section, remarks) = (row.text(), row.section(), row.remarks());
                lines.push(Line { pattern, section, remarks, rows: vec![row] });
            }
        }
    }
    lines
}

/// Returns a module with the instruction in a kernel, for the first target that has it.
pub(crate) fn module(form: &Form) -> String {
    let Form { text, version: (major, minor), target, .. } = form;
    let wide = if *major >= 9 { ".reg .b128 %q<9>;" } else { "" };
    let size = if (*major, *minor) >= (2, 3) { ".address_size 64" } else { "" };
    // Kernels have no parameters that they could write.
    let (own, called) =
        if text.contains("param::func") || text.starts_with("st.") && text.contains(".param.") {
            ("", text.as_str())
        } else {
            (text.as_str(), "")
        };
    let registers = format!(
        ".reg .pred %p<9>; .reg .b8 %b<9>; .reg .b16 %h<40>; .reg .b32 %w<40>; .reg .b64 %l<40>; .reg .b64 %a; {wide}"
    );
    format!(
        ".version {major}.{minor}\n.target {target}\n{size}\n.func f() {{ {registers}\n{called}\nret; }}\n\
         .visible .entry k() {{ {registers}\n{own}\ncall f;\n$End: ret;\n$Targets: .branchtargets $End;\n}}\n"
    )
}
