//! Programs that must not compile: misuse that would break soundness, forgotten operations, mistakes in `kernels!`, and
//! hints.
//!
//! `TRYBUILD=overwrite cargo test -p cuda-async-compile-fail` overwrites the expected messages with
//! those of the compiler.

#![allow(clippy::unwrap_used)]

use std::{fs, path::Path};

/// Copies the kernels next to the package in the target folder in which the cases are built, so that `../kernels` is
/// valid there too.
fn copy_kernels() -> std::io::Result<()> {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tests");
    let copies = target.join("trybuild").join("kernels");
    copy_files("../../kernels", &copies, &["ptx"])?;
    copy_files("../tests/kernels_macro/cuda", &copies.join("cuda"), &["cu", "cuh", "ptx"])
}

/// Copies the files of a folder that have one of the suffixes. The folder is relative to the package.
fn copy_files(from: &str, to: &Path, suffixes: &[&str]) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(from))? {
        let path = entry?.path();
        if let (Some(name), Some(suffix)) =
            (path.file_name(), path.extension().and_then(|e| e.to_str()))
            && suffixes.contains(&suffix)
        {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}

#[test]
fn programs_are_rejected_with_the_expected_messages() {
    copy_kernels().unwrap();
    let cases = trybuild::TestCases::new();
    cases.compile_fail("cases/kernels_macro/*.rs");
    cases.compile_fail("cases/soundness/*.rs");
    cases.compile_fail("cases/hints/*.rs");
}

/// The messages of NVRTC are compile errors of the program.
#[test]
#[ignore = "needs NVRTC: `cargo xtask ci nvrtc` runs it"]
fn mistakes_in_a_declared_source() {
    copy_kernels().unwrap();
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("tests");
    let source = "\n__global__ void k(float *x)\n{\n    x[0] = y;\n}\n";
    fs::write(target.join("trybuild/kernels/cuda/mistake.cu"), source).unwrap();
    trybuild::TestCases::new().compile_fail("cases/nvrtc/*.rs");
}
