//! `layers [--show] CRATE..`: fails if folders of a crate use each other in a ring.

use std::path::PathBuf;
use std::process::ExitCode;

use layers::{Error, check};

const USAGE: &str = "usage: layers [--show] CRATE..
  --show  print the layers of every folder, lowest first";

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
    crates: Vec<PathBuf>,
}

impl Options {
    fn parse(arguments: impl Iterator<Item = String>) -> Option<Self> {
        let mut options = Self { show: false, crates: Vec::new() };
        for argument in arguments {
            match argument.as_str() {
                "--show" => options.show = true,
                _ if argument.starts_with('-') => return None,
                _ => options.crates.push(argument.into()),
            }
        }
        (!options.crates.is_empty()).then_some(options)
    }
}

/// Checks the crates and returns the number of rings.
fn run(options: &Options) -> Result<usize, Error> {
    let mut faults = 0;
    for krate in &options.crates {
        for folder in check(krate)?.folders {
            faults += folder.faults().count();
            if options.show {
                print!("{folder}");
            } else {
                folder.faults().for_each(|ring| println!("{}: {ring}", folder.path.display()));
            }
        }
    }
    Ok(faults)
}
