//! Instructions that the CPU device supports. Loads every form of the table of instructions, compares the results with
//! the table and with the book's page. After a change, run `cargo test -p cuda-cpu --test coverage write -- --ignored`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // helpers of tests

mod expand;
mod page;

use cuda_cpu::{Memory, Program};
use cuda_ptx::table::{Form, rows};
use expand::module;

/// Loads a kernel with this instruction.
fn load(form: &Form, memory: &Memory) -> Result<(), String> {
    let parsed = cuda_ptx::parse(&module(form)).map_err(|error| error.to_string())?;
    let program = Program::load(&parsed, memory).map_err(|error| error.to_string())?;
    program.unload(memory);
    Ok(())
}

#[test]
fn device_runs_the_forms_that_the_table_says() {
    let memory = Memory::new(1 << 24);
    let mut wrong = Vec::new();
    for row in rows() {
        for form in row.forms() {
            match (row.runs(), load(&form, &memory)) {
                (true, Err(error)) => wrong.push(format!("{}: {error}", form.text)),
                (false, Ok(())) => wrong.push(format!("{} runs", form.text)),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} forms:\n{}", wrong.len(), wrong.join("\n"));
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
