//! Many leases, one after the other and at the same time: nothing is left behind.

use cuda_core::protocol::Status;

use crate::harness::{Node, check, children, wait_until};

/// The number of leases. `LEASE_CYCLES` replaces it.
const CYCLES: u32 = 300;

/// The threads that acquire leases.
const THREADS: u32 = 4;

fn descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() << 12
}

#[test]
fn cycles_of_leases_leave_nothing_behind() {
    let cycles = std::env::var("LEASE_CYCLES").map_or(CYCLES, |count| count.parse().unwrap());
    let node = Node::start(&["--spares", "1", "--max-leases", "6"]);
    // Every path once, so that what it keeps is counted before.
    (0..20).for_each(|_| check(&node.lease().acquire_blocking().unwrap()));
    wait_until("only the spare worker is left", || node.workers().len() == 1);
    let before = (descriptors(node.pid()), descriptors(std::process::id()), resident(node.pid()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let node = &node;
            scope.spawn(move || {
                for cycle in 0..cycles / THREADS {
                    let lease = match node.lease().acquire_blocking() {
                        Ok(lease) => lease,
                        // Workers of earlier leases are still ending. They count for the node and for their tenant.
                        Err(refused) => {
                            let status = refused.status();
                            let full = [Status::CapacityExceeded, Status::QuotaExceeded].map(Some);
                            assert!(full.contains(&status), "{refused}");
                            continue;
                        }
                    };
                    match (cycle + thread) % 4 {
                        0 => check(&lease),
                        1 => lease.renew_blocking(5).unwrap(),
                        2 => return_unused(lease),
                        _ => lease.free(),
                    }
                }
            });
        }
    });
    wait_until("only the spare worker is left", || node.workers().len() == 1);
    let open = || descriptors(node.pid());
    wait_until("the node has closed its descriptors", || open() <= before.0 + 2);
    let own = || descriptors(std::process::id());
    // Other tests of this process have descriptors too, but not one for each lease.
    let more = cycles as usize / 2;
    wait_until("this process has closed its descriptors", || own() <= before.1 + more);
    let grown = resident(node.pid()).saturating_sub(before.2);
    println!("{cycles} leases: the node's memory has grown by {} KiB", grown >> 10);
    assert!(grown < 64 << 20, "the node's memory has grown by {grown} bytes");
    assert!(children(std::process::id()).len() <= 64);
}

fn return_unused(lease: cuda_lease::Lease) {
    drop(lease);
}
