//! Disjoint parts of one buffer are used at the same time, and the order of overlapping uses holds.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicU32, Ordering},
    mpsc::channel,
};

use cuda_async::{
    Device, DeviceBuffer, Error, Function, LaunchConfig, Stream,
    cuda_cpu::CpuProvider,
    join_all,
    kernel::{KernelArg, Returned},
    launch,
    memory::{Slice, fill, upload_into},
    prelude::*,
};
use cuda_core::protocol::Work;

use crate::{
    modules::{hold_off_module_loads, load_ptx},
    on_every_device,
    polling::concurrently,
    wrapper::WrapperProvider,
};

on_every_device! {
    shared_slices_take_every_form_of_range
    borrowed_halves_run_at_the_same_time
    owned_halves_run_at_the_same_time
    chunks_of_one_operation_run_at_the_same_time
    two_uses_of_one_half_run_in_order
    shared_slices_of_one_buffer_run_at_the_same_time
    ranges_of_every_form_name_their_elements
    refused_split_adds_no_boundaries
}

/// Looks of a kernel that the other one is expected to end: seconds on every device.
const LONG: u32 = 20_000_000;

/// Looks of a kernel that ends by itself.
const SHORT: u32 = 20_000;

/// A kernel that writes whether another one runs at the same time.
struct Meet {
    kernel: Function,
    /// The same kernel with one more buffer, which it is given to read.
    reading: Function,
    flags: AtomicU32,
}

/// A buffer has at most 4096 pieces. A split beyond that changes nothing.
fn refused_split_adds_no_boundaries(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = zeros::<u32>(5000).sync_on(&stream).unwrap();
    let error = x.chunks_mut(1).map(drop).unwrap_err();
    assert!(
        error.to_string().contains("the number of pieces is 4097 and must be at most 4096"),
        "{error}"
    );
    let mut chunks = x.chunks_mut(2).unwrap();
    fill(chunks.pop().unwrap(), 3).sync_on(&stream).unwrap();
    drop(chunks);
    assert_eq!(to_host(x).sync_on(&stream).unwrap()[4998..], [3, 3]);
}

fn shared_slices_take_every_form_of_range(device: &Device) {
    let stream = device.new_stream().unwrap();
    let all = Arc::new(h2d(vec![0u32, 1, 2, 3, 4]).sync_on(&stream).unwrap());
    let read = |slice| to_host(slice).sync_on(&stream).unwrap();
    assert_eq!(read(all.share(..2).unwrap()), [0, 1]);
    assert_eq!(read(all.share(3..).unwrap()), [3, 4]);
    assert_eq!(read(all.share(..).unwrap()), [0, 1, 2, 3, 4]);
    let part = all.share(1..=3).unwrap();
    assert_eq!(read(part.slice(1..).unwrap()), [2, 3]);
    assert!(read(part.slice(..0).unwrap()).is_empty());
    for wrong in [part.slice(..4), part.slice(4..4), all.share(2..6)] {
        assert!(matches!(wrong, Err(Error::OutOfRange { .. })), "{wrong:?}");
    }
    assert!(matches!(part.slice(usize::MAX..), Err(Error::OutOfRange { .. })));
}

impl Meet {
    fn load(device: &Device) -> Self {
        const PTX: &str = include_str!("slices.ptx");
        let reading = PTX.replace(".param .u64 out,", ".param .u64 from, .param .u64 out,");
        let load = |ptx: &str| load_ptx(device, ptx).unwrap().function("meet").unwrap();
        let (kernel, reading) = (load(PTX), load(&reading));
        hold_off_module_loads(device);
        Self { kernel, reading, flags: AtomicU32::new(0) }
    }

    /// Two flags that no other pair uses.
    fn pair(&self) -> (u32, u32) {
        let first = self.flags.fetch_add(2, Ordering::Relaxed);
        (first, first + 1)
    }

    fn run<T: KernelArg>(
        &self,
        out: T,
        (own, other): (u32, u32),
        limit: u32,
    ) -> impl DeviceOp<Output = T> + use<T> {
        // SAFETY: writes the first element of `out`. The flags are the module's own.
        unsafe { launch(&self.kernel, LaunchConfig::new(1, 1), (Returned(out), own, other, limit)) }
    }
}

fn flip((a, b): (u32, u32)) -> (u32, u32) {
    (b, a)
}

fn streams(device: &Device) -> [Stream; 2] {
    [device.new_stream().unwrap(), device.new_stream().unwrap()]
}

