//! Copies of 64 MiB between host and device.

use std::error::Error;

use benches::{Effort, Way, done, medians};
use cuda_async::{Device, memory::upload_into, prelude::*, to_host_into, to_pinned};
use cudarc::driver::CudaContext;

use crate::print;

const BYTES: usize = 64 << 20;
const EFFORT: Effort = Effort { rounds: 5, in_a_row: 5 };

/// Measures pinned memory beside raw copies of pinned memory, and `Vec`s beside raw copies of pageable memory.
pub fn run(device: &Device) -> Result<(), Box<dyn Error>> {
    let context = CudaContext::new(0)?;
    let theirs = context.new_stream()?;
    let mut memory = theirs.alloc_zeros::<u8>(BYTES)?;
    let stream = device.new_stream()?;
    let mut pageable = vec![1u8; BYTES];
    // SAFETY: written before it is read. The flags ask for pinned memory without write combining.
    let mut pinned = unsafe { context.alloc_pinned_with_flags::<u8>(BYTES, 0) }?;
    pinned.as_mut_slice()?.fill(1);
    // The library's pool of pinned memory has a block of this size from now on.
    drop(device.pinned::<u8>(BYTES)?);

    let mut buffer = Some(zeros::<u8>(BYTES).sync_on(&stream)?);
    let uploads = medians(
        &mut [
            Way::new("", || {
                done(theirs.memcpy_htod(&pinned, &mut memory));
                done(theirs.synchronize());
            }),
            Way::new("", || {
                let from = done(device.pinned_uninitialized::<u8>(BYTES));
                buffer = buffer.take().map(|to| done(upload_into(to, from).sync_on(&stream)));
            }),
        ],
        EFFORT,
    );
    print("upload of 64 MiB", &["raw, pinned", "`PinnedBuffer`"], &uploads);
    let uploads = medians(
        &mut [
            Way::new("", || {
                done(theirs.memcpy_htod(&pageable, &mut memory));
                done(theirs.synchronize());
            }),
            Way::new("", || {
                let to = buffer.take();
                buffer = to.map(|to| done(upload_into(to, &pageable[..]).sync_on(&stream)));
            }),
        ],
        EFFORT,
    );
    print("upload of 64 MiB", &["raw, pageable", "`Vec`"], &uploads);

    let source = zeros::<u8>(BYTES).sync_on(&stream)?;
    let downloads = medians(
        &mut [
            Way::new("", || {
                done(theirs.memcpy_dtoh(&memory, &mut pinned));
                done(theirs.synchronize());
            }),
            Way::new("", || drop(done(to_pinned(&source).sync_on(&stream)))),
        ],
        EFFORT,
    );
    print("download of 64 MiB", &["raw, pinned", "`to_pinned`"], &downloads);
    let mut reused = Vec::new();
    let downloads = medians(
        &mut [
            Way::new("", || {
                done(theirs.memcpy_dtoh(&memory, &mut pageable));
                done(theirs.synchronize());
            }),
            Way::new("", || {
                let memory = std::mem::take(&mut reused);
                reused = done(to_host_into(&source, memory).sync_on(&stream));
            }),
        ],
        EFFORT,
    );
    print(
        "download of 64 MiB into the same memory",
        &["raw, pageable", "`to_host_into`"],
        &downloads,
    );
    let downloads = medians(
        &mut [
            Way::new("", || {
                let mut new = vec![0u8; BYTES];
                done(theirs.memcpy_dtoh(&memory, &mut new));
                done(theirs.synchronize());
            }),
            Way::new("", || drop(done(to_host(&source).sync_on(&stream)))),
        ],
        EFFORT,
    );
    print("download of 64 MiB into new memory", &["raw, pageable", "`to_host`"], &downloads);
    Ok(())
}
