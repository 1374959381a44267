//! Foreign submissions: the context is bound inside, the thread's own is restored, and reports wait for their end.

use std::{borrow::Cow, ffi::c_void, ptr::null_mut, sync::Arc, time::Duration};

use cuda_core::{
    RawStream,
    protocol::{
        Control, Error, Graph, GraphId, GraphLaunch, GraphNode, Pattern, Request, Result, StreamId,
        Submission, Ticket, Work,
    },
};
use libloading::Library;

use crate::harness::{Gpu, gpu, start};

/// The context of this thread, as the driver tells it.
fn current() -> *mut c_void {
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    let mut context = null_mut();
    // SAFETY: the driver's library, loaded by the device that exists; the function has this type and writes one
    // pointer.
    unsafe {
        let library = Library::new(name).unwrap();
        let ask = library
            .get::<unsafe extern "system" fn(*mut *mut c_void) -> i32>(b"cuCtxGetCurrent\0")
            .unwrap();
        assert_eq!(ask(&mut context), 0);
    }
    context
}

fn foreign(
    gpu: &Gpu,
    stream: StreamId,
    submit: &mut dyn FnMut(RawStream) -> Result<()>,
) -> Result<Ticket> {
    let foreign = gpu.backend.foreign().unwrap();
    // SAFETY: enqueues nothing.
    gpu.number(stream, |ticket| unsafe { foreign.submit(ticket, &[], submit) })
}

#[test]
fn context_is_current_inside_and_restored_afterwards() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    gpu.run(stream, Work::Join).unwrap();
    let before = gpu.last(stream);
    assert!(current().is_null());
    let mut submit = |raw: RawStream| {
        assert!(!raw.stream.is_null() && raw.context == current());
        // A call inside a call finds the context current and leaves it so.
        gpu.block_until(before).unwrap();
        assert_eq!(raw.context, current());
        Ok(())
    };
    let ticket = foreign(&gpu, stream, &mut submit).unwrap();
    assert_eq!(ticket.number, 2);
    assert!(current().is_null());
    let refused = foreign(&gpu, stream, &mut |_| Err(Error::AlreadyEnded));
    assert_eq!(refused, Err(Error::AlreadyEnded));
    assert!(current().is_null());
    assert_eq!(gpu.run(stream, Work::Join).unwrap().number, 3);
    let raw = gpu.backend.foreign().unwrap().raw_stream(stream).unwrap();
    assert!(!raw.stream.is_null());
}

/// The report of earlier work comes also while foreign code runs and waits for it.
#[test]
fn want_during_a_foreign_call_is_reported() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let before = gpu.run(stream, Work::Join).unwrap();
    let mut submit = |_| {
        gpu.want(before).unwrap();
        gpu.progress_to(before);
        Ok(())
    };
    let ticket = foreign(&gpu, stream, &mut submit).unwrap();
    gpu.want(ticket).unwrap();
    gpu.progress_to(ticket);
}

type Begin = unsafe extern "system" fn(*mut c_void, i32) -> i32;
type End = unsafe extern "system" fn(*mut c_void, *mut *mut c_void) -> i32;

/// Captures a stream in a foreign call while `inside` runs. Returns the call's ticket. The capture has to end well.
fn captured(gpu: &Gpu, stream: StreamId, inside: impl Fn()) -> Ticket {
    let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
    // SAFETY: the driver's library, which is loaded already.
    let library = unsafe { Library::new(name) }.unwrap();
    // SAFETY: the functions have these types.
    let (begin, end) = unsafe {
        (
            *library.get::<Begin>(b"cuStreamBeginCapture_v2\0").unwrap(),
            *library.get::<End>(b"cuStreamEndCapture\0").unwrap(),
        )
    };
    let mut submit = |raw: RawStream| {
        // 2: `CU_STREAM_CAPTURE_MODE_RELAXED`.
        // SAFETY: a stream of the device, which is held.
        assert_eq!(unsafe { begin(raw.stream, 2) }, 0);
        inside();
        let mut graph = null_mut();
        // SAFETY: writes one handle, of a graph that this process keeps.
        assert_eq!(unsafe { end(raw.stream, &mut graph) }, 0);
        Ok(())
    };
    foreign(gpu, stream, &mut submit).unwrap()
}

#[test]
fn earlier_work_is_reported_during_a_capture_which_goes_on() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let before = gpu.run(stream, Work::Join).unwrap();
    let ticket = captured(&gpu, stream, || {
        gpu.want(before).unwrap();
        gpu.progress_to(before);
        assert_eq!(gpu.peek(stream), Ok(before.number));
        // Longer than the time after which the completion thread queries streams.
        gpu.no_notice_within(Duration::from_millis(120));
    });
    gpu.want(ticket).unwrap();
    gpu.progress_to(ticket);
}

#[test]
fn blocking_for_earlier_work_does_not_end_a_capture() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let before = gpu.run(stream, Work::Join).unwrap();
    captured(&gpu, stream, || gpu.block_until(before).unwrap());
}

#[test]
fn work_after_a_captured_stream_is_not_captured() {
    let Some(gpu) = gpu() else { return };
    let (stream, other) = (gpu.stream(), gpu.stream());
    let to = gpu.upload(other, &[0]);
    let before = gpu.run(stream, Work::Join).unwrap();
    let next = Ticket { number: gpu.last(other).number + 1, ..gpu.last(other) };
    captured(&gpu, stream, || {
        let work = Work::Fill { to: start(to), pattern: Pattern::Word(7), count: 1 };
        let fill = Submission { ticket: next, after: &[before], work: &work };
        // SAFETY: the memory belongs to this test, which uses it on one stream.
        unsafe { gpu.backend.submit(&fill, &[]) }.unwrap();
    });
    gpu.number(other, |_| Ok(())).unwrap();
    assert_eq!(gpu.download(other, to, 1), [7]);
}

