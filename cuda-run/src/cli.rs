//! Parses the command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Parser, error::ErrorKind};
use command_line::{Dimensions, Failure, dimensions, stdout};

/// The maximum number of launches of one run. The times of all launches are kept for the median.
const MAX_REPEAT: u64 = 1_000_000;

const ARGUMENTS: &str = "\
Arguments, in the order of the kernel's parameters:
  i32=7                  a scalar: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64; integers also as 0x10
  in=@x.npy              an array that the kernel reads
  out=f32:32x32@y.npy    a zeroed array (or bool:..), written to y.npy after the run
  uninit=f32:32@y.npy    an uninitialized array, written to y.npy after the run; --check detects reads of
               elements that the kernel has not written
  inout=@x.npy@y.npy     an array, read from x.npy and written to y.npy after the run (may be the same file)
  bytes=@params.bin      a struct by value: the bytes of the file

All text after the @ is the path. Only inout= has two paths; write an @ inside one of them as @@.
Arrays are little-endian and in C order. .npy files have no name for bf16: these arrays have the type V2, as
numpy with ml_dtypes writes them.

--repeat does not reset the arrays between launches: the second launch reads the results of the first.

A device of another machine is leased from its node for the time of the run:
  --device 'lease://HOST:PORT?min_vram=1GiB&lease_secs=60'
The other options of the address are exclusive, device, wait, priority, renew_secs, ca, cert, key, server_name.

These options require the CPU device, and select it if --device is omitted:
  --check      reports as faults: reads of uninitialized memory, and data races of a block's threads on shared
               memory. Fails if the kernel changes an in= array
  --seed N     runs blocks and warps in a pseudo-random order determined by N, on one thread. The same N gives the
               same order and the same results. Clocks count instructions. Try several seeds to find results that
               depend on the order
  --budget N   ends a launch with a fault after N instructions. An instruction counts once for each execution by
               a warp, or by a diverged part of a warp
  --profile    prints a table on stdout at the end: instructions by kind, most frequent first, with the numbers of
               executions by warps and by threads, for all launches together

Exit status:
  0  success
  2  bad input: usage, a file that cannot be read or written, PTX, kernel, arguments, launch shape
  3  the kernel faulted, or the device failed at run time (for example, out of memory)
  4  no such device, or no driver for it; the node of a lease cannot be reached, or it refuses or ends the lease

If the device cannot load the module, --list prints the kernels anyway and exits with status 2. The CPU device then
lists every unknown instruction with its count and the line and column of the first occurrence.

On failure, cuda-run prints one line on stderr and does not create or change any output file. If the module cannot
be loaded, it prints one line for each problem.";

/// Runs a kernel of a PTX file on a GPU or on the CPU.
#[derive(Debug, Parser)]
#[command(name = "cuda-run", version, after_help = ARGUMENTS)]
pub(crate) struct Cli {
    /// The PTX file.
    #[arg(value_name = "FILE.ptx")]
    pub(crate) file: PathBuf,
    /// The name of the kernel in the PTX.
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    pub(crate) kernel: Option<String>,
    /// The kernel's arguments; see below.
    #[arg(value_name = "ARG")]
    pub(crate) args: Vec<OsString>,
    /// The device: `cpu`, `cuda`, `cuda:1`, `lease://HOST:PORT` [default: the first GPU, else cpu].
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// The grid size in blocks.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions)]
    #[arg(required_unless_present = "list")]
    pub(crate) grid: Option<Dimensions>,
    /// The block size in threads.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions)]
    #[arg(required_unless_present = "list")]
    pub(crate) block: Option<Dimensions>,
    /// Dynamic shared memory per block, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) shared: u32,
    /// Runs all blocks of the grid at the same time, so that they can wait for each other.
    #[arg(long, conflicts_with = "list")]
    pub(crate) cooperative: bool,
    /// The size of a cluster in blocks. The grid is a multiple of it.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions, conflicts_with = "list")]
    pub(crate) cluster: Option<Dimensions>,
    /// Launches the kernel N times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_REPEAT))]
    pub(crate) repeat: u64,
    /// Prints the median time of a launch: `median launch time: 12.3 us (5 launches)`.
    #[arg(long)]
    pub(crate) time: bool,
    /// Prints the kernels and their parameters, and runs nothing.
    #[arg(long)]
    pub(crate) list: bool,
    /// Detects reads of uninitialized memory and races on shared memory (CPU device only).
    #[arg(long, conflicts_with = "list")]
    pub(crate) check: bool,
    /// Runs blocks and warps one at a time, in a reproducible order determined by N (CPU device only).
    #[arg(long, value_name = "N", conflicts_with = "list")]
    pub(crate) seed: Option<u64>,
    /// Ends a launch with a fault after N instructions (CPU device only).
    #[arg(long, value_name = "N", conflicts_with = "list")]
    pub(crate) budget: Option<u64>,
    /// Prints the number of executions of each kind of instruction (CPU device only).
    #[arg(long, conflicts_with = "list")]
    pub(crate) profile: bool,
}

impl Cli {
    /// Returns the first given option that requires the CPU device.
    pub(crate) fn needs_cpu(&self) -> Option<&'static str> {
        let given = [
            (self.check, "--check"),
            (self.seed.is_some(), "--seed"),
            (self.budget.is_some(), "--budget"),
            (self.profile, "--profile"),
        ];
        given.into_iter().find_map(|(given, name)| given.then_some(name))
    }
}

/// Parses the command line. Prints the help or the version if requested, and returns `None` then.
pub(crate) fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        Err(text) if is_help(&text) => stdout::print(&text.to_string()).map(|()| None),
        Err(error) => Err(usage(&error)),
    }
}

fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// Converts an error of clap to one line, without the usage.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.split("\nUsage:").next().unwrap_or_default();
    let text = text.split("\nFor more information").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let fold = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<_> = text.split("\n\n").map(fold).filter(|text| !text.is_empty()).collect();
    let kernels = match error.kind() {
        ErrorKind::MissingRequiredArgument => "; --list prints the kernels of a file",
        _ => "",
    };
    let text = paragraphs.join("; ");
    Failure::bad_input(format_args!("{text}{kernels}; see cuda-run --help"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn clap_command_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn usage_errors_are_one_line() {
        for args in [&["cuda-run"][..], &["cuda-run", "--gird", "3"], &["cuda-run", "a", "--grid"]]
        {
            let error = Cli::try_parse_from(args).unwrap_err();
            let line = format!("{:?}", usage(&error));
            assert!(!line.contains("\\n") && !line.contains("Usage"), "{line}");
            assert!(line.contains("see cuda-run --help"), "{line}");
        }
    }

    #[test]
    fn options_and_arguments_mix_in_any_order() {
        let line = "cuda-run k.ptx f i32=-7 --grid 2 in=@a --block 3,4 --time --repeat 5";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(cli.args, ["i32=-7", "in=@a"]);
        assert_eq!((cli.grid, cli.block), (Some([2, 1, 1]), Some([3, 4, 1])));
        assert_eq!((cli.repeat, cli.time, cli.shared), (5, true, 0));
    }
}
