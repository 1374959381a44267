//! `layers [--show] [--allow LIST] CRATE..`: fails if folders of a crate use each other in a ring.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use layers::{Allowed, Error, check};

const USAGE: &str = "usage: layers [--show] [--allow LIST] CRATE..
  --show        print the layers of every folder, lowest first
  --allow LIST  a file of folders whose rings do not fail";

fn main() -> ExitCode {
    let Some(options) = Options::parse(std::env::args().skip(1)) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    match run(&options) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(faults) => {
            println!("{faults} rings; a folder may use only folders in lower layers");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

struct Options {
    show: bool,
    allow: Option<PathBuf>,
    crates: Vec<PathBuf>,
}

impl Options {
    fn parse(mut arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { show: false, allow: None, crates: Vec::new() };
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--show" => options.show = true,
                "--allow" => options.allow = Some(arguments.next()?.into()),
                _ if argument.starts_with('-') => return None,
                _ => options.crates.push(argument.into()),
            }
        }
        (!options.crates.is_empty()).then_some(options)
    }
}

/// Checks the crates and returns the number of rings that are not allowed.
fn run(options: &Options) -> Result<usize, Error> {
    let allowed = options.allow.as_deref().map(Allowed::read).transpose()?.unwrap_or_default();
    let mut faults = 0;
    let mut with_rings: Vec<PathBuf> = Vec::new();
    for krate in &options.crates {
        for folder in check(krate)?.folders {
            if options.show {
                print!("{folder}");
            }
            let rings = folder.faults().count();
            if rings > 0 && allowed.contains(&folder.path) {
                with_rings.push(folder.path);
                continue;
            }
            faults += rings;
            if !options.show {
                folder.faults().for_each(|ring| println!("{}: {ring}", folder.path.display()));
            }
        }
    }
    let checked = |entry: &Path| options.crates.iter().any(|krate| entry.starts_with(krate));
    for entry in allowed.folders().filter(|entry| checked(entry)) {
        if !with_rings.iter().any(|folder| folder == entry) {
            println!("{}: no rings left; remove the folder from the list", entry.display());
        }
    }
    Ok(faults)
}
