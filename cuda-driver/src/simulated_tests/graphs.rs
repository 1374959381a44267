//! Graphs on a simulated GPU: executables and resources live until their launches are complete.

use cuda_core::{
    Device, DeviceBuffer, Stream,
    internals::{LaunchResources, Recording, Retain, reclaim_all},
};

use super::*;

/// Records a fill with the value `gate`, which runs once that gate is open, and prepares the recording.
fn recorded(device: &Device, gate: u32) -> Recording {
    let stream = Recording::start(device, None).unwrap();
    let mut memory = DeviceBuffer::<u32>::uninitialized(&stream, 1).unwrap();
    memory.fill(&stream, gate).unwrap();
    let recording = Recording::end(&stream).unwrap();
    recording.prepare().wait().unwrap();
    recording
}

/// Waits until no executable has this value.
fn wait_until_destroyed(gate: u32) {
    wait_until(|| driver::executables_with(gate) == 0);
}

/// Makes the device destroy the dropped graphs whose launches are complete.
fn reclaim(device: &Device) {
    let idle = driver::gate();
    drop(recorded(device, idle));
    reclaim_all(device);
    // Graphs are destroyed in the order of their drops, so those before this one are destroyed too.
    wait_until_destroyed(idle);
}

#[test]
fn executable_is_destroyed_after_the_launches_of_a_dropped_graph() {
    let device = Device::open(&Simulated, 0).unwrap();
    let streams = [(); 2].map(|()| device.new_stream().unwrap());
    let (gate, other) = (driver::gate(), driver::gate());
    let [one, two] = [gate, other].map(|gate| recorded(&device, gate));
    streams.iter().for_each(|stream| _ = one.replay(stream).unwrap());
    two.replay(&streams[1]).unwrap();
    two.replay(&streams[0]).unwrap();
    drop((one, two));
    reclaim(&device);
    assert_eq!([gate, other].map(driver::executables_with), [1, 1]);
    driver::open(other);
    reclaim(&device);
    assert_eq!([gate, other].map(driver::executables_with), [1, 1]);
    // No thread waits for the streams. The reports that were requested after the drop release the executables.
    driver::open(gate);
    wait_until_destroyed(gate);
    wait_until_destroyed(other);
}

struct Resource;
impl Retain for Resource {}

/// A launch that ends when the gate is opened.
fn launch(stream: &Stream, gate: u32) -> Ticket {
    let mut memory = DeviceBuffer::<u32>::uninitialized(stream, 1).unwrap();
    memory.fill(stream, gate).unwrap()
}

/// The launches are not ordered after each other, so each stream needs its own entry.
#[test]
fn every_stream_retains_the_resources_of_its_last_launch() {
    let device = Device::open(&Simulated, 0).unwrap();
    let [blocked, free] = [(); 2].map(|()| device.new_stream().unwrap());
    let (gate, resource) = (driver::gate(), Arc::new(Resource));
    let open = driver::gate();
    driver::open(open);
    let mut resources = LaunchResources::new(&device, resource.clone());
    for (stream, gate) in [(&free, open), (&blocked, gate), (&free, open)] {
        resources.launched(launch(stream, gate));
    }
    free.synchronize().unwrap();
    drop(resources);
    reclaim_all(&device);
    assert_eq!(Arc::strong_count(&resource), 2);
    driver::open(gate);
    wait_until(|| Arc::strong_count(&resource) == 1);
}

/// The next launches have other resources. Those of the launch before are released by the wait for a later one.
#[test]
fn superseded_resources_are_retained_until_their_launches_are_complete() {
    let device = Device::open(&Simulated, 0).unwrap();
    let stream = device.new_stream().unwrap();
    let (gate, resource) = (driver::gate(), Arc::new(Resource));
    let mut resources = LaunchResources::new(&device, resource.clone());
    resources.launched(launch(&stream, gate));
    drop(resources.superseded());
    assert_eq!(Arc::strong_count(&resource), 2);
    let later = launch(&stream, gate);
    driver::open(gate);
    stream.synchronize_to(later.number).unwrap();
    assert_eq!(Arc::strong_count(&resource), 1);
}
