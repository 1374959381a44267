//! `links FILE..`: fails if a link of these Markdown files leads nowhere.

use std::{path::PathBuf, process::ExitCode};

fn main() -> ExitCode {
    let files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    match links::check(&files) {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            broken.iter().for_each(|it| println!("{it}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("cannot read a page: {error}");
            ExitCode::from(2)
        }
    }
}