/// Two words that another stream writes just before.
fn written(device: &Device) -> DeviceBuffer<u32> {
    let x = zeros::<u32>(2).sync_on(&device.new_stream().unwrap()).unwrap();
    // SAFETY: only the library uses it.
    unsafe { fill(x, 9).async_on(&device.new_stream().unwrap()) }.unwrap()
}

fn read(x: DeviceBuffer<u32>, stream: &Stream) -> Vec<u32> {
    to_host(x).sync_on(stream).unwrap()
}

fn borrowed_halves_run_at_the_same_time(device: &Device) {
    let meet = Meet::load(device);
    concurrently(device, || {
        let ([one, two], mut x) = (streams(device), written(device));
        let (first, second) = x.split_at_mut(1).unwrap();
        let pair = meet.pair();
        // SAFETY: only the library uses the halves.
        unsafe { meet.run(first, pair, LONG).async_on(&one) }.unwrap();
        // SAFETY: only the library uses the halves.
        unsafe { meet.run(second, flip(pair), LONG).async_on(&two) }.unwrap();
        assert_eq!(read(x, &one), [1, 1]);
    });
}

fn owned_halves_run_at_the_same_time(device: &Device) {
    let meet = Meet::load(device);
    concurrently(device, || {
        let ([one, two], x) = (streams(device), written(device));
        let (first, second) = x.split_at(1).unwrap();
        let pair = meet.pair();
        // SAFETY: only the library uses the halves.
        let first = unsafe { meet.run(first, pair, LONG).async_on(&one) }.unwrap();
        // SAFETY: only the library uses the halves.
        let second = unsafe { meet.run(second, flip(pair), LONG).async_on(&two) }.unwrap();
        assert_eq!([read(first, &two), read(second, &one)], [[1], [1]]);
    });
}

fn chunks_of_one_operation_run_at_the_same_time(device: &Device) {
    let meet = Meet::load(device);
    concurrently(device, || {
        let ([one, _], mut x) = (streams(device), written(device));
        let pair = meet.pair();
        let chunks = x.chunks_mut(1).unwrap().into_iter().zip([pair, flip(pair)]);
        let ops = chunks.map(|(chunk, pair)| meet.run(chunk, pair, LONG));
        join_all(ops).sync_on(&one).map(drop).unwrap();
        assert_eq!(read(x, &one), [1, 1]);
    });
}

/// The same measurement tells when kernels do not run at the same time.
fn two_uses_of_one_half_run_in_order(device: &Device) {
    let meet = Meet::load(device);
    let ([one, two], mut x) = (streams(device), written(device));
    let (mut first, second) = x.split_at_mut(1).unwrap();
    let pair = meet.pair();
    // SAFETY: only the library uses the halves.
    unsafe { meet.run(first.reborrow(), pair, SHORT).async_on(&one) }.unwrap();
    let before = to_host(first.as_slice()).sync_on(&one).unwrap();
    // SAFETY: only the library uses the halves.
    unsafe { meet.run(first, flip(pair), SHORT).async_on(&two) }.unwrap();
    upload_into(second, [5]).sync_on(&one).map(drop).unwrap();
    assert_eq!((before, read(x, &one)), (vec![0], vec![1, 5]));
}

fn shared_slices_of_one_buffer_run_at_the_same_time(device: &Device) {
    let meet = Meet::load(device);
    concurrently(device, || {
        let ([one, two], x) = (streams(device), Arc::new(written(device)));
        let parts = [x.share(0..2).unwrap(), x.share(1..2).unwrap()];
        let outs = [written(device), written(device)];
        let pair = meet.pair();
        type Read = (cuda_core::SharedSlice<u32>, DeviceBuffer<u32>);
        let read_by = |(stream, (part, out)): (_, Read), (own, other): (u32, u32)| {
            let args = (part, out, own, other, LONG);
            // SAFETY: writes the first element of `out`. The flags are the module's own.
            let op = unsafe { launch(&meet.reading, LaunchConfig::new(1, 1), args) };
            // SAFETY: only the library uses the buffers.
            unsafe { op.async_on(stream) }.unwrap().1
        };
        let mut kernels = [&one, &two].into_iter().zip(parts.into_iter().zip(outs));
        let outs = [pair, flip(pair)].map(|pair| read_by(kernels.next().unwrap(), pair));
        let [a, b] = outs;
        assert_eq!([read(a, &one)[0], read(b, &two)[0]], [1, 1]);
    });
}

