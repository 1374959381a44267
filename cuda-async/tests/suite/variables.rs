//! Variables of modules as buffers: their contents, and their order with the launches that use them.

use std::{
    sync::Arc,
    task::{Context, Wake, Waker},
};

use cuda_async::{
    Device, DeviceBuffer, Element, Error, LaunchConfig, Module, Stream, launch,
    memory::{fill, upload_into},
    prelude::*,
};
use cuda_core::{Access, ArgumentKind, Arguments, internals::Recording};

use crate::{modules, on_every_device, polling::own_devices};

const ONE: LaunchConfig = LaunchConfig::new(1, 1);

/// Turns of a kernel that runs long enough for other streams to overtake it.
const LONG: u32 = 200_000;

fn load(device: &Device) -> Module {
    modules::load_ptx(device, include_str!("variables.ptx")).unwrap()
}

fn count(module: &Module, stream: &Stream) {
    // SAFETY: the kernel uses the counter alone.
    unsafe { module.function("count").unwrap().launch(stream, ONE, &Arguments::new()) }.unwrap();
}

fn set(module: &Module, stream: &Stream, value: u32, turns: u32) {
    set_by("set", module, stream, value, turns);
}

fn set_by(kernel: &str, module: &Module, stream: &Stream, value: u32, turns: u32) {
    let mut arguments = Arguments::new();
    arguments.number(&value, ArgumentKind::Integer).number(&turns, ArgumentKind::Integer);
    // SAFETY: the kernel uses the counter alone.
    unsafe { module.function(kernel).unwrap().launch(stream, ONE, &arguments) }.unwrap();
}

/// Enqueues a kernel that reads the counter, the first tap and the second hidden word.
fn look(module: &Module, stream: &Stream, turns: u32) -> DeviceBuffer<u32> {
    let to = DeviceBuffer::uninitialized(stream, 3).unwrap();
    let mut arguments = Arguments::new();
    arguments.buffer(&to, Access::Write).number(&turns, ArgumentKind::Integer);
    // SAFETY: the kernel writes three words, and otherwise uses the variables.
    unsafe { module.function("look").unwrap().launch(stream, ONE, &arguments) }.unwrap();
    drop(arguments);
    to
}

/// Reads a buffer on a stream that nothing else uses.
fn words<T: Element>(buffer: DeviceBuffer<T>) -> Vec<T> {
    let stream = buffer.device().lend_stream(0).unwrap();
    to_host(buffer).sync_on(&stream).unwrap()
}

fn variables_are_uploaded_read_back_and_used_by_kernels(device: &Device) {
    let module = load(device);
    let names: Vec<_> = module.variables().iter().map(|variable| variable.name.as_str()).collect();
    assert_eq!(names, ["taps", "counter", "hidden", "odd"]);
    let stream = device.lend_stream(0).unwrap();
    let mut taps = module.variable::<u32>("taps").unwrap();
    upload_into(&mut taps, vec![1, 2, 3]).sync_on(&stream).unwrap();
    let counter = Arc::new(module.variable::<u32>("counter").unwrap());
    assert_eq!(to_host(counter.clone()).sync_on(&stream).unwrap(), [5]);
    let mut hidden = module.variable::<u32>("hidden").unwrap();
    fill(hidden.slice_mut(1..).unwrap(), 9).sync_on(&stream).unwrap();
    count(&module, &stream);
    assert_eq!(words(look(&module, &stream, 1)), [6, 1, 9]);
    assert_eq!(to_host(counter).sync_on(&stream).unwrap(), [6]);
    assert_eq!(words(taps), [1, 2, 3]);
    assert_eq!(words(hidden), [7, 9]);
}

fn launches_are_ordered_with_other_uses_on_all_streams(device: &Device) {
    let module = load(device);
    let streams: Vec<_> = (0..4).map(|_| device.lend_stream(0).unwrap()).collect();
    let mut counter = module.variable::<u32>("counter").unwrap();
    for turn in 0..20 {
        set(&module, &streams[0], turn, LONG);
        let first = look(&module, &streams[1], LONG);
        counter.fill(&streams[2], 1000 + turn).unwrap();
        let second = look(&module, &streams[3], 1);
        assert_eq!(words(first)[0], turn);
        assert_eq!(words(second)[0], 1000 + turn);
    }
}

fn first_handle_comes_after_earlier_launches(device: &Device) {
    let module = load(device);
    set(&module, &device.lend_stream(0).unwrap(), 77, LONG);
    let counter = module.variable::<u32>("counter").unwrap();
    assert_eq!(to_host(counter).sync_on(&device.lend_stream(0).unwrap()).unwrap(), [77]);
}

