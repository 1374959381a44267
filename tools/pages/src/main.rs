//! `pages check FILE..` fails if code that these Markdown files quote differs from its source, or if a line of prose is
//! too wide. `pages quote FILE..` replaces the quoted code by its source.

use std::{fmt::Display, io, path::PathBuf, process::ExitCode};

use pages::{quotes, widths};

fn main() -> ExitCode {
    let mut args = std::env::args_os().skip(1);
    let command = args.next().unwrap_or_default();
    let files: Vec<PathBuf> = args.map(PathBuf::from).collect();
    let faults = match command.to_str() {
        Some("check") => check(&files),
        Some("quote") => quotes::write(&files).map(texts),
        _ => {
            eprintln!("usage: pages check|quote FILE..");
            return ExitCode::from(2);
        }
    };
    match faults {
        Ok(faults) if faults.is_empty() => ExitCode::SUCCESS,
        Ok(faults) => {
            faults.iter().for_each(|fault| println!("{fault}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot read or write a page: {error}");
            ExitCode::from(2)
        }
    }
}

fn check(files: &[PathBuf]) -> io::Result<Vec<String>> {
    let mut faults = quotes::check(files).map(texts)?;
    faults.extend(widths::check(files).map(texts)?);
    Ok(faults)
}

fn texts<T: Display>(faults: Vec<T>) -> Vec<String> {
    faults.iter().map(T::to_string).collect()
}
