//! The width of the lines of prose.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// The maximum number of characters of a line.
const WIDTH: usize = 120;

/// A line of prose that is too wide.
#[derive(Debug, PartialEq, Eq)]
pub struct WideLine {
    page: PathBuf,
    line: usize,
    characters: usize,
}

impl fmt::Display for WideLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { page, line, characters } = self;
        write!(f, "{}:{line}: {characters} characters; wrap it at {WIDTH}", page.display())
    }
}

/// The results of measurements, whose lines programs have printed.
const RESULTS: &str = "benches/results";

/// Returns the lines of prose that are too wide. Tables, code and the results of
/// measurements are not prose.
///
/// # Errors
/// That of reading a file.
pub fn check(files: &[PathBuf]) -> io::Result<Vec<WideLine>> {
    let mut wide = Vec::new();
    for page in files.iter().filter(|page| !page.starts_with(RESULTS)) {
        wide.extend(wide_lines(page, &fs::read_to_string(page)?));
    }
    Ok(wide)
}

fn wide_lines(page: &Path, text: &str) -> Vec<WideLine> {
    let mut in_code = false;
    let mut wide = Vec::new();
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let is_prose = !in_code && !line.trim_start().starts_with('|') && !line.starts_with("    ");
        let characters = line.chars().count();
        if is_prose && characters > WIDTH {
            wide.push(WideLine { page: page.into(), line: index + 1, characters });
        }
    }
    wide
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_prose_is_measured() {
        let wide = "é".repeat(121);
        let fits = "é".repeat(120);
        let text = format!("{fits}\n{wide}\n| {wide} |\n```\n{wide}\n```\n    {wide}\n  {wide}\n");
        let lines: Vec<_> =
            wide_lines(Path::new("a.md"), &text).into_iter().map(|line| line.line).collect();
        assert_eq!(lines, [2, 8]);
    }
}
