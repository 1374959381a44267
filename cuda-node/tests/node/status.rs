//! The status endpoints: metrics, JSON and headers. `tests/status_page` tests the page in a browser.

use std::{io::Write, time::Duration};

use cuda_async::prelude::*;
use cuda_lease::Job;
use relay::{Relay, RelayOptions};

use crate::harness::{Node, check, wait_until};

const WITH_STATUS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

fn start(arguments: &[&str]) -> Node {
    Node::start(&[&WITH_STATUS, arguments].concat())
}

/// Waits until a metric has a value. A reply may be as old as a tenth of a second.
fn expect(node: &Node, name: &str, value: f64) {
    wait_until(&format!("{name} is {value}"), || node.metric(name) == value);
}

#[test]
fn counters_follow_leases_from_grant_to_end() {
    let node = start(&["--max-leases", "1", "--capacity", "1GiB"]);
    let name = node.json()["devices"][0]["name"].as_str().unwrap().to_owned();
    let device = |metric: &str, value| {
        expect(&node, &format!("cuda_node_{metric}{{device=\"{name}\"}}"), value);
    };
    device("vram_capacity_bytes", f64::from(1 << 30));
    device("leases", 0.0);
    device("spare_workers", 1.0);

    let lease = node.lease().acquire_blocking().unwrap();
    assert!(node.lease().acquire_blocking().is_err());
    expect(&node, "cuda_node_leases_acquired_total", 1.0);
    let refused = "cuda_node_leases_refused_total{status=\"capacity_exceeded\"}";
    expect(&node, refused, 1.0);
    device("leases", 1.0);
    // On a GPU, the context of the worker comes on top.
    let allocated = || node.metric(&format!("cuda_node_vram_allocated_bytes{{device=\"{name}\"}}"));
    wait_until("the lease is charged", || allocated() >= f64::from(64 << 20));
    expect(&node, "cuda_node_lease_wait_seconds_count", 1.0);
    expect(&node, "cuda_node_sessions", 1.0);
    expect(&node, "cuda_node_connections", 1.0);

    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| node.lease().wait(Duration::from_secs(60)).acquire_blocking());
        expect(&node, "cuda_node_leases_waiting", 1.0);
        lease.free();
        drop(waiting.join().unwrap().unwrap());
    });
    expect(&node, "cuda_node_leases_ended_total{reason=\"freed\"}", 2.0);
    device("leases", 0.0);
    device("vram_allocated_bytes", 0.0);

    let short = node.lease().lease_secs(1).without_renewal().acquire_blocking().unwrap();
    expect(&node, "cuda_node_leases_ended_total{reason=\"expired\"}", 1.0);
    drop(short);
}

#[test]
fn data_path_counts_operations_bytes_and_times() {
    let node = start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    // 1000 values of 4 bytes in and out.
    check(&lease);
    let operations = |kind| node.metric(&format!("cuda_node_operations_total{{kind=\"{kind}\"}}"));
    let counts = || ["launch", "write", "read"].map(operations);
    wait_until("the operations are counted", || counts() == [1.0, 1.0, 1.0]);
    expect(&node, "cuda_node_uploaded_bytes_total", 4000.0);
    expect(&node, "cuda_node_output_bytes_total", 4000.0);
    for part in ["queue", "device", "wire"] {
        let labels = format!("{{path=\"session\",part=\"{part}\"}}");
        wait_until("a time is reported", || {
            node.metric(&format!("cuda_node_latency_seconds_count{labels}")) > 0.0
        });
        assert!(node.metric(&format!("cuda_node_latency_seconds_sum{labels}")) > 0.0);
    }

    // More bytes than travel with a command.
    let values = vec![1u8; 1 << 20];
    let stream = lease.device().new_stream().unwrap();
    let kept = h2d(values).sync_on(&stream).unwrap();
    expect(&node, "cuda_node_uploaded_bytes_total", f64::from(4000 + (1 << 20)));
    wait_until("the memory is reported", || {
        node.json()["leases"][0]["memory_used"].as_u64() >= Some(1 << 20)
    });
    drop(to_host(kept).sync_on(&stream).unwrap());
    expect(&node, "cuda_node_output_bytes_total", f64::from(4000 + (1 << 20)));
    wait_until("the free memory is reported", || {
        // The client frees memory along with later work.
        zeros::<u8>(1).sync_on(&stream).unwrap();
        node.json()["leases"][0]["memory_used"].as_u64() < Some(1 << 20)
    });
}

