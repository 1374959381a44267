//! A node whose machine has no memory for the request of a tenant.

use cuda_core::protocol::Status;
use cuda_lease::{Job, NodeClient, authority::ClientTls};
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::harness::Node;

const IOTA: &str = include_str!("../../../kernels/iota.ptx");

/// The bytes of a large request.
const LARGE: usize = 64 << 20;

/// A job whose kernel does nothing.
fn job() -> Job {
    Job::new("square", IOTA).grid(1).block(1).arg(&0_u32)
}

/// Lets a node use `additional` bytes more addresses than it does.
fn limit_addresses(node: &Node, additional: u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", node.pid())).unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).unwrap();
    let size: u64 = size.trim().strip_suffix(" kB").unwrap().parse().unwrap();
    let limit = Some((size << 10) + additional);
    let limit = Rlimit { current: limit, maximum: limit };
    prlimit(Pid::from_raw(node.pid() as i32), Resource::As, limit).unwrap();
}

#[test]
fn node_survives_a_request_that_it_has_no_memory_for() {
    let node = Node::start(&["--spares", "0"]);
    let client = NodeClient::connect(&node.address, ClientTls::loopback()).unwrap();
    let lease = client.allocate(&node.lease().min_vram(512 << 20)).unwrap();
    let submit = |job| client.submit(lease.id, lease.token.clone(), job).launch_blocking();
    let small = || submit(job().input(&[1_u8; 64]).max_output(64)).unwrap();
    small();
    limit_addresses(&node, 24 << 20);
    for large in [job().input(&vec![1_u8; LARGE]), job().max_output(LARGE as u64)] {
        let error = submit(large).map(drop).unwrap_err();
        assert_eq!(error.status(), Some(Status::CapacityExceeded), "{error}");
        assert!(error.to_string().contains("no host memory for"), "{error}");
        small();
    }
}
