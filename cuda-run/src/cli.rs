//! The command line.

use std::{ffi::OsString, path::PathBuf};

use clap::{Parser, error::ErrorKind};

use crate::{failure::Failure, stdout};

/// The most launches of one run: their times are kept for the median.
const MAX_REPEAT: u64 = 1_000_000;

const ARGUMENTS: &str = "\
Arguments, in the order of the kernel's parameters:
  i32=7                  a scalar: i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64; integers also as 0x10
  in=@x.npy              an array that the kernel reads
  out=f32:32x32@y.npy    a zeroed array (or bool:..) that is written to y.npy afterwards
  uninit=f32:32@y.npy    the same, but its contents count as never written: --check finds reads of them
  inout=@x.npy@y.npy     an array that is read from x.npy and written to y.npy (which may be x.npy)
  bytes=@params.bin      a struct by value: the file's bytes

The text after the @ is the path, whatever it contains. Only inout= has two paths: there an @ inside a path
is written @@. Arrays are little-endian and in C order. bf16 has no name in .npy files: such arrays have
the type V2, as numpy with ml_dtypes writes them.

With --repeat the arrays are not reset in between: the second launch sees what the first one wrote.

On the CPU device a kernel can be looked at more closely. These options need it, and choose it where there
is no --device:
  --check      reads of memory that was never written (neither by an argument, nor by the kernel), and races of a
               block's threads on shared memory, are faults too; and a kernel that changes an in= array fails
  --seed N     which block is next, which warp, and for how many instructions depends on N: another seed, another
               order, to find results that depend on it. Everything runs on one thread, and the same N
               gives the same result every time, also of clocks, which then count instructions
  --budget N   a launch that executes more than N instructions is a fault. Each instruction counts once each time
               that a warp, or the part of one that is at the same place, executes it
  --profile    a table on stdout, after all else: instructions by kind, most frequent first, with how often
               warps and threads executed them; of all launches together

Exit status:
  0  done
  2  bad input: usage, a file that cannot be read or written, PTX, kernel, arguments, launch shape
  3  the kernel faulted, or the device failed at run time (out of memory)
  4  no such device, or no driver for it

--list prints the kernels of a module also where the device cannot run it, and then fails with status 2. The CPU device
names every instruction that it does not know, with its first line and column and how often it occurs.

On failure there is one line on stderr, and no output file is written or changed. A device's report about a
module that it cannot load has a line for each problem.";

/// Runs a kernel of a PTX file on a GPU, or on the CPU.
#[derive(Debug, Parser)]
#[command(name = "cuda-run", version, after_help = ARGUMENTS)]
pub(crate) struct Cli {
    /// The PTX file.
    #[arg(value_name = "FILE.ptx")]
    pub(crate) file: PathBuf,
    /// The kernel, by its name in the PTX.
    #[arg(required_unless_present = "list", conflicts_with = "list")]
    pub(crate) kernel: Option<String>,
    /// The kernel's arguments; see below.
    #[arg(value_name = "ARG")]
    pub(crate) args: Vec<OsString>,
    /// Where to run: `cpu`, `cuda`, `cuda:1` [default: the first GPU, else cpu].
    #[arg(long)]
    pub(crate) device: Option<String>,
    /// Blocks of the grid.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions)]
    #[arg(required_unless_present = "list")]
    pub(crate) grid: Option<Dimensions>,
    /// Threads of a block.
    #[arg(long, value_name = "X[,Y[,Z]]", value_parser = dimensions)]
    #[arg(required_unless_present = "list")]
    pub(crate) block: Option<Dimensions>,
    /// Dynamic shared memory per block.
    #[arg(long, value_name = "BYTES", default_value_t = 0, hide_default_value = true)]
    pub(crate) shared: u32,
    /// Launches N times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=MAX_REPEAT))]
    pub(crate) repeat: u64,
    /// Prints the median time of a launch: `median launch time: 12.3 us (5 launches)`.
    #[arg(long)]
    pub(crate) time: bool,
    /// Prints the kernels and their parameters instead of running one.
    #[arg(long)]
    pub(crate) list: bool,
    /// Also finds reads of memory that was never written, and races on shared memory (CPU device only).
    #[arg(long, conflicts_with = "list")]
    pub(crate) check: bool,
    /// Runs blocks and warps one at a time in an order that depends on N, the same every time (CPU device only).
    #[arg(long, value_name = "N", conflicts_with = "list")]
    pub(crate) seed: Option<u64>,
    /// Ends a launch after N instructions, as a fault (CPU device only).
    #[arg(long, value_name = "N", conflicts_with = "list")]
    pub(crate) budget: Option<u64>,
    /// Prints which instructions were executed how often (CPU device only).
    #[arg(long, conflicts_with = "list")]
    pub(crate) profile: bool,
}