#[test]
fn submits_count_by_status() {
    let node = start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let ptx = include_str!("../../../kernels/iota.ptx");
    let job = Job::new("iota", ptx).block(4).arg(&4u32).max_output(16);
    lease.submit_job(job.clone()).launch_blocking().unwrap();
    lease.submit("missing", ptx).launch_blocking().unwrap_err();
    expect(&node, "cuda_node_submits_total{status=\"launch_failed\"}", 1.0);
    expect(&node, "cuda_node_submits_total{status=\"ok\"}", 1.0);
    assert_eq!(node.metric("cuda_node_submits_total{status=\"not_found\"}"), 0.0);
    expect(&node, "cuda_node_output_bytes_total", 16.0);
    for (part, count) in [("queue", 2.0), ("device", 1.0), ("wire", 2.0)] {
        let name = format!("cuda_node_latency_seconds_count{{path=\"submit\",part=\"{part}\"}}");
        expect(&node, &name, count);
    }
}

#[test]
fn faults_and_failed_operations_are_counted() {
    let node = start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let faults = include_str!("../../../kernels/faults.ptx");
    let store = lease.device().load_ptx_blocking(faults).unwrap().function("null_store").unwrap();
    // SAFETY: takes no argument. It writes to address 0, which the device refuses.
    let launch = unsafe { cuda_async::launch(&store, cuda_async::LaunchConfig::new(1, 1), ()) };
    launch.sync_on(&lease.device().new_stream().unwrap()).unwrap_err();
    expect(&node, "cuda_node_kernel_faults_total", 1.0);
    assert!(node.metric("cuda_node_operations_failed_total") >= 1.0);
}

#[test]
fn resumed_session_is_counted() {
    let node = start(&[]);
    let relay = Relay::start(node.address.parse().unwrap(), RelayOptions::default()).unwrap();
    let lease = cuda_lease::LeaseBuilder::new(relay.address().to_string());
    let lease =
        lease.min_vram(64 << 20).resume_within(Duration::from_secs(60)).acquire_blocking().unwrap();
    check(&lease);
    expect(&node, "cuda_node_connections_resumed_total", 0.0);
    relay.partition(true).unwrap();
    expect(&node, "cuda_node_connections", 0.0);
    relay.partition(false).unwrap();
    check(&lease);
    expect(&node, "cuda_node_connections_resumed_total", 1.0);
    assert!(node.metric("cuda_node_connections_accepted_total") >= 2.0);
}

#[test]
fn only_tenants_of_the_quotas_are_labels() {
    let mut quotas = tempfile::NamedTempFile::new().unwrap();
    quotas.write_all(b"[tenants.training]\nmax_leases = 2\n").unwrap();
    let node = start(&["--quotas", quotas.path().to_str().unwrap()]);
    let _lease = node.lease().acquire_blocking().unwrap();
    expect(&node, "cuda_node_tenant_leases{tenant=\"\"}", 1.0);
    let (_, text) = node.status("/metrics");
    assert!(text.contains("{tenant=\"training\"} 0") && !text.contains("tenant=\"local\""));
}

#[test]
fn replies_forbid_foreign_content_and_show_no_secret() {
    let node = start(&[]);
    let lease = node.lease().acquire_blocking().unwrap();
    let (header, page) = node.status("/");
    assert!(header.starts_with("http/1.1 200"), "{header}");
    assert!(header.contains("content-security-policy: default-src 'none';"), "{header}");
    assert!(header.contains("x-content-type-options: nosniff"), "{header}");
    assert!(page.contains("<script src=\"/page.js\" defer></script>"));
    assert!(!page.contains("http://") && !page.contains("https://"));
    let (header, text) = node.status("/metrics");
    assert!(header.contains("content-type: application/openmetrics-text; version=1.0.0"));
    assert!(text.ends_with("# EOF\n"));
    wait_until("the lease is shown", || node.json()["leases"].as_array().unwrap().len() == 1);
    let shown = node.json()["leases"][0].clone();
    let mut fields: Vec<_> = shown.as_object().unwrap().keys().map(String::as_str).collect();
    fields.sort_unstable();
    let known = [
        "age_ms",
        "backlog",
        "backlog_bytes",
        "cause",
        "class",
        "connected",
        "device",
        "id",
        "left_ms",
        "memory",
        "memory_used",
        "operations",
        "output_bytes",
        "state",
        "tenant",
        "uploaded_bytes",
    ];
    assert_eq!(fields, known);
    assert_eq!((&shown["id"], &shown["tenant"]), (&lease.id().into(), &"local".into()));
    assert!(node.status("/secret").0.starts_with("http/1.1 404"));
}

#[test]
fn idle_http_connections_keep_no_other_out() {
    let node = start(&[]);
    let idle: Vec<_> =
        (0..70).map(|_| std::net::TcpStream::connect(node.status_address()).unwrap()).collect();
    assert!(node.status("/metrics").0.contains("200 ok"));
    drop(idle);
}
