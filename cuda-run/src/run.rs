//! Runs the parsed command line, from reading the PTX to writing the output files.

use std::{
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
    time::Duration,
};

use command_line::{Failure, stdout};
use cuda_async::{DeviceOp, LaunchConfig, Module, Stream, to_host};

use crate::{
    arg::{self, Arg, Value},
    check,
    cli::Cli,
    device_options::DeviceOptions,
    launch, list,
    outputs::{self, Destination, Staged},
    place::{self, Placed},
};

/// The maximum size of a PTX file in bytes.
const MAX_PTX: u64 = 1 << 30;

/// Lists the kernels or runs one, as the command line requests.
pub(crate) fn run(cli: &Cli) -> Result<(), Failure> {
    let args = arg::parse_all(&cli.args)?;
    let ptx = read_ptx(&cli.file).map_err(|failure| failure.at(cli.file.display()))?;
    let options = DeviceOptions::new(cli);
    let device = options.device(cli)?;
    let module = match device.load_ptx_blocking(&ptx).map_err(Failure::from) {
        Ok(module) => module,
        Err(failure) => {
            if cli.list && failure.is_of_module() {
                list::print_text(&ptx)?;
            }
            return Err(failure.at(cli.file.display()));
        }
    };
    match &cli.kernel {
        None => list::print(&module),
        Some(kernel) => run_kernel(cli, &module, kernel, &args, &options),
    }
}

fn run_kernel(
    cli: &Cli,
    module: &Module,
    kernel: &str,
    args: &[Arg],
    options: &DeviceOptions,
) -> Result<(), Failure> {
    let function = module.function(kernel)?;
    check::check(function.info(), args)?;
    let destinations = outputs::destinations(args.iter().filter_map(output_path))?;

    let stream = module.device().new_stream()?;
    let mut placed = place::place(&stream, function.info(), args, cli.check)?;
    let arguments = place::arguments(function.info(), &placed);
    let launched = launch::repeat(&function, &stream, config(cli), &arguments, cli.repeat);
    drop(arguments);
    // Print the profile after a fault too: it shows the instructions before the fault.
    if launched.is_err() {
        options.print_profile()?;
    }
    let times = launched?;

    unchanged(&stream, args, &mut placed)?;
    let staged = download(&stream, args, placed, destinations)?;
    if cli.time {
        print_median(times)?;
    }
    options.print_profile()?;
    staged.commit()
}

fn read_ptx(path: &Path) -> Result<String, Failure> {
    let mut ptx = String::new();
    let read = File::open(path)?.take(MAX_PTX + 1).read_to_string(&mut ptx);
    let read = read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => Failure::bad_input("not UTF-8 text; expected a PTX file"),
        _ => error.into(),
    })? as u64;
    if read > MAX_PTX {
        return Err(Failure::bad_input(format_args!(
            "the PTX is larger than the limit of {MAX_PTX} bytes"
        )));
    }
    Ok(ptx)
}

/// Returns the launch shape. `Cli` requires a grid and a block if there is a kernel.
fn config(cli: &Cli) -> LaunchConfig {
    let grid = cli.grid.unwrap_or([1; 3]);
    let block = cli.block.unwrap_or([1; 3]);
    let ([gx, gy, gz], [x, y, z]) = (grid, block);
    let config = LaunchConfig::new(gx, x).grid(gx, gy, gz).block(x, y, z).shared_bytes(cli.shared);
    let config = cli.cluster.map_or(config, |[x, y, z]| config.cluster(x, y, z));
    if cli.cooperative { config.cooperative() } else { config }
}

fn output_path(arg: &Arg) -> Option<&Path> {
    match &arg.value {
        Value::Out(_, path) | Value::Uninit(_, path) | Value::InOut(_, path) => Some(path),
        Value::Scalar(_) | Value::In(_) | Value::Bytes(_) => None,
    }
}

/// Checks that the kernel changed none of the inputs that were kept.
fn unchanged(stream: &Stream, args: &[Arg], placed: &mut [Placed]) -> Result<(), Failure> {
    for (index, (arg, placed)) in args.iter().zip(placed).enumerate() {
        if !matches!(placed, Placed::Input(..)) {
            continue;
        }
        let taken = std::mem::replace(placed, Placed::Bytes(Vec::new()));
        if let Placed::Input(buffer, bytes) = taken
            && to_host(buffer).sync_on(stream)? != bytes
        {
            return Err(Failure::failed(format_args!(
                "the kernel wrote to an input, argument {index} `{}`; use inout= if this is intended",
                arg.text
            )));
        }
    }
    Ok(())
}

/// Downloads every output and writes it to a temporary file.
fn download(
    stream: &Stream,
    args: &[Arg],
    placed: Vec<Placed>,
    destinations: Vec<Destination>,
) -> Result<Staged, Failure> {
    let written = args.iter().zip(placed).filter(|(arg, _)| output_path(arg).is_some());
    let mut staged = Staged::default();
    for ((_, placed), destination) in written.zip(destinations) {
        if let Placed::Array(array, buffer) = placed {
            staged.add(destination, &array, &to_host(buffer).sync_on(stream)?)?;
        }
    }
    Ok(staged)
}

fn print_median(times: Vec<Duration>) -> Result<(), Failure> {
    let launches = times.len();
    let micros = launch::median(times).as_secs_f64() * 1e6;
    stdout::print(&format!("median launch time: {micros:.1} us ({launches} launches)\n"))
}
