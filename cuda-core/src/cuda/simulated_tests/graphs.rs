//! Graphs of a device: an executable lives as long as its launches.

use super::*;
use crate::{
    Device, DeviceBuffer, DeviceInfo, Provider, Recording, Result, Stream, handle::Held,
    order::Retain,
};

/// Opens the simulated device of a [`Gpu`].
struct Simulated;

// SAFETY: `CudaBackend` keeps the rules of a backend, and `notices` goes to its completion thread alone.
unsafe impl Provider for Simulated {
    fn scheme(&self) -> &'static str {
        "simulated"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let primary = Primary::of(&driver::driver(), driver::own_device())?;
        Ok(Arc::new(CudaBackend::new(primary, notices, Completion::default())?))
    }
}

/// Records a fill, which runs when the gate of the value is opened. The recording is prepared.
fn recorded(device: &Device, gate: u32) -> Recording {
    let stream = device.start_recording().unwrap();
    let mut memory = DeviceBuffer::<u32>::uninitialised(&stream, 1).unwrap();
    memory.fill(&stream, gate).unwrap();
    let recording = stream.end_recording().unwrap();
    recording.prepare().wait().unwrap();
    recording
}

fn wait_until(reached: impl Fn() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < PATIENCE, "the state was not reached");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until no executable has this value.
fn destroyed(gate: u32) {
    wait_until(|| driver::executables_with(gate) == 0);
}

/// Makes the device destroy the dropped graphs whose launches are complete.
fn reclaim(device: &Device) {
    let idle = driver::gate();
    drop(recorded(device, idle));
    device.core().reclaim_all();
    // Graphs are destroyed in the order in which they were given up.
    destroyed(idle);
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
    // Nothing waits for the streams: the device reports the ends of the launches by itself.
    driver::open(gate);
    destroyed(gate);
    destroyed(other);
}

struct Resource;
impl Retain for Resource {}

/// A launch that ends when the gate is opened.
fn launch(stream: &Stream, gate: u32) -> Ticket {
    let mut memory = DeviceBuffer::<u32>::uninitialised(stream, 1).unwrap();
    memory.fill(stream, gate).unwrap()
}

/// Launches that are not ordered after each other.
#[test]
fn resources_of_launches_are_held_on_every_stream() {
    let device = Device::open(&Simulated, 0).unwrap();
    let [blocked, free] = [(); 2].map(|()| device.new_stream().unwrap());
    let (gate, resource) = (driver::gate(), Arc::new(Resource));
    let open = driver::gate();
    driver::open(open);
    let mut held = Held::new(&device, resource.clone());
    for (stream, gate) in [(&free, open), (&blocked, gate), (&free, open)] {
        held.count(launch(stream, gate));
    }
    free.synchronize().unwrap();
    drop(held);
    assert_eq!(Arc::strong_count(&resource), 2);
    driver::open(gate);
    wait_until(|| Arc::strong_count(&resource) == 1);
}

/// The next launches have other resources. Those of the launch before are released by the wait for a later one.
#[test]
fn superseded_resources_are_held_until_their_launches_are_complete() {
    let device = Device::open(&Simulated, 0).unwrap();
    let stream = device.new_stream().unwrap();
    let (gate, resource) = (driver::gate(), Arc::new(Resource));
    let mut held = Held::new(&device, resource.clone());
    held.count(launch(&stream, gate));
    drop(held.superseded());
    assert_eq!(Arc::strong_count(&resource), 2);
    let later = launch(&stream, gate);
    driver::open(gate);
    stream.synchronize_to(later.number).unwrap();
    assert_eq!(Arc::strong_count(&resource), 1);
}
