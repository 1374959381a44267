//! Leases over a bad network: a relay delays, drops and reorders datagrams, and interrupts connections.

use std::{
    io::Write,
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    task::{Context, Waker},
    time::{Duration, Instant},
};

use cuda_async::{LaunchConfig, iterate, launch, prelude::*};
use cuda_core::Error;
use cuda_lease::{Lease, LeaseBuilder};
use relay::{Relay, RelayOptions};
use tempfile::NamedTempFile;

use crate::harness::{Kernels, Node, check, uploads_behind_kernels, wait_until};

fn through(node: &Node, options: RelayOptions) -> (Relay, LeaseBuilder) {
    let relay = Relay::start(node.address.parse().unwrap(), options).unwrap();
    let lease = LeaseBuilder::new(relay.address().to_string()).min_vram(256 << 20);
    (relay, lease)
}

/// Adds one to a counter many times: an operation that is lost or carried out twice changes the result.
fn count(lease: &Lease, launches: u32) -> Result<Vec<f32>, Error> {
    let (device, stream) = (lease.device(), lease.device().new_stream()?);
    let basic = device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx"))?;
    let add = basic.function("add_scalar")?;
    let mut x = zeros::<f32>(64).sync_on(&stream)?;
    for _ in 0..launches {
        // SAFETY: reads and writes the 64 elements of `x`.
        let added = unsafe { launch(&add, LaunchConfig::new(1, 64), (x, 1.0f32, 64u32)) };
        x = added.sync_on(&stream)?;
    }
    to_host(x).sync_on(&stream)
}

#[test]
fn interrupted_connection_resumes_and_each_operation_runs_once() {
    let node = Node::start(&[]);
    let (relay, lease) = through(&node, RelayOptions::default());
    let lease = lease.acquire_blocking().unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let work = scope.spawn(|| {
            let counted = count(&lease, 3000);
            done.store(true, Ordering::Relaxed);
            counted
        });
        // Longer than the time after which a silent connection is lost.
        let silence = Duration::from_millis(5500);
        let mut interruptions = 0;
        while !done.load(Ordering::Relaxed) && interruptions < 2 {
            std::thread::sleep(Duration::from_millis(150));
            relay.partition(true).unwrap();
            std::thread::sleep(silence);
            relay.partition(false).unwrap();
            interruptions += 1;
        }
        assert_eq!(work.join().unwrap().unwrap(), [3000.0; 64]);
        assert!(interruptions > 0);
    });
    check(&lease);
}

#[test]
fn session_survives_an_address_change_of_the_client() {
    let node = Node::start(&[]);
    let (relay, lease) = through(&node, RelayOptions::default());
    let lease = lease.acquire_blocking().unwrap();
    check(&lease);
    relay.rebind().unwrap();
    check(&lease);
}

#[test]
fn loss_and_reordering_change_no_result() {
    let node = Node::start(&[]);
    let mut options = RelayOptions::with_delay(Duration::from_micros(300));
    options.both(|impairment| {
        impairment.loss = 0.02;
        impairment.duplicate = 0.02;
        impairment.reorder = 0.05;
        impairment.reorder_delay = Duration::from_millis(2);
    });
    let (_relay, lease) = through(&node, options);
    let lease = lease.acquire_blocking().unwrap();
    assert_eq!(count(&lease, 100).unwrap(), [100.0; 64]);
    let large: Vec<f32> = (0..1u32 << 20).map(|x| (x % 4093) as f32).collect();
    let doubled: Vec<f32> = large.iter().map(|x| x * 2.0).collect();
    assert_eq!(Kernels::new(&lease).unwrap().double(&large).unwrap(), doubled);
}

#[test]
fn lasting_partition_ends_the_lease_on_both_sides() {
    let node = Node::start(&["--spares", "0"]);
    let (relay, lease) = through(&node, RelayOptions::default());
    let lease = lease.resume_within(Duration::from_millis(100)).acquire_blocking().unwrap();
    let kernels = Kernels::new(&lease).unwrap();
    let error = kernels.run_until(|| relay.partition(true).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Disconnected { may_have_run: true, .. }), "{error}");
    wait_until("the node has ended the lease", || node.workers().is_empty());
}

/// An upload, 100 launches and a read-back cost one delay there and one back, whatever the delay is.
#[test]
fn pipeline_costs_one_round_trip() {
    let node = Node::start(&[]);
    for delay in [1, 20].map(Duration::from_millis) {
        let (_relay, lease) = through(&node, RelayOptions::with_delay(delay));
        let lease = lease.acquire_blocking().unwrap();
        let stream = lease.device().new_stream().unwrap();
        let basic =
            lease.device().load_ptx_blocking(include_str!("../../../kernels/basic.ptx")).unwrap();
        let add = basic.function("add_scalar").unwrap();
        let pipeline = || {
            let launches = |x| {
                iterate((x, 100), |(x, left)| {
                    // SAFETY: reads and writes the 64 elements of `x`.
                    let added =
                        unsafe { launch(&add, LaunchConfig::new(1, 64), (x, 1.0f32, 64u32)) };
                    added.map(move |x| match left {
                        1 => ControlFlow::Break(x),
                        _ => ControlFlow::Continue((x, left - 1)),
                    })
                })
            };
            h2d(vec![0.0f32; 64]).then(launches).then(to_host).sync_on(&stream).unwrap()
        };
        assert_eq!(pipeline(), [100.0; 64]);
        // A late report of an earlier pipeline ends a flight too. A pipeline that waits half way never has one flight.
        let flights = (0..20).map(|_| {
            let (flights, started) = (lease.flights(), Instant::now());
            assert_eq!(pipeline(), [100.0; 64]);
            let elapsed = started.elapsed();
            assert!(elapsed >= 2 * delay, "{elapsed:?}");
            lease.flights() - flights
        });
        assert!(flights.into_iter().any(|flights| flights == 1), "round trips of a pipeline");
    }
}

