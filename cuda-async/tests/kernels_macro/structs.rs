//! Structs that derive `KernelParam`, on the CPU device.

use std::mem::MaybeUninit;

use cuda_async::{
    Error, LaunchConfig,
    cuda_core::{ArgumentKind, Arguments},
    kernel::{ByValue, KernelParam},
    launch, open_blocking,
    prelude::*,
};

/// A struct with padding after its first and its last field.
#[derive(Debug, Clone, Copy, KernelParam)]
#[repr(C)]
struct Step {
    axis: u8,
    width: f64,
    count: Count,
}

/// A struct inside a struct.
#[derive(Debug, Clone, Copy, KernelParam)]
#[repr(C)]
struct Count(u8, u16);

#[derive(Debug, Clone, Copy, KernelParam)]
#[repr(C, packed)]
struct Packed {
    axis: u8,
    width: f64,
}

cuda_async::kernels! {
    #[ptx = "tests/kernels_macro/padded.ptx"]
    unsafe struct Padded; // SAFETY: `bytes_of_struct` writes three words.

    #[config(grid = 1, block = 1)]
    safe fn bytes_of_struct(p: Step, out: &mut [u64]) where out.len() >= 3;
}

/// A value that passes 2^32 bytes too many. The launcher finds the right size of its type.
#[derive(Clone, Copy)]
struct Long([u64; 3]);

impl KernelParam for Long {
    fn with_bytes<R>(&self, pass: impl FnOnce(&[u8]) -> R) -> R {
        pass(&vec![0; (1 << 32) + size_of_val(&self.0)])
    }
}

cuda_async::kernels! {
    #[ptx = "tests/kernels_macro/padded.ptx"]
    unsafe struct Lying; // SAFETY: `bytes_of_struct` writes three words.

    #[config(grid = 1, block = 1)]
    safe fn bytes_of_struct(p: Long, out: &mut [u64]) where out.len() >= 3;
}

/// A step whose padding has other bytes than zero.
fn step() -> Step {
    let mut memory = MaybeUninit::<Step>::uninit();
    // SAFETY: the memory is that of one struct, and every byte pattern is valid for its fields.
    let mut step = unsafe {
        memory.as_mut_ptr().cast::<u8>().write_bytes(0xFF, size_of::<Step>());
        memory.assume_init()
    };
    step.axis = 1;
    step.width = 0.5;
    step.count = Count(2, 3);
    step
}

fn expected() -> [u64; 3] {
    [1, 0.5f64.to_bits(), 2 | 3 << 16]
}

#[test]
fn padding_arrives_as_zeros() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let (stream, padded) = (device.new_stream()?, Padded::load(&device)?);
    let op = padded.bytes_of_struct(step(), zeros(3)).then(to_host);
    assert_eq!(op.sync_on(&stream)?, expected());
    Ok(())
}

#[test]
fn launch_takes_the_struct_itself() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let (stream, padded) = (device.new_stream()?, Padded::load(&device)?);
    let config = LaunchConfig::new(1, 1);
    let out = zeros::<u64>(3).sync_on(&stream)?;
    // SAFETY: `out` has three words.
    let out = unsafe { launch(&padded.bytes_of_struct, config, (step(), out)) }.sync_on(&stream)?;
    // SAFETY: `out` has three words.
    let op = unsafe { launch(&padded.bytes_of_struct, config, (ByValue(step()), out)) };
    assert_eq!(op.then(to_host).sync_on(&stream)?, expected());
    Ok(())
}

#[test]
fn packed_structs_have_the_bytes_of_their_fields() {
    let packed = Packed { axis: 7, width: 1.5 };
    let bytes = packed.with_bytes(<[u8]>::to_vec);
    assert_eq!(bytes[0], 7);
    assert_eq!(bytes[1..], 1.5f64.to_ne_bytes());
}

#[test]
fn value_of_another_length_than_its_type_is_refused() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let (stream, lying) = (device.new_stream()?, Lying::load(&device)?);
    let error = lying.bytes_of_struct(Long([1; 3]), zeros(3)).sync_on(&stream).unwrap_err();
    assert!(matches!(error, Error::Arguments { .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "wrong arguments for kernel `bytes_of_struct`: argument 0 has 4294967320 bytes behind 0 bytes of other arguments, and the limit of all is 65536; pass large data in a buffer"
    );
    Ok(())
}

#[test]
fn arguments_have_a_limit() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let (stream, padded) = (device.new_stream()?, Padded::load(&device)?);
    let mut arguments = Arguments::new();
    (0..10_000).for_each(|at: u64| _ = arguments.number(&at, ArgumentKind::Integer));
    let config = LaunchConfig::new(1, 1);
    // SAFETY: the launch is refused.
    let error = unsafe { padded.bytes_of_struct.launch(&stream, config, &arguments) }.unwrap_err();
    assert!(error.to_string().contains("argument 8192 has 8 bytes behind 65536 bytes"), "{error}");
    Ok(())
}