fn uses_through_a_dropped_handle_stay_ordered(device: &Device) {
    let module = load(device);
    let (first, second) = (device.lend_stream(0).unwrap(), device.lend_stream(0).unwrap());
    for value in 0..20 {
        set(&module, &first, 500, LONG);
        module.variable::<u32>("counter").unwrap().fill(&first, value).unwrap();
        assert_eq!(words(look(&module, &second, 1))[0], value);
    }
}

fn two_handles_are_the_same_memory(device: &Device) {
    let module = load(device);
    let mut one = module.variable::<u32>("counter").unwrap();
    let other = module.variable::<u32>("counter").unwrap();
    one.fill(&device.lend_stream(0).unwrap(), 3).unwrap();
    assert_eq!(words(other), [3]);
    let as_floats = module.variable::<f32>("counter").unwrap();
    assert_eq!(words(as_floats), [f32::from_bits(3)]);
}

fn variable_keeps_its_module_loaded(device: &Device) {
    let module = load(device);
    let mut counter = module.variable::<u32>("counter").unwrap();
    set(&module, &device.lend_stream(0).unwrap(), 31, LONG);
    drop(module);
    assert_eq!(words(copied(&counter)), [31]);
    counter.fill(&device.lend_stream(0).unwrap(), 4).unwrap();
    assert_eq!(words(counter), [4]);
}

fn copied(from: &DeviceBuffer<u32>) -> DeviceBuffer<u32> {
    let stream = from.device().lend_stream(0).unwrap();
    let mut copy = DeviceBuffer::uninitialized(&stream, from.len()).unwrap();
    copy.copy_from(&stream, from.as_slice()).unwrap();
    copy
}

fn cached_module_knows_the_variables_in_use(device: &Device) {
    let module = load(device);
    let mut counter = module.variable::<u32>("counter").unwrap();
    let cached = module.cached();
    drop(module);
    let again = cached.get().unwrap();
    let (first, second) = (device.lend_stream(0).unwrap(), device.lend_stream(0).unwrap());
    set(&again, &first, 500, LONG);
    counter.fill(&second, 8).unwrap();
    assert_eq!(words(look(&again, &first, 1))[0], 8);
}

fn variable_is_an_argument_like_any_buffer(device: &Device) {
    let module = load(device);
    let add = module.function("add").unwrap();
    let mut counter = module.variable::<u32>("counter").unwrap();
    for _ in 0..10 {
        counter.fill(&device.lend_stream(0).unwrap(), 5).unwrap();
        let stream = device.lend_stream(0).unwrap();
        let one = h2d(vec![1u32]).sync_on(&stream).unwrap();
        // SAFETY: the kernel adds the second word to the first one, which is the counter.
        let added = unsafe { launch(&add, ONE, (counter, one)) };
        counter = added.sync_on(&stream).unwrap().0;
        assert_eq!(words(copied(&counter)), [6]);
    }
}

fn replays_use_the_variable_as_it_is_then(device: &Device) {
    let module = load(device);
    let counter = module.variable::<u32>("counter").unwrap();
    let recorded = record_look(&module);
    replays_see_the_counter(recorded, counter);
}

fn replays_of_earlier_recordings_are_ordered(device: &Device) {
    let module = load(device);
    let recorded = record_look(&module);
    let counter = module.variable::<u32>("counter").unwrap();
    replays_see_the_counter(recorded, counter);
}

fn record_look(module: &Module) -> (Recording, DeviceBuffer<u32>) {
    let recorded = Recording::start(module.device(), None).unwrap();
    let out = look(module, &recorded, LONG);
    (Recording::end(&recorded).unwrap(), out)
}

fn replays_see_the_counter(
    (recording, out): (Recording, DeviceBuffer<u32>),
    mut counter: DeviceBuffer<u32>,
) {
    let device = out.device();
    let other = device.lend_stream(0).unwrap();
    for value in 0..10 {
        counter.fill(&other, value).unwrap();
        recording.replay(&device.lend_stream(0).unwrap()).unwrap();
        counter.fill(&other, 100).unwrap();
        assert_eq!(words(copied(&out))[0], value);
    }
}

fn uses_through_short_lived_modules_are_ordered(device: &Device) {
    let module = load(device);
    let cached = module.cached();
    drop(module);
    let (first, second) = (device.lend_stream(0).unwrap(), device.lend_stream(0).unwrap());
    for value in 0..10 {
        {
            let module = cached.get().unwrap();
            let mut counter = module.variable::<u32>("counter").unwrap();
            set(&module, &first, 500, LONG);
            counter.fill(&first, value).unwrap();
        }
        let module = cached.get().unwrap();
        assert_eq!(words(look(&module, &second, 1))[0], value);
    }
}

