//! Instructions that the CPU device supports. Loads every form in `grammar.txt` and compares the results with the
//! book's page. After a change, run `cargo test -p cuda-cpu --test coverage write -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod expand;
mod page;

use cuda_cpu::{Memory, Program};
use expand::{Form, lines, module};

/// Returns whether a kernel with this instruction can be loaded.
fn runs(form: &Form, memory: &Memory) -> bool {
    let Ok(parsed) = cuda_ptx::parse(&module(form)) else { return false };
    Program::load(&parsed, memory).is_ok_and(|program| {
        program.unload(memory);
        true
    })
}

fn page_path() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../book/src/instructions.md")
}

#[test]
fn the_page_in_the_book_is_up_to_date() {
    let page = page::write();
    let committed = std::fs::read_to_string(page_path()).unwrap_or_default();
    for (i, (got, want)) in committed.lines().zip(page.lines()).enumerate() {
        assert_eq!(
            got,
            want,
            "line {} of book/src/instructions.md: see tests/coverage/main.rs",
            i + 1
        );
    }
    assert_eq!(committed.lines().count(), page.lines().count());
}

#[test]
#[ignore = "a tool: writes the book's page"]
fn write() {
    std::fs::write(page_path(), page::write()).unwrap();
}

#[test]
#[ignore = "a tool: writes every form as a file for `ptxas.py`"]
fn list() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("coverage");
    _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    let mut list = String::new();
    for (i, form) in lines().iter().flat_map(|line| &line.forms).enumerate() {
        std::fs::write(folder.join(format!("{i}.ptx")), module(form)).unwrap();
        list += &format!("{i}\t{}\t{}\n", form.target, form.text);
    }
    std::fs::write(folder.join("list"), list).unwrap();
    println!("{}", folder.display());
}
