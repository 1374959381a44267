//! Launchers allocate no more than `launch`.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use cuda_async::{
    Error, LaunchConfig,
    kernel::{Reads, Returned},
    launch, open_blocking,
    prelude::*,
};

use crate::lazy::Vectors;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: every call goes to `System`; the count is a thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.set(COUNT.get() + 1);
        // SAFETY: the layout has a size that is not 0.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` was allocated by `System` with this layout, and nothing uses it any more.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Returns the fewest allocations of this thread in 50 calls. In some calls, vectors of the library grow.
fn fewest(mut call: impl FnMut()) -> u64 {
    let count = |call: &mut dyn FnMut()| {
        let before = COUNT.get();
        call();
        COUNT.get() - before
    };
    (0..50).map(|_| count(&mut call)).min().unwrap_or(u64::MAX)
}

#[test]
fn launchers_allocate_no_more_than_launch() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let (stream, vectors) = (device.new_stream()?, Vectors::load(&device)?);
    let x = h2d(vec![1.0f32; 4]).sync_on(&stream)?;
    let mut y = zeros::<f32>(4).sync_on(&stream)?;
    assert_eq!(fewest(|| drop(vectors.saxpy(&x, &mut y, 1.0))), 0);
    assert_eq!(fewest(|| drop(vectors.saxpy(zeros(4), &mut y, 1.0))), 0);

    let config = LaunchConfig::for_num_elems(4);
    let saxpy = device.load_ptx_blocking(Vectors::PTX)?.function("saxpy")?;
    let direct = fewest(|| {
        let args = (Reads::<f32, _>::new(&x), Returned(&mut y), 1.0f32, 4u32);
        // SAFETY: both have four elements.
        let launched = unsafe { launch(&saxpy, config, args).async_on(&stream) };
        assert!(launched.is_ok());
    });
    let declared = fewest(|| {
        // SAFETY: the output is dropped, and the buffers are used through the library alone.
        assert!(unsafe { vectors.saxpy(&x, &mut y, 1.0).async_on(&stream) }.is_ok());
    });
    assert_eq!(declared, direct);
    Ok(())
}
