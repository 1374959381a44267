//! `--device lease://HOST:PORT`. The other tests run on a leased device too.

use std::time::{Duration, Instant};

use cuda_cpu::CpuProvider;
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};

use crate::support::{Folder, lease};

/// The longest wait for a state. A test that waits longer has found a bug.
const LONG: Duration = Duration::from_secs(60);

/// The lines of a run that fails on the device.
fn fault(device: &'static str) -> Vec<String> {
    let line = "K/faults.ptx off_by_one --grid 1 --block 32 out=f32:16@y.npy u32=16";
    Folder::on(device).run(line).refused(3).0
}

#[test]
fn fault_is_reported_as_on_a_local_device() {
    assert_eq!(fault(lease()), fault("cpu"));
}

#[test]
fn unknown_instructions_are_reported_as_on_a_local_device() {
    let refused = |device| {
        let folder = Folder::on(device);
        let ptx =
            ".version 7.0\n.target sm_50\n.address_size 64\n.entry k() { nonsense.u32 %r1; ret; }";
        std::fs::write(folder.path("k.ptx"), ptx).unwrap();
        folder.run("k.ptx k --grid 1 --block 1").refused(2).0
    };
    assert_eq!(refused(lease()), refused("cpu"));
}

#[test]
fn mistakes_in_the_address_are_bad_input() {
    for (address, words) in [
        ("lease://gpu-node", "write `lease://HOST:PORT"),
        ("lease://127.0.0.1:1?vram=1GiB", "are min_vram"),
        ("lease://10.0.0.1:1", "ca.pem"),
    ] {
        Folder::on(address).run("K/vecadd.ptx --list").failed(2, words);
    }
    let check = "K/vecadd.ptx vecadd --check --grid 1 --block 1";
    Folder::on("lease://127.0.0.1:1").run(check).failed(2, "--check requires the CPU device");
}

#[test]
fn node_that_refuses_or_does_not_answer_is_unavailable() {
    let too_much: &str = format!("{}&min_vram=1000TiB", lease()).leak();
    Folder::on(too_much).run("K/vecadd.ptx --list").failed(4, "too large");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let silent: &str = format!("lease://{}", socket.local_addr().unwrap()).leak();
    Folder::on(silent).run("K/vecadd.ptx --list").failed(4, "no node answers at");
}

#[test]
fn lease_is_freed_before_the_program_ends() {
    let folder = tempfile::TempDir::new().unwrap();
    let audit = folder.path().join("audit");
    let device = DeviceOptions::in_process(CpuProvider::default());
    let mut options = NodeOptions::loopback(vec![device]);
    options.audit = Some(audit.clone());
    let node = Node::start(options).unwrap();
    let address: &str = format!("lease://{}", node.address()).leak();
    Folder::on(address).run("K/vecadd.ptx --list").done();
    let (started, log) = (Instant::now(), || std::fs::read_to_string(&audit).unwrap());
    while !log().contains("\"ended\"") {
        assert!(started.elapsed() < LONG, "the lease has not ended: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(log().contains("\"freed\""), "{}", log());
}
