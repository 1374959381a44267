//! Buffers used on several streams: read after write, write after read, write after write, free after use.

use cuda_async::{Device, DeviceBuffer, PinnedBuffer, Stream, join_all, prelude::*};

use crate::{
    kernels::{Kernels, spun},
    on_every_device,
};

on_every_device! {
    cross_stream_read_waits_for_writer
    cross_stream_write_waits_for_readers
    memory_is_freed_after_its_last_use
    many_readers_and_one_writer_take_turns
    forks_run_while_a_branch_is_slow
}

/// Long enough to make a missing dependency visible.
const SLOW: u32 = 30_000;

fn submit<O: DeviceOp>(op: O, stream: &Stream) -> <O as DeviceOp>::Output {
    // SAFETY: outputs are used only by operations of this library.
    unsafe { op.async_on(stream) }.unwrap()
}

fn cross_stream_read_waits_for_writer(device: &Device) {
    let kernels = Kernels::load(device);
    let (a, b) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    for _ in 0..3 {
        let slow = submit(zeros::<u32>(64).then(|out| kernels.spin(out, SLOW)), &a);
        assert_eq!(to_host(slow).sync_on(&b).unwrap(), spun(64, SLOW));
    }
}

fn cross_stream_write_waits_for_readers(device: &Device) {
    let kernels = Kernels::load(device);
    let (a, b) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    for _ in 0..3 {
        let mut x = h2d(vec![1u32; 1000]).sync_on(&a).unwrap();
        // The stream is busy, so the download behind it reads late.
        drop(submit(zeros::<u32>(64).then(|out| kernels.spin(out, SLOW)), &a));
        let place = device.pinned_uninitialized(1000).unwrap();
        let download = x.download(&a, 0..1000, place).unwrap();
        let twos = PinnedBuffer::copied_from(device, &[2u32; 1000]).unwrap();
        x.upload(&b, 0, twos).unwrap();
        assert_eq!(to_host(&x).sync_on(&b).unwrap(), [2; 1000]);
        assert_eq!(download.wait().unwrap()[..], [1; 1000]);
    }
}

fn memory_is_freed_after_its_last_use(device: &Device) {
    let kernels = Kernels::load(device);
    let (a, b) = (device.new_stream().unwrap(), device.new_stream().unwrap());
    for _ in 0..20 {
        let slow = submit(zeros::<u32>(64).then(|out| kernels.spin(out, SLOW / 10)), &a);
        drop(slow);
        // This allocation may get the same memory. The slow kernel must not write to it.
        let fresh = h2d(vec![7u32; 64]).sync_on(&b).unwrap();
        a.synchronize().unwrap();
        assert_eq!(to_host(fresh).sync_on(&b).unwrap(), [7; 64]);
    }
}

fn many_readers_and_one_writer_take_turns(device: &Device) {
    let kernels = Kernels::load(device);
    let streams: Vec<_> =
        (0..cuda_core::MAX_READERS + 3).map(|_| device.new_stream().unwrap()).collect();
    let mut x = h2d(vec![1.0f32; 4096]).sync_on(&streams[0]).unwrap();
    for (round, writer) in (0..6u16).zip(streams.iter().rev()) {
        let before = f32::from(round) + 1.0;
        let sums: Vec<DeviceBuffer<f32>> =
            streams.iter().map(|stream| submit(kernels.add(&x, &x), stream)).collect();
        x = submit(kernels.add_scalar(x, 1.0), writer);
        for sum in sums {
            assert_eq!(to_host(sum).sync_on(writer).unwrap(), [2.0 * before; 4096]);
        }
    }
}

fn forks_run_while_a_branch_is_slow(device: &Device) {
    let kernels = Kernels::load(device);
    let stream = device.new_stream().unwrap();
    let slow = |iterations| {
        let kernels = kernels.clone();
        zeros::<u32>(32).then(move |out| kernels.spin(out, iterations)).then(to_host)
    };
    let results = join_all([SLOW, 1, SLOW / 2, 2].map(slow)).sync_on(&stream).unwrap();
    assert_eq!(results, [SLOW, 1, SLOW / 2, 2].map(|iterations| spun(32, iterations)));
}
