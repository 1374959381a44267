//! Text that kernels print, as the client gets it. (A GPU's driver writes it to standard output.)

use std::{
    sync::{Arc, Mutex, mpsc::channel},
    time::Duration,
};

use cuda_async::{
    Device, Error, LaunchConfig, cuda_cpu::CpuProvider, launch, memory::GrowableBuffer, prelude::*,
};

use crate::{devices::own_lease, link::LinkProvider, polling::own_devices, wakes::in_time};

const PTX: &str = include_str!("../../../kernels/print.ptx");

/// Collects the output of a device.
fn collect(device: &Device) -> Arc<Mutex<Vec<String>>> {
    let printed = Arc::<Mutex<Vec<String>>>::default();
    let into = printed.clone();
    device.set_output(move |text| into.lock().unwrap().push(text.to_owned()));
    printed
}

fn text_arrives_before_the_launch_is_complete(device: &Device) {
    let printed = collect(device);
    let function = device.load_ptx_blocking(PTX).unwrap().function("print_values").unwrap();
    let stream = device.new_stream().unwrap();
    let x = h2d([0.5f32, 1.5, 2.5]).sync_on(&stream).unwrap();
    // SAFETY: reads three elements of x.
    unsafe { launch(&function, LaunchConfig::new(1, 4), (&x, 3u32)) }.sync_on(&stream).unwrap();
    let mut lines = printed.lock().unwrap().clone();
    lines.sort();
    assert_eq!(lines, ["x[0] = 0.500\n", "x[1] = 1.500\n", "x[2] = 2.500\n"]);
}

#[test]
fn text_of_the_cpu_device_arrives_before_the_launch_is_complete() {
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    text_arrives_before_the_launch_is_complete(&device);
}

#[test]
fn text_arrives_over_a_link_before_the_launch_is_complete() {
    text_arrives_before_the_launch_is_complete(
        &LinkProvider::new(Duration::from_millis(1)).open_device(),
    );
}

/// A panic of the user's function ends neither the kernel nor the device.
#[test]
fn panic_of_the_output_function_is_contained() {
    let device = Device::open(&CpuProvider::default(), 0).unwrap();
    device.set_output(|_| panic!("on purpose"));
    let function = device.load_ptx_blocking(PTX).unwrap().function("print_hello").unwrap();
    let stream = device.new_stream().unwrap();
    for _ in 0..2 {
        // SAFETY: uses no memory.
        unsafe { launch(&function, LaunchConfig::new(1, 1), ()) }.sync_on(&stream).unwrap();
    }
}

/// The kernel goes on when the function has returned, so a wait for the device would never end.
#[test]
fn output_function_that_waits_for_its_device_gets_an_error() {
    in_time(|| {
        let [cpu, link] = own_devices();
        for device in [cpu, link, own_lease(CpuProvider::default())] {
            let function = device.load_ptx_blocking(PTX).unwrap().function("print_hello").unwrap();
            let stream = device.new_stream().unwrap();
            let (send, receive) = channel();
            let (weak, on) = (device.downgrade(), Mutex::new(stream.clone()));
            device.set_output(move |_| {
                let (device, stream) = (weak.upgrade().unwrap(), on.lock().unwrap());
                let part = || h2d([1u8]).then(to_host);
                let mut waits = vec![
                    stream.synchronize(),
                    device.synchronize(),
                    device.reset(),
                    part().sync_on(&stream).map(drop),
                    zip!(part(), part()).sync_on(&stream).map(drop),
                    device.load_ptx_blocking(PTX).map(drop),
                ];
                if let Ok(mut list) = GrowableBuffer::<u8>::new(&device, 8) {
                    waits.push(list.grow(8));
                }
                send.send(waits).unwrap();
            });
            // SAFETY: uses no memory.
            unsafe { launch(&function, LaunchConfig::new(1, 1), ()) }.sync_on(&stream).unwrap();
            for waited in receive.recv().unwrap() {
                let error = waited.unwrap_err();
                assert!(matches!(error, Error::Misuse(_)), "{error}");
                assert!(error.to_string().contains("output function"), "{error}");
            }
            // The function may submit, and may wait for another device.
            let other = Device::open(&CpuProvider::default(), 0).unwrap().new_stream().unwrap();
            let other = Mutex::new(other);
            let (send, receive) = channel();
            device.set_output(move |_| {
                let waited = h2d([3u8]).then(to_host).sync_on(&other.lock().unwrap());
                send.send(waited).unwrap();
            });
            // SAFETY: uses no memory.
            unsafe { launch(&function, LaunchConfig::new(1, 1), ()) }.sync_on(&stream).unwrap();
            assert_eq!(receive.recv().unwrap().unwrap(), [3]);
        }
    });
}