impl Cli {
    /// The first option that only the CPU device understands.
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

/// x, y and z.
pub(crate) type Dimensions = [u32; 3];

/// Reads the command line; none if it asked for help or the version, which is printed.
pub(crate) fn parse() -> Result<Option<Cli>, Failure> {
    match Cli::try_parse() {
        Ok(cli) => Ok(Some(cli)),
        Err(answer) if asked_for(&answer) => stdout::print(&answer.to_string()).map(|()| None),
        Err(error) => Err(usage(&error)),
    }
}

fn asked_for(answer: &clap::Error) -> bool {
    matches!(answer.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
}

/// clap's paragraphs without the usage, as one line.
fn usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.split("\nUsage:").next().unwrap_or_default();
    let text = text.split("\nFor more information").next().unwrap_or_default();
    let text = text.strip_prefix("error: ").unwrap_or(text);
    let fold = |paragraph: &str| paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<_> = text.split("\n\n").map(fold).filter(|text| !text.is_empty()).collect();
    let kernels = match error.kind() {
        ErrorKind::MissingRequiredArgument => "; --list shows the kernels of a file",
        _ => "",
    };
    let text = paragraphs.join("; ");
    Failure::bad_input(format_args!("{text}{kernels}; see cuda-run --help"))
}

/// `X`, `X,Y` or `X,Y,Z`; omitted numbers are 1.
fn dimensions(text: &str) -> Result<Dimensions, String> {
    let mut dimensions = [1; 3];
    let parts: Vec<_> = text.split(',').collect();
    if parts.len() > dimensions.len() {
        return Err("more than three dimensions".into());
    }
    for (dimension, part) in dimensions.iter_mut().zip(parts) {
        let number =
            |_| format!("`{part}` is no number; several are separated by commas, as in 4,4");
        *dimension = part.parse().map_err(number)?;
        if *dimension == 0 {
            return Err("no dimension can be 0".into());
        }
    }
    Ok(dimensions)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn dimensions_that_are_left_out_are_1() {
        assert_eq!(dimensions("4"), Ok([4, 1, 1]));
        assert_eq!(dimensions("4,5"), Ok([4, 5, 1]));
        assert_eq!(dimensions("4,5,4294967295"), Ok([4, 5, u32::MAX]));
    }

    #[test]
    fn dimensions_that_are_none_are_refused() {
        for text in ["", "0", "1,0", "1,2,3,4", "1,", "-1", "4x4", " 4", "4294967296"] {
            assert!(dimensions(text).is_err(), "{text:?}");
        }
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
    fn options_may_stand_anywhere() {
        let line = "cuda-run k.ptx f i32=-7 --grid 2 in=@a --block 3,4 --time --repeat 5";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(cli.args, ["i32=-7", "in=@a"]);
        assert_eq!((cli.grid, cli.block), (Some([2, 1, 1]), Some([3, 4, 1])));
        assert_eq!((cli.repeat, cli.time, cli.shared), (5, true, 0));
    }
}