#[test]
fn free_on_a_captured_stream_waits_for_the_end_of_the_call() {
    let Some(gpu) = gpu() else { return };
    let stream = gpu.stream();
    let (kept, freed) = (gpu.upload(stream, &[5]), gpu.alloc(stream, 1 << 20));
    let before = gpu.memory_in_use();
    captured(&gpu, stream, || {
        gpu.free(stream, freed);
        assert_eq!(gpu.memory_in_use(), before);
    });
    assert!(gpu.memory_in_use() < before);
    assert_eq!(gpu.download(stream, kept, 1), [5]);
}

type Allocate = unsafe extern "system" fn(*mut u64, usize) -> i32;
type Fill = unsafe extern "system" fn(u64, u32, usize, *mut c_void) -> i32;
type Read = unsafe extern "system" fn(*mut c_void, u64, usize) -> i32;

/// Foreign memory of one word, which foreign code fills.
struct ForeignMemory {
    address: u64,
    fill: Fill,
    read: Read,
}

impl ForeignMemory {
    fn new(gpu: &Gpu) -> Self {
        let name = if cfg!(windows) { "nvcuda.dll" } else { "libcuda.so.1" };
        // SAFETY: the driver's library, which is loaded already.
        let library = unsafe { Library::new(name) }.unwrap();
        // SAFETY: the functions have these types.
        let (allocate, fill, read) = unsafe {
            (
                *library.get::<Allocate>(b"cuMemAlloc_v2\0").unwrap(),
                *library.get::<Fill>(b"cuMemsetD32Async\0").unwrap(),
                *library.get::<Read>(b"cuMemcpyDtoH_v2\0").unwrap(),
            )
        };
        let mut address = 0;
        let stream = gpu.stream();
        let mut inside = |_: RawStream| {
            // SAFETY: the context is current; writes one address.
            assert_eq!(unsafe { allocate(&mut address, 4) }, 0);
            Ok(())
        };
        foreign(gpu, stream, &mut inside).unwrap();
        std::mem::forget(library);
        Self { address, fill, read }
    }

    /// Enqueues a fill.
    fn fill(&self, raw: RawStream, value: u32) -> Result<()> {
        // SAFETY: the memory has one word, and the stream is lent.
        assert_eq!(unsafe { (self.fill)(self.address, value, 1, raw.stream) }, 0);
        Ok(())
    }

    fn value(&self, gpu: &Gpu, stream: StreamId) -> u32 {
        gpu.sync(stream).unwrap();
        let mut value = 0_u32;
        let mut inside = |_: RawStream| {
            // SAFETY: the context is current; writes four bytes.
            assert_eq!(unsafe { (self.read)((&raw mut value).cast(), self.address, 4) }, 0);
            Ok(())
        };
        foreign(gpu, stream, &mut inside).unwrap();
        value
    }
}

#[test]
fn captured_foreign_work_runs_in_every_launch_of_a_graph() {
    let Some(gpu) = gpu() else { return };
    let (stream, memory) = (gpu.stream(), ForeignMemory::new(&gpu));
    let fill = |value| {
        let mut inside = |raw: RawStream| memory.fill(raw, value);
        foreign(&gpu, stream, &mut inside).unwrap();
    };
    fill(1);
    let mut submit = |raw: RawStream| memory.fill(raw, 7);
    // SAFETY: enqueues one fill.
    let captured = unsafe { gpu.backend.foreign().unwrap().capture(&mut submit) }.unwrap();
    assert_eq!(memory.value(&gpu, stream), 1);
    let node = GraphNode { work: Work::Foreign(captured), after: Vec::new(), name: None };
    let (id, graph) = (GraphId(900_001), Graph { nodes: vec![node], host: Vec::new() });
    gpu.control(Control::CreateGraph { id, graph: Arc::new(graph) }).unwrap();
    gpu.request(Request::GraphReady { graph: id }).unwrap();
    for _ in 0..3 {
        fill(1);
        let launch = GraphLaunch { graph: id, uses: Cow::Borrowed(&[]), changes: Vec::new() };
        gpu.run(stream, Work::Graph(launch)).unwrap();
        assert_eq!(memory.value(&gpu, stream), 7);
    }
    gpu.control(Control::DropGraph { id }).unwrap();
}

/// A capture that fails or panics leaves the device usable, and the next capture works.
#[test]
fn captures_that_fail_leave_the_device_usable() {
    let Some(gpu) = gpu() else { return };
    let (stream, memory) = (gpu.stream(), ForeignMemory::new(&gpu));
    let foreign_part = gpu.backend.foreign().unwrap();
    let mut refuses = |raw: RawStream| {
        memory.fill(raw, 3)?;
        Err(Error::AlreadyEnded)
    };
    // SAFETY: enqueues one fill.
    let refused = unsafe { foreign_part.capture(&mut refuses) };
    assert_eq!(refused.map(drop), Err(Error::AlreadyEnded));
    let panics = std::panic::AssertUnwindSafe(|| {
        let mut panics = |_: RawStream| panic!("inside a capture");
        // SAFETY: enqueues nothing.
        unsafe { foreign_part.capture(&mut panics) }.map(drop)
    });
    assert!(std::panic::catch_unwind(panics).is_err());
    let mut works = |raw: RawStream| memory.fill(raw, 4);
    // SAFETY: enqueues one fill.
    unsafe { foreign_part.capture(&mut works) }.unwrap();
    gpu.run(stream, Work::Join).unwrap();
    gpu.sync(stream).unwrap();
}