fn kernels_that_call_functions_are_ordered(device: &Device) {
    let module = load(device);
    let (first, second) = (device.lend_stream(0).unwrap(), device.lend_stream(0).unwrap());
    let mut counter = module.variable::<u32>("counter").unwrap();
    for value in 0..5 {
        set_by("set_through_function", &module, &first, 77, LONG);
        counter.fill(&second, value).unwrap();
        assert_eq!(words(look(&module, &first, 1))[0], value);
    }
}

struct Opens(Module);

impl Wake for Opens {
    fn wake(self: Arc<Self>) {
        self.0.variable::<u32>("counter").unwrap();
    }
}

/// The join of a first handle frees memory, which wakes a task that waits for memory.
fn waker_requests_a_variable(device: &Device) {
    let module = load(device);
    let stream = device.lend_stream(0).unwrap();
    let buffer = DeviceBuffer::<u32>::zeroed(&stream, 100).unwrap();
    stream.synchronize().unwrap();
    let mut waiter = device.memory_waiter();
    let waker = Waker::from(Arc::new(Opens(module.clone())));
    waiter.register(&Context::from_waker(&waker));
    drop(buffer);
    let hidden = module.variable::<u32>("hidden").unwrap();
    assert_eq!(words(hidden), [7, 8]);
}

/// A kernel faults after it has stored a value. The handles are dropped before the contents are read.
#[test]
fn lost_contents_of_a_variable_are_an_error_until_overwritten() {
    for device in own_devices() {
        let module = load(&device);
        let cached = module.cached();
        let counter = module.variable::<u32>("counter").unwrap();
        let stream = device.lend_stream(0).unwrap();
        // SAFETY: the kernel faults, and these devices report the fault.
        unsafe { module.function("fault").unwrap().launch(&stream, ONE, &Arguments::new()) }
            .unwrap();
        _ = stream.synchronize();
        drop((module, counter));
        device.reset().unwrap();
        let stream = device.lend_stream(0).unwrap();
        let module = cached.get().unwrap();
        let counter = Arc::new(module.variable::<u32>("counter").unwrap());
        let error = to_host(counter.clone()).sync_on(&stream).unwrap_err();
        assert!(matches!(error, Error::ContentsLost { .. }), "{error}");
        let mut counter = Arc::into_inner(counter).unwrap();
        counter.fill(&stream, 3).unwrap();
        assert_eq!(words(look(&module, &stream, 1))[0], 3);
    }
}

/// Each thread has a stream of its own. No launch may overlap another one.
fn many_threads_share_a_variable(device: &Device) {
    let module = load(device);
    let counter = module.variable::<u32>("counter").unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let stream = device.lend_stream(0).unwrap();
                for _ in 0..25 {
                    count(&module, &stream);
                    module.variable::<u32>("counter").unwrap();
                }
                to_host(&counter).sync_on(&stream).unwrap();
            });
        }
    });
    assert_eq!(words(counter), [205]);
}

fn wrong_names_and_sizes_are_errors(device: &Device) {
    let module = load(device);
    let error = module.variable::<u32>("taps2").unwrap_err();
    assert!(matches!(&error, Error::NoSuchVariable { name, .. } if name == "taps2"));
    assert!(error.to_string().contains("it has `taps`, `counter`, `hidden`, `odd`"), "{error}");
    let error = module.variable::<u32>("odd").unwrap_err().to_string();
    let expected = "variable `odd` as elements of type u32: the number of bytes is 6 and must be a multiple of 4";
    assert!(error.contains(expected), "{error}");
    let error = module.variable::<()>("odd").unwrap_err().to_string();
    assert!(error.contains("a multiple of 0"), "{error}");
    assert_eq!(module.variable::<u16>("odd").unwrap().len(), 3);
}

on_every_device! {
    variables_are_uploaded_read_back_and_used_by_kernels
    launches_are_ordered_with_other_uses_on_all_streams
    first_handle_comes_after_earlier_launches
    uses_through_a_dropped_handle_stay_ordered
    two_handles_are_the_same_memory
    variable_keeps_its_module_loaded
    cached_module_knows_the_variables_in_use
    variable_is_an_argument_like_any_buffer
    replays_use_the_variable_as_it_is_then
    replays_of_earlier_recordings_are_ordered
    uses_through_short_lived_modules_are_ordered
    kernels_that_call_functions_are_ordered
    waker_requests_a_variable
    many_threads_share_a_variable
    wrong_names_and_sizes_are_errors
}
