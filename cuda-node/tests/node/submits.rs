//! Stateless submits of several programs, and beside a session.

use std::{sync::Barrier, thread};

use cuda_async::prelude::*;
use cuda_core::{Result, protocol::Status};
use cuda_lease::{Job, NodeClient, Submitted, authority::ClientTls};

use crate::harness::{Kernels, LONG, Node, device};

const IOTA: &str = include_str!("../../../kernels/iota.ptx");

/// A job that squares `count` values, each of which is `value`.
fn square(value: f32, count: usize) -> Job {
    let job = Job::new("square", IOTA).grid(count.div_ceil(256) as u32).block(256);
    job.arg(&(count as u32)).input(&vec![value; count]).max_output(4 * count as u64)
}

fn check(submitted: Result<Submitted>, value: f32, count: usize) {
    assert_eq!(submitted.unwrap().output_as::<f32>().unwrap(), vec![value * value; count]);
}

#[test]
fn submits_of_two_programs_to_one_lease_get_their_own_outputs() {
    let node = Node::start(&[]);
    let connect = || NodeClient::connect(&node.address, ClientTls::loopback()).unwrap();
    let lease = connect().allocate(&node.lease()).unwrap();
    let begin = Barrier::new(2);
    thread::scope(|scope| {
        // Regions of several sizes, with outputs that travel inside and behind the reply.
        for (program, counts) in [[1, 1000, 200_000], [200_000, 1, 70_000]].iter().enumerate() {
            let (begin, lease) = (&begin, &lease);
            scope.spawn(move || {
                let client = connect();
                begin.wait();
                for (index, count) in counts.iter().cycle().take(24).enumerate() {
                    let value = (100 * program + index) as f32;
                    let submit =
                        client.submit(lease.id, lease.token.clone(), square(value, *count));
                    check(submit.launch_blocking(), value, *count);
                }
            });
        }
    });
}

/// On a GPU, the node ends a lease that uses more than its charge. The free of a region must have run before the device has the
/// next one.
#[test]
fn regions_of_several_sizes_stay_within_the_lease() {
    const REGIONS: [u64; 2] = [200 << 20, 190 << 20];
    // A GPU takes a second for all of them, in which the node looks at its memory several times.
    let rounds = if device() == "cpu" { 6 } else { 400 };
    let node = Node::start(&["--spares", "0"]);
    let lease = node.lease().min_vram(256 << 20).acquire_blocking().unwrap();
    for (round, bytes) in REGIONS.iter().cycle().take(rounds).enumerate() {
        let job = square(round as f32, 1000).region_bytes(*bytes);
        check(lease.submit_job(job).launch_blocking(), round as f32, 1000);
    }
    lease.renew_blocking(30).unwrap();
}

#[test]
fn submits_disturb_no_session_of_their_lease() {
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let (kernels, stream) = (Kernels::new(&lease).unwrap(), lease.new_stream().unwrap());
    let kept = h2d(vec![7u32; 1000]).sync_on(&stream).unwrap();
    thread::scope(|scope| {
        let submits = scope.spawn(|| {
            for round in 0..8u16 {
                check(
                    lease.submit_job(square(round.into(), 1000)).launch_blocking(),
                    round.into(),
                    1000,
                );
                // A fault, and a module that does not load. On a GPU a fault ends the session too.
                if device() == "cpu" {
                    let fault = lease.submit("iota", IOTA).block(4).arg(&4u32).launch_blocking();
                    assert_eq!(fault.unwrap_err().status(), Some(Status::LaunchFailed));
                }
                let refused = lease.submit("iota", "no PTX").launch_blocking();
                assert_eq!(refused.unwrap_err().status(), Some(Status::LoadFailed));
            }
        });
        while !submits.is_finished() {
            assert_eq!(kernels.double(&[1.0, 2.0]).unwrap(), [2.0, 4.0]);
        }
    });
    assert_eq!(to_host(kept).sync_on(&stream).unwrap(), vec![7; 1000]);
}

