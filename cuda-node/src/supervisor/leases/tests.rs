//! Leases of a node in this process.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use cuda_core::{
    Error, Result,
    protocol::{Backend, DeviceInfo, NoticeSink, Provider, Status},
};
use cuda_cpu::CpuProvider;
use cuda_lease::LeaseBuilder;
use tempfile::TempDir;

use crate::supervisor::{DeviceOptions, Node, NodeOptions};

/// The longest wait for a state. A test that waits longer has found a bug.
const LONG: Duration = Duration::from_secs(60);

/// A node with an audit log.
struct Place {
    node: Node,
    folder: TempDir,
}

impl Place {
    fn new(device: DeviceOptions) -> Self {
        let folder = TempDir::new().unwrap();
        let mut options = NodeOptions::loopback(vec![device]);
        options.audit = Some(folder.path().join("audit"));
        Self { node: Node::start(options).unwrap(), folder }
    }

    fn request(&self) -> LeaseBuilder {
        LeaseBuilder::new(self.node.address().to_string()).min_vram(1 << 20)
    }

    fn audit(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("audit")).unwrap()
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LONG, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A CPU device that cannot be opened while a flag is set.
struct Breakable(CpuProvider, Arc<AtomicBool>);

// SAFETY: passes everything on, and opens no backend of its own.
unsafe impl Provider for Breakable {
    fn scheme(&self) -> &'static str {
        self.0.scheme()
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.0.devices()
    }

    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        if self.1.load(Ordering::Relaxed) {
            return Err(Error::NoDriver { detail: "it was removed".into() });
        }
        self.0.open(ordinal, notices)
    }
}

#[test]
fn worker_that_cannot_start_has_not_died() {
    let is_broken = Arc::new(AtomicBool::new(false));
    let provider = Breakable(CpuProvider::default(), is_broken.clone());
    let place = Place::new(DeviceOptions::in_process(provider));
    is_broken.store(true, Ordering::Relaxed);
    let error = place.request().acquire_blocking().unwrap_err();
    assert_eq!(error.status(), Some(Status::Internal), "{error}");
    assert!(error.to_string().contains("it was removed"), "{error}");
    wait_until("the lease has ended", || place.audit().contains("\"ended\""));
    let audit = place.audit();
    assert!(audit.contains("its worker did not start: "), "{audit}");
    assert!(!audit.contains("died"), "{audit}");
    is_broken.store(false, Ordering::Relaxed);
    drop(place.request().acquire_blocking().unwrap());
}