#[test]
fn submit_whose_answer_is_lost_runs_once() {
    let node = Node::start(&["--metrics", "127.0.0.1:0"]);
    let (relay, lease) = through(&node, RelayOptions::default());
    let lease = lease.resume_within(Duration::from_secs(60)).acquire_blocking().unwrap();
    let iota = include_str!("../../../kernels/iota.ptx");
    let submit = |value: f32| {
        let square = lease.submit("square", iota).arg(&1u32).input(&[value]).max_output(4);
        square.launch_blocking().unwrap().output_as::<f32>().unwrap()
    };
    // From now on the node has the image.
    assert_eq!(submit(2.0), [4.0]);
    let runs = || node.metric("cuda_node_latency_seconds_count{path=\"submit\",part=\"device\"}");
    wait_until("the first submit is counted", || runs() == 1.0);
    relay.update(|options| options.to_client.partitioned = true).unwrap();
    std::thread::scope(|scope| {
        let work = scope.spawn(|| submit(3.0));
        wait_until("the kernel has run", || runs() == 2.0);
        // Longer than the time after which a silent connection is lost.
        std::thread::sleep(Duration::from_millis(5500));
        relay.update(|options| options.to_client.partitioned = false).unwrap();
        assert_eq!(work.join().unwrap(), [9.0]);
    });
    // A reply of the status endpoints may be as old as a tenth of a second: the next submit is counted behind it.
    assert_eq!(submit(4.0), [16.0]);
    wait_until("the last submit is counted", || runs() >= 3.0);
    assert_eq!(runs(), 3.0);
}

/// Uploads that wait for kernels fill the way to the worker, so a session cannot resume its bulk lane. Its lease is renewed
/// meanwhile.
#[test]
fn lease_is_renewed_while_its_session_resumes() {
    let node = Node::start(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    let (relay, lease) = through(&node, RelayOptions::default());
    let lease = lease.min_vram(1 << 30).lease_secs(12).acquire_blocking().unwrap();
    let uploads = uploads_behind_kernels(&lease);
    let of = |name: &str| node.metric(&format!("cuda_node_leases_{name}"));
    wait_until("the lease was renewed", || of("renewed_total") >= 1.0);
    relay.partition(true).unwrap();
    wait_until("the connection is lost", || node.metric("cuda_node_connections") == 0.0);
    relay.partition(false).unwrap();
    let before = of("renewed_total");
    wait_until("the lease was renewed or has expired", || {
        assert!(of("ended_total{reason=\"expired\"}") == 0.0, "the lease was not renewed");
        of("renewed_total") >= before + 2.0
    });
    drop(uploads);
}

/// The node has issued a new token by then, and the earlier one ends: a client without the new one would lose its lease.
#[test]
fn renewal_that_nobody_waits_for_gives_its_token_on_the_next_connection() {
    let node = Node::start(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    let (relay, lease) = through(&node, RelayOptions::default());
    // On a busy machine, also the second attempt to connect may begin before the network is whole again.
    let lease = lease.lease_secs(600).without_renewal().resume_within(Duration::from_secs(60));
    let lease = lease.acquire_blocking().unwrap();
    let renew_and_drop = || {
        let mut cx = Context::from_waker(Waker::noop());
        assert!(std::pin::pin!(lease.renew(600)).poll(&mut cx).is_pending());
    };
    renew_and_drop();
    wait_until("the lease has the token of its renewal", || lease.generation() == 2);
    relay.update(|options| options.to_client.partitioned = true).unwrap();
    renew_and_drop();
    let of = |name: &str| node.metric(&format!("cuda_node_{name}"));
    wait_until("the node has renewed the lease", || of("leases_renewed_total") >= 2.0);
    wait_until("the connection is lost", || of("connections") == 0.0);
    relay.update(|options| options.to_client.partitioned = false).unwrap();
    wait_until("the lease has the token of its second renewal", || lease.generation() == 3);
    check(&lease);
}

/// The node still counts the lost connection, because it gets the packets of the client a while longer.
#[test]
fn session_resumes_while_its_tenant_has_all_its_connections() {
    let mut quotas = NamedTempFile::new().unwrap();
    quotas.write_all(b"[defaults]\nmax_connections = 1\n").unwrap();
    let node = Node::start(&["--quotas", quotas.path().to_str().unwrap()]);
    let (relay, lease) = through(&node, RelayOptions::default());
    let lease = lease.acquire_blocking().unwrap();
    check(&lease);
    relay.update(|options| options.to_client.partitioned = true).unwrap();
    // Longer than the time after which a silent connection is lost.
    std::thread::sleep(Duration::from_millis(5500));
    relay.update(|options| options.to_client.partitioned = false).unwrap();
    check(&lease);
}
