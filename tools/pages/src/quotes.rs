//! Quoted code: a page shows a part of a source file, and stays equal to it.
//!
//! A comment before a code block names the source and the part: `<!-- quote: ../../examples/image/mod.rs:edges -->`. In
//! the source, the part stands between the comments `ANCHOR: edges` and `ANCHOR_END: edges`.

use std::{
    fmt, fs, io,
    path::{Path, PathBuf},
};

/// A quote that cannot be made, or that differs from its source.
#[derive(Debug, PartialEq, Eq)]
pub struct Wrong {
    /// The page.
    pub file: PathBuf,
    /// The line of the quote's comment, from 1.
    pub line: usize,
    /// The reason.
    pub why: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.why)
    }
}

/// Checks that each quote of these pages equals its source.
///
/// # Errors
/// The error of reading a page.
pub fn check(files: &[PathBuf]) -> io::Result<Vec<Wrong>> {
    let mut stale = Vec::new();
    let mut wrong = requote_all(files, |file, text, fresh| {
        let same = fresh.lines().zip(text.lines()).take_while(|(a, b)| a == b).count();
        let why = "the quoted code differs from its source; run `cargo run -p pages -- quote` on the page";
        stale.push(Wrong { file: file.to_path_buf(), line: same + 1, why: why.into() });
        Ok(())
    })?;
    wrong.append(&mut stale);
    Ok(wrong)
}

/// Replaces each quote of these pages by its source.
///
/// # Errors
/// The error of reading or writing a page.
pub fn write(files: &[PathBuf]) -> io::Result<Vec<Wrong>> {
    requote_all(files, |file, _, fresh| fs::write(file, fresh))
}

/// Quotes the sources of these pages again, and calls `changed` with each page whose text would change: its file, its
/// text and the fresh text. Returns the quotes that cannot be made.
fn requote_all(
    files: &[PathBuf],
    mut changed: impl FnMut(&Path, &str, &str) -> io::Result<()>,
) -> io::Result<Vec<Wrong>> {
    let mut wrong = Vec::new();
    for file in files {
        let text = fs::read_to_string(file)?;
        let (fresh, faults) = requote(file, &text);
        wrong.extend(faults);
        if fresh != text {
            changed(file, &text, &fresh)?;
        }
    }
    Ok(wrong)
}

/// The text of a page with fresh quotes. A quote that cannot be made stays as it is.
fn requote(file: &Path, text: &str) -> (String, Vec<Wrong>) {
    let (mut fresh, mut wrong) = (String::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        push(&mut fresh, line);
        let Some(source) = quoted_source(line) else { continue };
        let fault = |why: String| Wrong { file: file.to_path_buf(), line: at + 1, why };
        let part = match part(file, source) {
            Ok(part) => part,
            Err(why) => {
                wrong.push(fault(why));
                continue;
            }
        };
        match lines.next() {
            Some((_, fence)) if fence.starts_with("```") => push(&mut fresh, fence),
            other => {
                other.into_iter().for_each(|(_, line)| push(&mut fresh, line));
                wrong.push(fault("no code block follows the comment".into()));
                continue;
            }
        }
        part.iter().for_each(|line| push(&mut fresh, line));
        match lines.find(|(_, line)| *line == "```") {
            Some((_, fence)) => push(&mut fresh, fence),
            None => wrong.push(fault("the code block has no end".into())),
        }
    }
    (fresh, wrong)
}

fn push(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// The source that a comment names: `<!-- quote: PATH:PART -->`.
fn quoted_source(line: &str) -> Option<&str> {
    line.trim().strip_prefix("<!-- quote: ")?.strip_suffix(" -->")
}

/// The lines of a part, without their common indentation and without the comments of other parts.
fn part(page: &Path, source: &str) -> Result<Vec<String>, String> {
    let (path, name) = source.rsplit_once(':').ok_or("the comment names no part: `PATH:PART`")?;
    let path = page.parent().unwrap_or(Path::new("")).join(path);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let is = |line: &str, mark: &str| {
        line.trim().strip_prefix("// ") == Some(&format!("{mark}: {name}"))
    };
    let mut lines = text.lines().skip_while(|line| !is(line, "ANCHOR")).skip(1).peekable();
    if lines.peek().is_none() {
        return Err(format!("{} has no `ANCHOR: {name}`", path.display()));
    }
    let is_mark = |line: &&str| line.trim_start().starts_with("// ANCHOR");
    let lines: Vec<_> =
        lines.take_while(|line| !is(line, "ANCHOR_END")).filter(|line| !is_mark(line)).collect();
    let indentation = |line: &&str| line.len() - line.trim_start().len();
    let common = lines.iter().filter(|line| !line.trim().is_empty()).map(indentation).min();
    let stripped = |line: &&str| line.get(common.unwrap_or(0)..).unwrap_or("").to_owned();
    Ok(lines.iter().map(stripped).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        "fn a() {\n    // ANCHOR: body\n    one();\n        two();\n    // ANCHOR_END: body\n}\n";

    fn page(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let page = folder.path().join("page.md");
        fs::write(folder.path().join("a.rs"), SOURCE).expect("written");
        fs::write(&page, text).expect("written");
        (folder, page)
    }

    #[test]
    fn stale_quotes_are_found_and_replaced() {
        let stale = "# A\n<!-- quote: a.rs:body -->\n```rust\nold();\n```\nend\n";
        let (_folder, page) = page(stale);
        let pages = [page.clone()];
        assert_eq!(check(&pages).expect("read")[0].line, 4);
        assert_eq!(write(&pages).expect("written"), []);
        let fresh = fs::read_to_string(&page).expect("read");
        assert_eq!(
            fresh,
            "# A\n<!-- quote: a.rs:body -->\n```rust\none();\n    two();\n```\nend\n"
        );
        assert_eq!(check(&pages).expect("read"), []);
    }

    #[test]
    fn quotes_without_source_or_block_are_errors() {
        for (text, why) in [
            ("<!-- quote: a.rs:gone -->\n```\n```\n", "has no `ANCHOR: gone`"),
            ("<!-- quote: gone.rs:body -->\n```\n```\n", "gone.rs"),
            ("<!-- quote: a.rs -->\n```\n```\n", "names no part"),
            ("<!-- quote: a.rs:body -->\n\n", "no code block"),
            ("<!-- quote: a.rs:body -->\n```\n", "has no end"),
        ] {
            let (_folder, page) = page(text);
            let wrong = check(&[page]).expect("read");
            assert!(wrong.iter().any(|fault| fault.why.contains(why)), "{wrong:?}");
        }
    }
}
