//! Tenants that take much, fault, or look for what others left.

use std::{
    thread::{self, JoinHandle},
    time::Duration,
};

use cuda_async::{
    Device, DeviceBuffer, Error, LaunchConfig, Result, launch,
    memory::{fill as fill_with, uninitialized},
    prelude::*,
};
use cuda_lease::Lease;

const FAULTS: &str = include_str!("../../kernels/faults.ptx");

/// The pattern of a tenant that fills its memory.
const PATTERN: u32 = 0x5a17_c0de;

/// Counts the words of a pattern. Words lie a grid apart.
const COUNT: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .entry count_equal(.param .u64 words, .param .u64 length, .param .u32 pattern, .param .u64 counter)
{
    .reg .b64 %words, %length, %counter, %index, %step, %address, %found;
    .reg .b32 %pattern, %word, %a, %b, %c;
    .reg .pred %p;
    ld.param.u64 %words, [words];
    ld.param.u64 %length, [length];
    ld.param.u32 %pattern, [pattern];
    ld.param.u64 %counter, [counter];
    mov.u32 %a, %ctaid.x;
    mov.u32 %b, %ntid.x;
    mov.u32 %c, %tid.x;
    mul.wide.u32 %index, %a, %b;
    cvt.u64.u32 %step, %c;
    add.u64 %index, %index, %step;
    mov.u32 %a, %nctaid.x;
    mul.wide.u32 %step, %a, %b;
    mov.u64 %found, 0;
again:
    setp.ge.u64 %p, %index, %length;
    @%p bra done;
    shl.b64 %address, %index, 2;
    add.u64 %address, %address, %words;
    ld.global.u32 %word, [%address];
    setp.eq.u32 %p, %word, %pattern;
    @%p add.u64 %found, %found, 1;
    add.u64 %index, %index, %step;
    bra again;
done:
    atom.global.add.u64 %found, [%counter], %found;
    ret;
}";

/// A module whose variable is larger than a lease of 1 GiB.
pub const LARGE_VARIABLE: &str = "
.version 7.0
.target sm_70
.address_size 64
.visible .global .align 8 .b8 large[4294967296];
.visible .entry touch(.param .u32 index)
{
    .reg .b64 %address;
    mov.u64 %address, large;
    st.global.u8 [%address], 1;
    ret;
}";

/// Allocates memory and starts a kernel that never ends. The thread waits for it.
pub fn start_endless(device: &Device, bytes: u64) -> Result<JoinHandle<Result<()>>> {
    let run = device.load_ptx_blocking(FAULTS)?.function("run_forever")?;
    let stream = device.new_stream()?;
    let held = zeros::<u8>(bytes as usize - (1 << 20)).sync_on(&stream)?;
    let out = zeros::<u32>(32).sync_on(&stream)?;
    Ok(thread::spawn(move || {
        // SAFETY: uses no memory but `out`.
        let endless = unsafe { launch(&run, LaunchConfig::new(1, 1), (out,)) };
        let ended = endless.sync_on(&stream).map(drop);
        drop(held);
        ended
    }))
}

/// Allocates memory and runs a kernel that faults.
pub fn fault(device: &Device, bytes: u64) -> Result<()> {
    let store = device.load_ptx_blocking(FAULTS)?.function("null_store")?;
    let stream = device.new_stream()?;
    let _held = zeros::<u8>(bytes as usize - (1 << 20)).sync_on(&stream)?;
    // SAFETY: takes no argument. It writes to address 0, which the device refuses.
    unsafe { launch(&store, LaunchConfig::new(1, 1), ()) }.sync_on(&stream).map(drop)
}

/// Waits for the end of a lease. Returns its error.
pub fn end_of(lease: &Lease) -> Result<Error, &'static str> {
    for _ in 0..1000 {
        if let Err(error) = lease.device().new_stream() {
            return Ok(error);
        }
        thread::sleep(Duration::from_millis(5));
    }
    Err("the lease did not end within 5 s")
}

/// Fills memory with the pattern, and leaves it there.
pub fn fill(device: &Device, bytes: u64) -> Result<()> {
    let stream = device.new_stream()?;
    uninitialized((bytes / 4) as usize)
        .then(|buffer| fill_with(buffer, PATTERN))
        .sync_on(&stream)
        .map(drop)
}

/// Counts the words of the pattern in memory that was not written to, or was filled with the pattern.
pub fn count(device: &Device, bytes: u64, is_filled: bool) -> Result<u64> {
    let stream = device.new_stream()?;
    let count = device.load_ptx_blocking(COUNT)?.function("count_equal")?;
    let words = bytes / 4;
    let memory: DeviceBuffer<u32> = if is_filled {
        uninitialized(words as usize).then(|buffer| fill_with(buffer, PATTERN)).sync_on(&stream)?
    } else {
        uninitialized(words as usize).sync_on(&stream)?
    };
    let counter = zeros::<u64>(1).sync_on(&stream)?;
    let config = LaunchConfig::new(2048, 256);
    // SAFETY: reads `words` words of `memory`, and adds to `counter`.
    let launched = unsafe { launch(&count, config, (memory, words, PATTERN, counter)) };
    let (_, counter) = launched.sync_on(&stream)?;
    Ok(to_host(counter).sync_on(&stream)?[0])
}
