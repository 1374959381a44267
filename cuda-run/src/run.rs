//! Runs the parsed command line: lists the kernels of a module, or launches one and measures launch times, from reading
//! the PTX to writing the output files.

use std::{
    fmt::Write,
    fs::File,
    io::{ErrorKind, Read},
    path::Path,
    time::{Duration, Instant},
};

use command_line::{Failure, stdout};
use cuda_async::{DeviceOp, Error, Function, LaunchConfig, Module, Stream, to_host};
use cuda_core::{Arguments, ParamInfo, protocol::entries};

use crate::{
    arg::{self, Arg, Value},
    cli::Cli,
    device_options::DeviceOptions,
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
                print_kernels_of(&ptx)?;
            }
            return Err(failure.at(cli.file.display()));
        }
    };
    match &cli.kernel {
        None => print_kernels(&module),
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
    place::check(function.info(), args)?;
    let destinations = outputs::destinations(args.iter().filter_map(output_path))?;

    let stream = module.device().new_stream()?;
    let mut placed = place::place(&stream, function.info(), args, cli.check)?;
    let arguments = place::arguments(function.info(), &placed);
    let launched = repeat(&function, &stream, config(cli), &arguments, cli.repeat);
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
    let micros = median(times).as_secs_f64() * 1e6;
    stdout::print(&format!("median launch time: {micros:.1} us ({launches} launches)\n"))
}

/// Launches the kernel `times` times and waits for each launch. Returns the time of each launch.
fn repeat(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    arguments: &Arguments<'_>,
    times: u64,
) -> Result<Vec<Duration>, Error> {
    let timed = |_| {
        let start = Instant::now();
        once(function, stream, config, arguments)?;
        Ok(start.elapsed())
    };
    (0..times).map(timed).collect()
}

/// Returns the median of the times, or zero if there are none.
fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    let upper = times.get(times.len() / 2).copied().unwrap_or_default();
    let lower = times.get(times.len().saturating_sub(1) / 2).copied().unwrap_or_default();
    (lower + upper) / 2
}

/// Launches the kernel once and waits for it.
#[allow(unsafe_code)]
fn once(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    arguments: &Arguments<'_>,
) -> Result<(), Error> {
    // SAFETY: every buffer is declared as written, is used on this stream only, and is read back after the stream was
    // waited for. The program cannot check that the user's kernel stays inside the buffers. The CPU device checks each
    // access. On a GPU, an access outside a buffer faults or changes another of these buffers: the process runs only
    // this kernel and has no other data on the device.
    unsafe { function.launch(stream, config, arguments) }?;
    stream.synchronize()
}

/// Prints every kernel with its parameters.
fn print_kernels(module: &Module) -> Result<(), Failure> {
    let kernels = module.entries().iter().map(|entry| kernel(&entry.name, &entry.params));
    stdout::print(&kernels.collect::<String>())
}

/// Prints every kernel of a PTX text that the device cannot load. Prints nothing if the text cannot be parsed.
fn print_kernels_of(ptx: &str) -> Result<(), Failure> {
    let found = entries(ptx).unwrap_or_default();
    let kernels = found.iter().map(|found| kernel(&found.name, &found.params));
    stdout::print(&kernels.collect::<String>())
}

/// Formats a kernel: a line for the name, and one for each parameter.
fn kernel(name: &str, params: &[ParamInfo]) -> String {
    let mut text = format!("{name}\n");
    for (index, param) in params.iter().enumerate() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "    {index} {} {} bytes {}", param.ty, param.size, param.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_no_times() {
        let micros = |times: &[u64]| times.iter().copied().map(Duration::from_micros).collect();
        assert_eq!(median(micros(&[9, 1, 5])), Duration::from_micros(5));
        assert_eq!(median(micros(&[4, 100, 1, 2])), Duration::from_micros(3));
        assert_eq!(median(micros(&[7])), Duration::from_micros(7));
        assert_eq!(median(Vec::new()), Duration::ZERO);
    }
}
