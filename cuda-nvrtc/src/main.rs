//! `cuda-nvrtc kernel.cu ..`: writes the PTX beside each source, for machines without NVRTC.

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use cuda_nvrtc::{Error, Nvrtc, Options, Source};

const USAGE: &str = "\
Compiles CUDA C++ with NVRTC, and writes the PTX beside each source: kernel.ptx beside kernel.cu.
`#[cuda = \"kernel.cu\"]` of `kernels!` takes that file where NVRTC is not installed.

usage: cuda-nvrtc [OPTION].. KERNEL.cu ..

options:
  -I FOLDER        search headers in this folder
  --OPTION=VALUE   an option of NVRTC, such as --gpu-architecture=compute_80 or --fmad=false
                   (the same as in `#[nvrtc(..)]` of the declaration, in the same order)
  --help           print this text
";

fn main() -> ExitCode {
    let mut options = Options::new();
    let mut sources = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--help" | "-h" => {
                print!("{USAGE}");
                return ExitCode::SUCCESS;
            }
            "-I" => match arguments.next() {
                Some(folder) => options = options.include(folder),
                None => return usage("-I needs a folder"),
            },
            flag if flag.starts_with('-') => options = options.flag(flag),
            path => sources.push(PathBuf::from(path)),
        }
    }
    if sources.is_empty() {
        return usage("no source is given");
    }
    for path in &sources {
        match write(path, &options) {
            Ok(target) => println!("wrote {}", target.display()),
            Err(error) => {
                eprintln!("cuda-nvrtc: {error}");
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

fn usage(problem: &str) -> ExitCode {
    eprintln!("cuda-nvrtc: {problem}\n\n{USAGE}");
    ExitCode::from(2)
}

/// Compiles a source and writes the PTX beside it.
fn write(path: &Path, options: &Options) -> Result<PathBuf, Error> {
    let source = Source::read(&path.to_string_lossy(), path, options)?;
    let ptx = Nvrtc::find_for(&source)?.compile_with_types(&source, options)?;
    if !ptx.log.is_empty() {
        eprintln!("{}", ptx.log);
    }
    let target = path.with_extension("ptx");
    let failed = |error: std::io::Error| Error::File {
        path: target.clone(),
        action: "written",
        detail: error.to_string(),
    };
    fs::write(&target, ptx.text).map_err(failed)?;
    Ok(target)
}