/// Submits send more code at once than the node takes: it waits, and ends neither a submit nor the lease.
#[test]
fn large_modules_of_many_submits_arrive() {
    let node = Node::start(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let jobs: Vec<_> =
        (0..14).map(|number| Job::from_cubin("kernel", vec![number; 64 << 20])).collect();
    let begin = Barrier::new(jobs.len());
    thread::scope(|scope| {
        for job in jobs {
            let (lease, begin) = (&lease, &begin);
            scope.spawn(move || {
                begin.wait();
                let error = lease.submit_job(job).launch_blocking().unwrap_err();
                // A module that had to give way to later ones is sent again by the program.
                let expected = [Some(Status::LoadFailed), Some(Status::NotFound)];
                assert!(expected.contains(&error.status()), "{error}");
            });
        }
    });
    crate::harness::check(&lease);
}

/// Its token is that of the time when it is sent, also if it is sent again after a lost connection.
#[test]
fn submit_that_was_created_before_renewals_runs() {
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let submit = lease.submit_job(square(3.0, 1000));
    for _ in 0..2 {
        lease.renew_blocking(60).unwrap();
    }
    check(submit.launch_blocking(), 3.0, 1000);
}

/// A submit gets memory whose frees are complete, also if the client requests no progress.
#[test]
fn submit_gets_memory_of_several_frees() {
    let node = Node::start(&[]);
    let lease = std::sync::Arc::new(node.lease().acquire_blocking().unwrap());
    let stream = lease.new_stream().unwrap();
    let spin = lease.device().load_ptx_blocking(include_str!("../../../kernels/spin.ptx")).unwrap();
    let spin = spin.function("spin").unwrap();
    const BYTES: usize = 24 << 20;
    let buffers = [(); 2].map(|()| zeros::<u32>(BYTES / 4).sync_on(&stream).unwrap());
    for buffer in buffers {
        let config = cuda_async::LaunchConfig::new(1, 1);
        let rounds = 10_000_000u32;
        // SAFETY: writes to the first element.
        let launch = unsafe { cuda_async::launch(&spin, config, (buffer, 1u32, rounds, 1u32)) };
        // SAFETY: the output is dropped, so no foreign code uses it.
        drop(unsafe { launch.async_on(&stream) }.unwrap());
    }
    // The client sends frees with its next submission. This one requests no progress.
    // SAFETY: the output is dropped, so no foreign code uses it.
    drop(unsafe { zeros::<u8>(1).async_on(&stream) }.unwrap());
    // A lease handles its commands in order: an answer to a later one, of another stream, shows that the frees have
    // arrived.
    zeros::<u8>(1).then(to_host).sync_on(&lease.new_stream().unwrap()).unwrap();
    let job = Job::new("square", IOTA).arg(&1u32).input(&[3f32]).max_output(4);
    let job = job.region_bytes(2 * BYTES as u64);
    let (done, ended) = std::sync::mpsc::channel();
    let submitting = lease.clone();
    thread::spawn(move || done.send(submitting.submit_job(job).launch_blocking()));
    let ended = ended.recv_timeout(LONG);
    check(ended.expect("the submit waits for memory that is free"), 3.0, 1);
}

/// Frees of work that a fault has ended give their memory back, also over a reset.
#[test]
fn memory_comes_back_over_faults_and_resets() {
    if device() != "cpu" {
        return eprintln!("skipped: no reset follows a fault of a GPU");
    }
    let node = Node::start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let faults = include_str!("../../../kernels/faults.ptx");
    const BYTES: usize = 60 << 20;
    for round in 0..6 {
        let (stream, other) = (lease.new_stream().unwrap(), lease.new_stream().unwrap());
        let module = lease.device().load_ptx_blocking(faults).unwrap();
        let fault = module.function("store_at").unwrap();
        let buffer = zeros::<u32>(BYTES / 4).sync_on(&stream).unwrap();
        let config = cuda_async::LaunchConfig::new(1, 1);
        // SAFETY: faults.
        let launch = unsafe { cuda_async::launch(&fault, config, (buffer, 1u64 << 40, 1u32)) };
        if round % 2 == 0 {
            let error = launch.sync_on(&stream).map(drop).unwrap_err();
            assert!(matches!(error, cuda_core::Error::Fault(_)), "{error}");
        } else {
            // SAFETY: the output is dropped, so no foreign code uses it.
            drop(unsafe { launch.async_on(&stream) });
            // SAFETY: see above.
            drop(unsafe { zeros::<u8>(1).async_on(&other) });
        }
        if round % 3 != 2 {
            drop((stream, other));
        }
        lease.device().reset().unwrap();
    }
    let stream = lease.new_stream().unwrap();
    drop(zeros::<u8>(BYTES).sync_on(&stream).unwrap());
    // The client sends the free with its next submission.
    zeros::<u8>(1).sync_on(&stream).unwrap();
    let job = Job::new("square", IOTA).arg(&1u32).input(&[3f32]).max_output(4);
    check(lease.submit_job(job.region_bytes(BYTES as u64 / 2)).launch_blocking(), 3.0, 1);
}