/// An empty part shares its place in the allocation with its neighbor, which another thread may use at the same time.
#[test]
fn empty_part_does_not_displace_uses_of_its_neighbor() {
    let provider = WrapperProvider::new(CpuProvider::default());
    let device = provider.open_device();
    let meet = Meet::load(&device);
    let (one, two, writer) =
        (device.new_stream().unwrap(), device.new_stream().unwrap(), device.new_stream().unwrap());
    for mid in [0, 2] {
        let (x, pair) = (zeros::<u32>(2).sync_on(&writer).unwrap(), meet.pair());
        let (first, second) = x.split_at(mid).unwrap();
        let (empty, all) = if mid == 0 { (first, second) } else { (second, first) };
        // In flight while the others submit.
        // SAFETY: only the library uses it.
        let all = unsafe { meet.run(all, pair, LONG).async_on(&writer) }.unwrap();
        let write = writer.record().ticket();
        let (inside, wait_inside) = channel();
        let (leave, wait_leave) = channel::<()>();
        let (inside, wait_leave) = (Mutex::new(inside), Mutex::new(wait_leave));
        let (held, orders) = (AtomicBool::new(false), Arc::new(Mutex::new(Vec::new())));
        let (of_empty, seen) = (one.id(), orders.clone());
        provider.watched.on_submit(move |submission| {
            if submission.ticket.stream == of_empty
                && matches!(submission.work, Work::Launch(_))
                && !held.swap(true, Ordering::SeqCst)
            {
                inside.lock().unwrap().send(()).unwrap();
                let _ = wait_leave.lock().unwrap().recv();
            }
            seen.lock().unwrap().push((submission.ticket.stream, submission.after.to_vec()));
        });
        std::thread::scope(|scope| {
            let submits = scope.spawn(|| {
                let fill = load_ptx(&device, include_str!("random_programs/kernels.ptx")).unwrap();
                let fill = fill.function("fill").unwrap();
                // SAFETY: writes no element.
                let op = unsafe { launch(&fill, LaunchConfig::new(1, 1), (empty, 1u32, 0u32)) };
                // SAFETY: only the library uses it.
                drop(unsafe { op.async_on(&one) }.unwrap());
            });
            wait_inside.recv().unwrap();
            // SAFETY: only the library uses it.
            drop(unsafe { fill(all, 3).async_on(&two) }.unwrap());
            leave.send(()).unwrap();
            submits.join().unwrap();
        });
        let orders = orders.lock().unwrap().clone();
        let after = orders.iter().find(|(stream, _)| *stream == two.id()).map(|(_, after)| after);
        // The kernel may be known to be complete only if the test is very slow.
        let known = writer.query().unwrap();
        assert!(known || after.is_some_and(|after| after.contains(&write)), "{orders:?}");
        // Lets the kernel end.
        let other = zeros::<u32>(1).sync_on(&device.new_stream().unwrap()).unwrap();
        drop(meet.run(other, flip(pair), SHORT).sync_on(&device.new_stream().unwrap()).unwrap());
    }
}

fn ranges_of_every_form_name_their_elements(device: &Device) {
    let stream = device.new_stream().unwrap();
    let mut x = h2d([0u32, 1, 2, 3, 4, 5]).sync_on(&stream).unwrap();
    let read = |part: Slice<'_, u32>| to_host(part).sync_on(&stream).unwrap();
    assert_eq!(read(x.slice(..2).unwrap()), [0, 1]);
    assert_eq!(read(x.slice(4..).unwrap()), [4, 5]);
    assert_eq!(read(x.slice(1..=2).unwrap()), [1, 2]);
    assert_eq!(read(x.slice(..).unwrap()), [0, 1, 2, 3, 4, 5]);
    let outside = |error: Error| matches!(error, Error::OutOfRange { .. });
    assert!(outside(x.slice(..7).map(drop).unwrap_err()));
    assert!(outside(x.slice(..=usize::MAX).map(drop).unwrap_err()));
    assert!(outside(x.slice(7..).map(drop).unwrap_err()));
    let mut middle = x.slice_mut(1..5).unwrap();
    fill(middle.slice_mut(1..3).unwrap(), 9).sync_on(&stream).unwrap();
    assert_eq!(read(middle.slice(..).unwrap()), [1, 9, 9, 4]);
    assert!(outside(middle.slice_mut(..5).map(drop).unwrap_err()));
}
