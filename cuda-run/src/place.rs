//! Checks the arguments against the kernel's parameters, reads their files and copies them to the device.

use std::{fs::File, io::Read, path::Path};

use command_line::{ArrayType, Failure, npy, parameter};
use cuda_async::{DeviceBuffer, DeviceOp, Stream, h2d, uninitialized, zeros};
use cuda_core::{Access, ArgumentKind, Arguments, EntryInfo, ParamInfo};

use crate::arg::{Arg, Value};

/// The size of a device address in bytes.
const ADDRESS: usize = 8;

/// Compares the number, sizes and kinds of the arguments with the parameters. The length of a `bytes=` file is compared
/// when the file is read.
pub(crate) fn check(kernel: &EntryInfo, args: &[Arg]) -> Result<(), Failure> {
    let (takes, given) = (kernel.params.len(), args.len());
    if takes != given {
        let params: Vec<_> = kernel.params.iter().map(|param| param.ty.to_string()).collect();
        return Err(Failure::bad_input(format_args!(
            "kernel `{}` takes {takes} arguments ({}), the command line has {given}",
            kernel.name,
            params.join(", "),
        )));
    }
    for (index, (param, arg)) in kernel.params.iter().zip(args).enumerate() {
        let size = match &arg.value {
            Value::Scalar(bytes) => bytes.len(),
            Value::In(_) | Value::Out(..) | Value::Uninit(..) | Value::InOut(..) => ADDRESS,
            Value::Bytes(_) => continue,
        };
        let kind = if arg.is_float() { ArgumentKind::Float } else { ArgumentKind::Integer };
        parameter::has_size(param, size)
            .and_then(|()| parameter::has_kind(param, kind))
            .map_err(|wrong| wrong.at(format_args!("argument {index} `{}`", arg.text)))?;
    }
    Ok(())
}

/// An argument whose file has been read.
enum Ready {
    Bytes(Vec<u8>),
    Upload(ArrayType, Vec<u8>),
    /// An input that is compared with its file after the run.
    CheckedInput(Vec<u8>),
    Zeros(ArrayType),
    Uninit(ArrayType),
}

/// An argument that is ready for the launch.
pub(crate) enum Placed {
    /// A value in the launch parameters.
    Bytes(Vec<u8>),
    /// An array on the device.
    Array(ArrayType, DeviceBuffer<u8>),
    /// An input on the device, and its contents, which the kernel must not change.
    Input(DeviceBuffer<u8>, Vec<u8>),
}

/// Reads every file and then uploads the arrays, so a bad file fails before any upload. If `check_inputs` is set, keeps
/// the contents of the inputs, to detect changes by the kernel.
pub(crate) fn place(
    stream: &Stream,
    kernel: &EntryInfo,
    args: &[Arg],
    check_inputs: bool,
) -> Result<Vec<Placed>, Failure> {
    let read = |(param, arg): (_, &Arg)| match (ready(param, arg)?, &arg.value) {
        (Ready::Upload(_, bytes), Value::In(_)) if check_inputs => Ok(Ready::CheckedInput(bytes)),
        (ready, _) => Ok(ready),
    };
    let ready: Vec<_> = kernel.params.iter().zip(args).map(read).collect::<Result<_, Failure>>()?;
    ready.into_iter().map(|argument| argument.place(stream)).collect()
}

/// Builds the arguments of a launch. Every buffer is declared as written, because the kernel's accesses are unknown.
pub(crate) fn arguments<'a>(kernel: &EntryInfo, placed: &'a [Placed]) -> Arguments<'a> {
    let mut arguments = Arguments::new();
    for (param, placed) in kernel.params.iter().zip(placed) {
        match placed {
            Placed::Bytes(bytes) => arguments.raw(bytes, param.align as usize),
            Placed::Array(_, buffer) | Placed::Input(buffer, _) => {
                arguments.buffer(buffer, Access::Write)
            }
        };
    }
    arguments
}

fn ready(param: &ParamInfo, arg: &Arg) -> Result<Ready, Failure> {
    match &arg.value {
        Value::Scalar(bytes) => Ok(Ready::Bytes(bytes.clone())),
        Value::Out(array, _) => Ok(Ready::Zeros(array.clone())),
        Value::Uninit(array, _) => Ok(Ready::Uninit(array.clone())),
        Value::In(path) | Value::InOut(path, _) => {
            let read = open(path).and_then(npy::read);
            let (array, bytes) = read.map_err(|failure| failure.at(path.display()))?;
            Ok(Ready::Upload(array, bytes))
        }
        Value::Bytes(path) => {
            let read = open(path).and_then(|file| read_struct(param, file));
            read.map(Ready::Bytes).map_err(|failure| failure.at(path.display()))
        }
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(Failure::bad_input("is a directory, expected a file"));
    }
    Ok(file)
}

fn read_struct(param: &ParamInfo, file: File) -> Result<Vec<u8>, Failure> {
    let size = match file.metadata()? {
        metadata if metadata.is_file() => metadata.len(),
        _ => u64::from(param.size),
    };
    parameter::has_size(param, usize::try_from(size).unwrap_or(usize::MAX))?;
    let mut bytes = Vec::new();
    // Reading one byte more shows whether the file is too long.
    file.take(u64::from(param.size) + 1).read_to_end(&mut bytes)?;
    parameter::has_size(param, bytes.len())?;
    Ok(bytes)
}

impl Ready {
    fn place(self, stream: &Stream) -> Result<Placed, Failure> {
        Ok(match self {
            Ready::Bytes(bytes) => Placed::Bytes(bytes),
            Ready::Upload(array, bytes) => Placed::Array(array, h2d(bytes).sync_on(stream)?),
            Ready::CheckedInput(bytes) => Placed::Input(h2d(bytes.clone()).sync_on(stream)?, bytes),
            Ready::Zeros(array) => {
                let buffer = zeros::<u8>(array.bytes()).sync_on(stream)?;
                Placed::Array(array, buffer)
            }
            Ready::Uninit(array) => {
                let buffer = uninitialized::<u8>(array.bytes()).sync_on(stream)?;
                Placed::Array(array, buffer)
            }
        })
    }
}
