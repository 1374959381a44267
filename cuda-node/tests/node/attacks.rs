//! Attacks on what is passed on between clients and workers, and on restarts.

use std::{
    net::UdpSocket,
    ops::RangeInclusive,
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::{
    Ticket,
    protocol::{
        AllocId, Control, Graph, GraphId, GraphNode, ModuleId, Notice, Pattern, Region, Reply,
        Request, Status, StreamId, Work,
    },
};
use cuda_lease::{
    Lease,
    wire::{
        Ack, Allocate, Attach, Attached, Chunk, Command, Content, Event, Exclusivity, Free,
        GRAPH_NODES, Granted, ImageKind, Lane, PutBlob, Refused, Renew, Renewed, Step, Submit,
        TransferId, Writer, encode_graph, features, opcode::REPLY, put_frame,
    },
};
use quinn::TransportConfig;
use tempfile::TempDir;

use crate::{
    harness::{Kernels, LONG, Node, Signal, check, uploads_behind_kernels, wait_until},
    hostile::{attack, command, lost, memory, session, ticket},
    raw::{RawClient, Stream, block_on, refusal, request},
};

/// A node with a state folder.
fn node(more: &[&str]) -> (TempDir, Node) {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let node = Node::start(&[&["--state", state.to_str().unwrap()], more].concat());
    (folder, node)
}

fn create_stream() -> Command<'static> {
    Command::Control(Control::CreateStream { id: StreamId(1), priority: 0 })
}

fn allocate(bytes: u64) -> Command<'static> {
    Command::Control(Control::Allocate { id: AllocId(1), bytes, at: ticket(1) })
}

fn read(number: u64, bytes: u64) -> Command<'static> {
    let region = Region { alloc: AllocId(1), offset: 0 };
    let step = Step::Read { from: region, transfer: TransferId(number), bytes };
    Command::Submit { ticket: ticket(number + 1), after: Vec::new(), step }
}

/// A start that fails, for example because of a file with a mistake, ends no lease of the node before it.
#[test]
fn failed_start_ends_no_lease() {
    let (folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    check(&lease);
    let quotas = folder.path().join("quotas.toml");
    std::fs::write(&quotas, "nonsense").unwrap();
    node.end(Signal::KILL);
    let error = node.fail_to_start(&["--quotas", quotas.to_str().unwrap()]);
    assert!(error.contains("quotas.toml"), "{error}");
    let taken = UdpSocket::bind(&node.address).unwrap();
    let error = node.fail_to_start(&[]);
    assert!(error.contains("failed to listen"), "{error}");
    drop(taken);
    let error = node.fail_to_start(&["--operator-socket", "/nowhere/operator"]);
    assert!(error.contains("create its folder"), "{error}");
    node.start_again();
    check(&lease);
}

/// The number of an acknowledgement does not count as that of a command: its commands would not be counted any more, and
/// a lease of the class `session` would give up its turn while its commands run.
#[test]
fn number_of_an_acknowledgement_hides_no_commands() {
    let node = Node::start(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session(&mut client).await;
        stream.frame(Ack::OPCODE, 1, u64::MAX, |out| Ack { received: 0 }.encode(out)).await;
        command(&mut stream, 1, create_stream()).await;
        command(&mut stream, 2, allocate(64)).await;
        for number in 1..=2 {
            command(&mut stream, number + 2, read(number, 64)).await;
            // The next command is in another batch.
            while stream.reply().await.unwrap().0 != Chunk::OPCODE {}
            wait_until("the command is counted", || {
                node.metric("cuda_node_operations_total{kind=\"read\"}") == number as f64
            });
        }
    });
}

/// A client that does not read the events of a session keeps nothing of the node after the end of its lease.
#[test]
fn unread_events_do_not_outlive_their_lease() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut stream) = session(&mut client).await;
        let small = 16 << 10;
        command(&mut stream, 1, create_stream()).await;
        command(&mut stream, 2, allocate(small)).await;
        for number in 1..=4000 {
            command(&mut stream, number + 2, read(number, small)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        let free = Free { lease, token };
        client.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
        client.control.reply().await.unwrap();
        let stopped = tokio::time::timeout(LONG, stream.send.stopped()).await;
        assert!(stopped.is_ok(), "the lane is still served");
    });
}

/// While the state cannot be written, renewals are refused, and the token stays valid.
#[test]
fn refused_renewals_cost_no_token() {
    let (folder, node) = node(&["--spares", "0"]);
    let (leases, aside) = (folder.path().join("state/leases"), folder.path().join("state/aside"));
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let lease = granted.lease;
        let renew = Renew { lease, token: granted.token.clone(), lease_secs: 60 };
        std::fs::rename(&leases, &aside).unwrap();
        let mut id = 3;
        let mut renewed = async |client: &mut RawClient| {
            id += 1;
            client.control.frame(Renew::OPCODE, 0, id, |out| renew.encode(out)).await;
            client.control.reply().await
        };
        assert_eq!(refusal(&renewed(&mut client).await), Status::Internal);
        // Longer than an earlier token is valid behind a renewal.
        tokio::time::sleep(Duration::from_secs(31)).await;
        assert_eq!(refusal(&renewed(&mut client).await), Status::Internal);
        std::fs::rename(&aside, &leases).unwrap();
        let (_, body) = renewed(&mut client).await.unwrap();
        let token = Renewed::decode(&body).unwrap().token;
        let (_, reply) = client.attach(lease, token, Lane::Commands).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
    });
}

/// Files that are no records do not keep a node from starting.
#[test]
fn foreign_files_in_the_state_folder_are_skipped() {
    let (folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    node.end(Signal::KILL);
    let leases = folder.path().join("state/leases");
    std::fs::create_dir(leases.join("folder")).unwrap();
    std::fs::write(leases.join("empty"), "").unwrap();
    std::fs::write(leases.join("garbage"), [255; 1000]).unwrap();
    let record = std::fs::read_to_string(leases.join(lease.id().to_string())).unwrap();
    std::fs::write(leases.join("truncated"), &record[..record.len() / 2]).unwrap();
    std::os::unix::fs::symlink("/nowhere", leases.join("link")).unwrap();
    // A copy names the same worker.
    std::fs::write(leases.join("0"), &record).unwrap();
    node.start_again();
    check(&lease);
}

/// A worker that is stopped while the node starts again.
#[test]
fn stopped_worker_goes_on_with_the_next_node() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    check(&lease);
    let worker = rustix::process::Pid::from_raw(node.wait_for_workers(1)[0] as i32).unwrap();
    rustix::process::kill_process(worker, Signal::STOP).unwrap();
    node.restart(Signal::KILL);
    node.restart(Signal::KILL);
    let other = node.lease().acquire_blocking().unwrap();
    check(&other);
    rustix::process::kill_process(worker, Signal::CONT).unwrap();
    check(&lease);
}

/// A signal to reload that arrives while a node starts does not end it.
#[test]
fn reload_during_the_start_does_not_end_the_node() {
    let (folder, mut node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    node.end(Signal::KILL);
    let path = folder.path().join("state/lock");
    let lock = std::fs::File::open(&path).unwrap();
    lock.lock().unwrap();
    let mut child = node.begin_to_start(Stdio::null());
    let waits = || {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap().flatten();
        let mut files = descriptors.filter_map(|entry| std::fs::read_link(entry.path()).ok());
        files.any(|file| file == path)
    };
    wait_until("the node waits for the lock", waits);
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, Signal::HUP).unwrap();
    drop(lock);
    check(&lease);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Signals to reload in great number.
#[test]
fn storm_of_reloads_disturbs_nobody() {
    let (folder, node) = node(&["--spares", "0"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let pid = rustix::process::Pid::from_raw(node.pid() as i32).unwrap();
    for _ in 0..2000 {
        rustix::process::kill_process(pid, Signal::HUP).unwrap();
    }
    check(&lease);
    check(&node.lease().acquire_blocking().unwrap());
    drop(folder);
}

/// Many leases are in use while nodes are killed at every point of their start.
#[test]
fn nodes_that_are_killed_while_they_start_lose_nothing() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let leases: Vec<_> = (0..10).map(|_| node.lease().acquire_blocking().unwrap()).collect();
    leases.iter().for_each(check);
    node.end(Signal::KILL);
    for round in 0..25u64 {
        let mut child = node.begin_to_start(Stdio::null());
        std::thread::sleep(Duration::from_millis(round * 8));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    node.start_again();
    leases.iter().for_each(check);
}

/// Many connections attach one lane at once, with right and wrong numbers.
#[test]
fn lane_that_is_attached_again_and_again_disturbs_nobody() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut stream) = session(&mut client).await;
        command(&mut stream, 1, create_stream()).await;
        let before = memory(node);
        let mut connections = Vec::new();
        for _ in 0..8 {
            connections.push(RawClient::connect(&node.address).await);
        }
        for round in 0..400u64 {
            let at = round as usize % connections.len();
            // Each refusal closes its connection.
            let mut attaching = loop {
                match Stream::try_open(&connections[at].connection).await {
                    Ok(attaching) => break attaching,
                    Err(_) => connections[at] = RawClient::connect(&node.address).await,
                }
            };
            let (token, received) = (token.clone(), if at == 3 { u64::MAX } else { 0 });
            let (lane, is_resumed) = (Lane::Commands, at != 5);
            let attach = Attach { lease, token, lane, epoch: 1, is_resumed, received };
            attaching.frame(Attach::OPCODE, 0, 0, |out| attach.encode(out)).await;
        }
        // Until the others are served, each takes the lane from the one before.
        'works: loop {
            let (mut last, _) = client.resume(lease, token.clone(), Lane::Commands, 0).await;
            command(&mut last, 2, allocate(64)).await;
            command(&mut last, 3, read(1, 64)).await;
            while let Ok((opcode, _)) = last.reply().await {
                if opcode == Chunk::OPCODE {
                    break 'works;
                }
            }
        }
        assert!(memory(node) < before + (64 << 20), "{before} bytes before");
    });
}

/// A client acknowledges frames that it was not sent, on both lanes.
#[test]
fn acknowledgement_of_frames_that_were_not_sent_ends_only_its_session() {
    attack(async |node| {
        for lane in [Lane::Commands, Lane::Bulk] {
            let mut client = RawClient::connect(&node.address).await;
            let (lease, token, mut commands) = session(&mut client).await;
            let (mut bulk, _) = client.attach(lease, token, Lane::Bulk).await;
            let stream = if lane == Lane::Bulk { &mut bulk } else { &mut commands };
            stream.frame(Ack::OPCODE, 0, 0, |out| Ack { received: 7 }.encode(out)).await;
            let error = lost(&mut commands).await;
            assert!(error.contains("acknowledged frame 7"), "{error}");
        }
    });
}

/// Code beyond the limits.
#[test]
fn blob_of_200_mib_is_refused() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, _stream) = session(&mut client).await;
        let mut put = Stream::open(&client.connection).await;
        let blob = PutBlob { lease, token, hash: [1; 32], bytes: 200 << 20 };
        put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
        assert_eq!(refusal(&put.reply().await), Status::TooLarge);
    });
}

/// A million commands in a burst of a client that reads no events.
#[test]
fn burst_of_a_million_commands_is_bounded() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session(&mut client).await;
        let before = memory(node);
        command(&mut stream, 1, create_stream()).await;
        command(&mut stream, 2, allocate(64)).await;
        let mut burst = Vec::new();
        for number in 1..=1_000_000u64 {
            let read = read(number, 16);
            cuda_lease::wire::put_frame(&mut burst, read.opcode().unwrap(), 1, number + 2, |out| {
                read.encode(out);
            });
        }
        _ = tokio::time::timeout(Duration::from_secs(10), stream.bytes(&burst)).await;
        drop(burst);
        assert!(memory(node) < before + (400 << 20), "{before} bytes before");
    });
}

/// A process that does not end when it is killed, as one that a driver holds.
struct Frozen {
    cgroup: std::path::PathBuf,
    pid: u32,
}

impl Frozen {
    /// `None` where this process may not freeze others.
    fn new(pid: u32) -> Option<Self> {
        let cgroup =
            std::path::PathBuf::from(format!("/sys/fs/cgroup/freezer/cuda-node-test-{pid}"));
        std::fs::create_dir(&cgroup).ok()?;
        std::fs::write(cgroup.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(cgroup.join("freezer.state"), "FROZEN").unwrap();
        let state = || std::fs::read_to_string(cgroup.join("freezer.state")).unwrap();
        wait_until("the process is frozen", || state().trim() == "FROZEN");
        Some(Self { cgroup, pid })
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        _ = std::fs::write(self.cgroup.join("freezer.state"), "THAWED");
        let process = rustix::process::Pid::from_raw(self.pid as i32).unwrap();
        _ = rustix::process::kill_process(process, Signal::KILL);
        wait_until("the cgroup is empty", || std::fs::remove_dir(&self.cgroup).is_ok());
    }
}

/// Each change of the window of a connection gave its client as many bytes more.
#[test]
fn repeated_uploads_add_nothing_to_the_window_of_a_connection() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let blob = |hash, bytes| PutBlob {
            lease: granted.lease,
            token: granted.token.clone(),
            hash,
            bytes,
        };
        for _ in 0..20 {
            let mut put = Stream::open(&client.connection).await;
            let empty = blob(*blake3::hash(&[]).as_bytes(), 0);
            put.frame(PutBlob::OPCODE, 0, 0, |out| empty.encode(out)).await;
            put.reply().await.unwrap();
        }
        let before = memory(node);
        // Two have memory of the node, the others wait for it, unread.
        let (mut uploads, taken) = (tokio::task::JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for number in 0..40 {
            let mut put = Stream::open(&client.connection).await;
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob([number; 32], 64 << 20).encode(out)).await;
            let taken = taken.clone();
            uploads.spawn(async move {
                if put.send.write_all(&[0; 15 << 20]).await.is_ok() {
                    taken.fetch_add(1, Ordering::Relaxed);
                }
                _ = put.send.stopped().await;
            });
        }
        // The node ends the first upload that stands still for 10 seconds. By then the connection has no window left.
        let ended = tokio::time::timeout(LONG, uploads.join_next()).await;
        ended.expect("the node ends no upload").unwrap().unwrap();
        let taken = taken.load(Ordering::Relaxed);
        assert!(taken < 40, "the node has taken 600 MiB");
        assert!(memory(node) < before + (256 << 20), "{before} bytes before");
    });
}

/// A worker that does not end keeps its device from service, and no node from its start.
#[test]
fn worker_that_does_not_end_delays_no_start() {
    let (_folder, mut node) = node(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let Some(_frozen) = Frozen::new(node.wait_for_workers(1)[0]) else {
            return eprintln!("skipped: needs root and the freezer of cgroups, version 1");
        };
        let free = Free { lease: granted.lease, token: granted.token };
        client.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
        client.control.reply().await.unwrap();
        node.end(Signal::KILL);
        let (sender, started) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            node.start_again();
            _ = sender.send(node);
        });
        let node = started.recv_timeout(LONG).expect("the node does not start");
        wait_until("the device is fenced", || node.json()["devices"][0]["fenced"] == true);
    });
}

/// A hostile worker takes no connection of the next node. It ends, or its device is fenced: until then it has memory there.
#[test]
fn worker_that_accepts_no_successor_keeps_its_place_until_it_has_ended() {
    let (folder, mut node) = node(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        client.send(&Allocate { exclusivity: Exclusivity::Device, ..request() }).await;
        client.granted().await;
        let worker = node.wait_for_workers(1)[0];
        let Some(_frozen) = Frozen::new(worker) else {
            return eprintln!("skipped: needs root and the freezer of cgroups, version 1");
        };
        node.end(Signal::KILL);
        // As if the worker had closed its listener: no connection to it succeeds.
        for socket in std::fs::read_dir(folder.path().join("state/workers")).unwrap() {
            std::fs::remove_file(socket.unwrap().path()).unwrap();
        }
        node.start_again();
        let mut client = RawClient::connect(&node.address).await;
        client.send(&Allocate { exclusivity: Exclusivity::Device, ..request() }).await;
        let reply = client.control.reply().await;
        assert!(std::fs::exists(format!("/proc/{worker}/stat")).unwrap());
        let is_granted = !matches!(reply, Ok((Refused::OPCODE, _)));
        assert!(!is_granted, "two tenants have the whole device: worker {worker} has not ended");
        wait_until("the device is fenced", || node.json()["devices"][0]["fenced"] == true);
    });
}

/// The certificate of a client that never expires (RFC 5280, 4.1.2.5).
#[test]
fn certificate_without_an_end_is_served() {
    let folder = crate::tenants::certificates();
    let node = crate::tenants::secured(folder.path(), &[]);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let seconds = 253_402_300_799 - now.as_secs() - 1;
    let key = crate::identity::new_key();
    crate::identity::issue(folder.path(), "forever", "forever", seconds, &key);
    let tls = crate::tenants::client(folder.path(), "forever");
    check(&node.lease().tls(tls).acquire_blocking().unwrap());
}

/// A node starts while the one before it still ends.
#[test]
fn node_that_starts_at_once_takes_over() {
    let (_folder, node) = node(&["--spares", "0"]);
    let leases: Vec<_> = (0..10).map(|_| node.lease().acquire_blocking().unwrap()).collect();
    let pid = rustix::process::Pid::from_raw(node.pid() as i32).unwrap();
    rustix::process::kill_process(pid, Signal::TERM).unwrap();
    let mut child = node.begin_to_start(Stdio::null());
    leases.iter().for_each(check);
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The next node has less memory: leases that have no place end, with a reason.
#[test]
fn smaller_node_ends_what_has_no_place() {
    let (folder, mut node) = node(&["--spares", "0"]);
    let leases: Vec<_> = (0..3).map(|_| node.lease().acquire_blocking().unwrap()).collect();
    node.end(Signal::KILL);
    let state = folder.path().join("state");
    let state = state.to_str().unwrap();
    let fewer = ["--insecure", "--spares", "0", "--state", state, "--max-leases", "2"];
    node.start_again_with(&fewer);
    wait_until("a lease has ended", || {
        leases.iter().filter(|lease| lease.device().new_stream().is_err()).count() == 1
    });
    let streams = leases.iter().map(|lease| (lease, lease.device().new_stream()));
    for (lease, stream) in streams {
        match stream {
            Ok(_) => check(lease),
            Err(error) => assert!(error.to_string().contains("fewer leases"), "{error}"),
        }
    }
}

/// The disk with the state is full for a while.
#[test]
fn full_disk_refuses_leases_and_loses_none() {
    let folder = tempfile::tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=256k,mode=700", "tmpfs"])
        .arg(folder.path())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: this process may not mount");
    }
    let state = folder.path().join("state");
    let mut node = Node::start(&[
        "--spares",
        "0",
        "--metrics",
        "127.0.0.1:0",
        "--state",
        state.to_str().unwrap(),
    ]);
    let kept = node.lease().acquire_blocking().unwrap();
    let freed = node.lease().acquire_blocking().unwrap();
    let fill = folder.path().join("fill");
    _ = std::fs::write(&fill, vec![1; 1 << 20]);
    let error = node.lease().acquire_blocking().map(drop).unwrap_err();
    assert!(error.to_string().contains("free disk space"), "{error}");
    check(&kept);
    drop(freed);
    wait_until("one lease is left", || node.json()["leases"].as_array().unwrap().len() == 1);
    node.restart(Signal::TERM);
    check(&kept);
    std::fs::remove_file(&fill).unwrap();
    check(&node.lease().acquire_blocking().unwrap());
    node.restart(Signal::KILL);
    check(&kept);
    drop(node);
    // Its workers wait for another node.
    let unmounted = std::process::Command::new("umount").arg("-l").arg(folder.path()).status();
    assert!(unmounted.unwrap().success());
}

/// A tenant that resumes and breaks its session while its worker dies.
#[test]
fn resuming_while_the_worker_dies_leaves_nothing() {
    let node = Node::start(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    let neighbor = node.lease().acquire_blocking().unwrap();
    let others = node.wait_for_workers(1);
    block_on(async {
        for round in 0..5u64 {
            let mut client = RawClient::connect(&node.address).await;
            let (lease, token, mut stream) = session(&mut client).await;
            command(&mut stream, 1, create_stream()).await;
            let workers = node.workers();
            let worker = *workers.iter().find(|pid| !others.contains(pid)).unwrap();
            let mut resumed = Vec::new();
            for at in 0..10 {
                let attach = Attach {
                    lease,
                    token: token.clone(),
                    lane: Lane::Commands,
                    epoch: 1,
                    is_resumed: true,
                    received: 0,
                };
                let mut attaching = Stream::open(&client.connection).await;
                attaching.frame(Attach::OPCODE, 0, 0, |out| attach.encode(out)).await;
                resumed.push(attaching);
                if at == 2 * round {
                    let pid = rustix::process::Pid::from_raw(worker as i32).unwrap();
                    _ = rustix::process::kill_process(pid, Signal::KILL);
                }
            }
            let (mut last, reply) = client.resume(lease, token, Lane::Commands, 0).await;
            if let Ok((Attached::OPCODE, _)) = reply {
                lost(&mut last).await;
            }
            let waited = Instant::now();
            while node.workers() != others {
                let (workers, leases) = (node.workers(), &node.json()["leases"]);
                assert!(waited.elapsed() < LONG, "{workers:?}, not {others:?} only: {leases}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    });
    wait_until("one lease is left", || node.json()["leases"].as_array().unwrap().len() == 1);
    check(&neighbor);
}

/// Kernels that print without end, for a client that reads no events, beside a neighbor.
#[test]
fn flood_of_events_while_a_neighbor_works() {
    attack(async |node| {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session(&mut client).await;
        let before = memory(node);
        command(&mut stream, 1, create_stream()).await;
        // Each request has a reply, which is never acknowledged.
        let mut burst = Vec::new();
        for id in 1..=300_000u64 {
            let request = Request::Loaded { module: ModuleId(id) };
            let request = Command::Request { id, request };
            cuda_lease::wire::put_frame(&mut burst, request.opcode().unwrap(), 1, id + 1, |out| {
                request.encode(out)
            });
        }
        _ = tokio::time::timeout(Duration::from_secs(10), stream.bytes(&burst)).await;
        assert!(memory(node) < before + (300 << 20), "{before} bytes before");
    });
}

/// The next node uses other user ids: workers that it cannot take over end at once, and leave no memory and no cgroup.
#[test]
fn worker_of_another_range_of_user_ids_ends() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: needs root");
    }
    let (folder, mut node) = node(&["--spares", "0", "--worker-uids", "700000-700009"]);
    let lease = node.lease().acquire_blocking().unwrap();
    let worker = node.wait_for_workers(1)[0];
    let started = std::time::Instant::now();
    node.end(Signal::KILL);
    let state = folder.path().join("state");
    let record = std::fs::read(state.join("leases").join(lease.id().to_string())).unwrap();
    let record: serde_json::Value = serde_json::from_slice(&record).unwrap();
    let cgroups = record["worker"]["cgroup"].as_array().unwrap();
    let state = state.to_str().unwrap();
    let arguments = ["--insecure", "--spares", "0", "--state", state];
    node.start_again_with(&[&arguments[..], &["--worker-uids", "800000-800009"]].concat());
    let process = format!("/proc/{worker}/exe");
    wait_until("the worker has ended", || !std::fs::exists(&process).unwrap_or(false));
    assert!(started.elapsed() < Duration::from_secs(25), "it has waited for another node");
    wait_until("its cgroup is gone", || {
        !cgroups.iter().any(|folder| std::fs::exists(folder.as_str().unwrap()).unwrap())
    });
    wait_until("the lease is lost", || lease.device().new_stream().is_err());
    check(&node.lease().acquire_blocking().unwrap());
}

/// Sessions that share a device in turns, while the node starts again.
#[test]
fn sessions_take_turns_after_a_restart() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let exclusive = || node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    let leases = [exclusive(), exclusive(), exclusive()];
    // The last one has sent no work before.
    leases[..2].iter().for_each(check);
    for signal in [Signal::KILL, Signal::TERM] {
        node.restart(signal);
        leases.iter().rev().for_each(check);
    }
}

/// Checks the lease of a session that takes turns, which needs its turn within this time.
async fn check_within(limit: Duration, lease: Lease) -> Lease {
    let (sender, checked) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        check(&lease);
        _ = sender.send(lease);
    });
    let checked = tokio::time::timeout(limit, checked).await;
    checked.expect("the other session has no turn").expect("the check fails")
}

/// Requests a lease whose session takes turns, and attaches its commands. The lease does not end while another session waits
/// for its turn.
async fn session_in_turns(client: &mut RawClient) -> (u64, Bytes, Stream) {
    let exclusivity = Exclusivity::Session;
    client.send(&Allocate { exclusivity, lease_secs: 600, ..request() }).await;
    let granted = client.granted().await;
    let attached = client.attach(granted.lease, granted.token.clone(), Lane::Commands).await;
    (granted.lease, granted.token, attached.0)
}

/// As [`session_in_turns`], with 2,000 reads of 16 KiB. The session has had a turn.
async fn session_with_many_small_reads(client: &mut RawClient) -> (u64, Bytes, Stream) {
    let (lease, token, mut stream) = session_in_turns(client).await;
    let small = 16 << 10;
    command(&mut stream, 1, create_stream()).await;
    command(&mut stream, 2, allocate(small)).await;
    for number in 1..=2000 {
        command(&mut stream, number + 2, read(number, small)).await;
    }
    // One event is there.
    stream.reply().await.unwrap();
    (lease, token, stream)
}

/// The worker's message that its work is complete waits behind events that the client does not take. If `resumes`, the
/// client then resumes its session on a connection whose streams take no byte.
fn session_without_a_reader_gives_up_its_turn(resumes: bool) {
    let node = Node::start(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    check(&other);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, _stream) = session_with_many_small_reads(&mut client).await;
        let mut resumed = None;
        if resumes {
            let mut transport = TransportConfig::default();
            transport.stream_receive_window(0u8.into());
            transport.keep_alive_interval(Some(Duration::from_secs(1)));
            let tight = RawClient::connect_tuned(&node.address, transport).await;
            let mut stream = Stream::open(&tight.connection).await;
            let (lane, is_resumed) = (Lane::Commands, true);
            let attach = Attach { lease, token, lane, epoch: 1, is_resumed, received: 0 };
            stream.frame(Attach::OPCODE, 0, 0, |out| attach.encode(out)).await;
            resumed = Some((tight, stream));
        }
        check_within(LONG, other).await;
        drop(resumed);
    });
}

#[test]
fn session_whose_client_takes_no_events_gives_up_its_turn() {
    session_without_a_reader_gives_up_its_turn(false);
}

#[test]
fn session_whose_client_does_not_take_that_it_is_attached_gives_up_its_turn() {
    session_without_a_reader_gives_up_its_turn(true);
}

/// A lease expires while its session waits for the turn. The session takes no more commands, so it has nothing to do in its
/// turn, which it keeps until the grace is over.
#[test]
fn session_that_waits_while_its_lease_expires_keeps_no_turn_from_others() {
    let node = Node::start(&["--spares", "0", "--grace-ms", "30000"]);
    let acquire = || node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    let (other, endless) = (acquire(), acquire());
    let kernels = Kernels::new(&endless).unwrap();
    check(&other);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        client
            .send(&Allocate { exclusivity: Exclusivity::Session, lease_secs: 2, ..request() })
            .await;
        let granted = client.granted().await;
        let (mut stream, _) = client.attach(granted.lease, granted.token, Lane::Commands).await;
        kernels.start_forever(&endless.new_stream().unwrap()).unwrap();
        tokio::time::sleep(Duration::from_millis(500)).await;
        // It waits for its turn, in front of the other session.
        command(&mut stream, 1, create_stream()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            check(&other);
            _ = sender.send(());
        });
        // The announcement of its end.
        _ = stream.reply().await.unwrap();
        drop((kernels, endless));
        let limit = Duration::from_secs(20);
        let done = tokio::task::spawn_blocking(move || done.recv_timeout(limit)).await.unwrap();
        assert!(done.is_ok(), "the other session has no turn");
    });
}

/// Each resumption makes the worker send again what the client has not acknowledged.
#[test]
fn resumptions_of_a_session_are_limited_by_time() {
    attack(async |node| {
        let started = Instant::now();
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, _stream) = session(&mut client).await;
        for _ in 0..20 {
            let (_, reply) = client.resume(lease, token.clone(), Lane::Commands, 0).await;
            assert_eq!(reply.unwrap().0, Attached::OPCODE);
        }
        // 16 connections at once, and two per second.
        assert!(started.elapsed() >= Duration::from_millis(2500));
    });
}

/// After a restart, a client uses its lease in every way but the one that tells whether its session has work.
#[test]
fn session_of_an_earlier_node_that_is_not_attached_keeps_no_other_out() {
    let (_folder, mut node) = node(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut stream) = session_in_turns(&mut client).await;
        command(&mut stream, 1, create_stream()).await;
        command(&mut stream, 2, allocate(64)).await;
        command(&mut stream, 3, read(1, 64)).await;
        while stream.reply().await.unwrap().0 != Chunk::OPCODE {}
        node.restart(Signal::KILL);
        let client = RawClient::connect(&node.address).await;
        let attach = |epoch| {
            let (token, lane, is_resumed) = (token.clone(), Lane::Commands, true);
            Attach { lease, token, lane, epoch, is_resumed, received: 0 }
        };
        let (_, reply) = client.attach_with(attach(7)).await;
        assert_eq!(refusal(&reply), Status::BadRequest);
        let (sender, done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            check(&other);
            _ = sender.send(());
        });
        let started = std::time::Instant::now();
        while done.try_recv().is_err() {
            assert!(started.elapsed() < LONG, "the other session has no turn");
            let mut put = Stream::open(&client.connection).await;
            let blob = PutBlob { lease, token: token.clone(), hash: [1; 32], bytes: 1 << 40 };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            assert_eq!(refusal(&put.reply().await), Status::TooLarge);
        }
        // The client of the session can still have it.
        let (_stream, reply) = client.attach_with(attach(1)).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
    });
}

/// The kernel of an earlier node keeps the turn of its session until it ends, here with its lease.
#[test]
fn kernel_of_an_earlier_node_keeps_its_turn() {
    let (_folder, mut node) =
        node(&["--spares", "0", "--grace-ms", "100", "--metrics", "127.0.0.1:0"]);
    let exclusive = || node.lease().exclusive(Exclusivity::Session);
    let other = exclusive().acquire_blocking().unwrap();
    check(&other);
    let first = exclusive().lease_secs(10).without_renewal().acquire_blocking().unwrap();
    let kernels = Kernels::new(&first).unwrap();
    std::thread::scope(|scope| {
        let (sender, begun) = std::sync::mpsc::channel();
        scope.spawn(|| kernels.run_until(move || sender.send(()).unwrap()).unwrap_err());
        begun.recv().unwrap();
        node.restart(Signal::KILL);
        check(&other);
        assert_eq!(node.json()["leases"].as_array().unwrap().len(), 1);
    });
}

/// Many connections with windows that a lease pays for, each full of frames that do not end.
#[test]
fn connections_of_one_lease_occupy_bounded_memory() {
    attack(async |node| {
        let granted = RawClient::connect(&node.address).await.allocate().await;
        let before = memory(node);
        let (mut clients, mut uploads) = (Vec::new(), Vec::new());
        for _ in 0..8 {
            let mut transport = TransportConfig::default();
            transport.send_window(64 << 20);
            let client = RawClient::connect_tuned(&node.address, transport).await;
            // While an upload arrives, the node takes more of the connection.
            let mut put = Stream::open(&client.connection).await;
            let (lease, token) = (granted.lease, granted.token.clone());
            let blob = PutBlob { lease, token, hash: [1; 32], bytes: 1024 };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            put.bytes(&[0]).await;
            clients.push(client);
            uploads.push(put);
        }
        let mut streams = tokio::task::JoinSet::new();
        let mut frame = Vec::new();
        let length = 1 << 20;
        Writer::new(&mut frame).put(length).put(Submit::OPCODE).put(0u16).put(0u32).put(0u64);
        frame.resize(length as usize - 1, 0);
        for connection in clients.iter().flat_map(|client| vec![&client.connection; 40]) {
            let (connection, frame) = (connection.clone(), frame.clone());
            streams.spawn(async move {
                let write = async {
                    let mut stream = Stream::open(&connection).await;
                    stream.bytes(&frame).await;
                    std::future::pending::<()>().await;
                };
                _ = tokio::time::timeout(Duration::from_secs(10), write).await;
            });
        }
        let mut most = 0;
        while !streams.is_empty() {
            most = most.max(memory(node));
            _ = tokio::time::timeout(Duration::from_millis(100), streams.join_next()).await;
        }
        let grown = most.saturating_sub(before);
        // Two wide connections, and what the others have without a lease.
        assert!(grown < 192 << 20, "the memory has grown by {grown} bytes");
    });
}

/// Otherwise tenants that take turns fill the memory of the node: each has as many connections with large windows as it has
/// had leases.
#[test]
fn wide_connections_of_ended_leases_are_closed() {
    attack(async |node| {
        let (mut clients, mut streams) = (Vec::new(), Vec::new());
        for number in 0..8 {
            let mut client = RawClient::connect(&node.address).await;
            let granted = client.allocate().await;
            let (lease, token) = (granted.lease, granted.token.clone());
            // The last four have sessions. The uploads of the others do not end.
            if number >= 4 {
                let (stream, reply) = client.attach(lease, token, Lane::Commands).await;
                assert_eq!(reply.unwrap().0, Attach::OPCODE | REPLY);
                streams.push(stream);
            } else {
                let mut put = Stream::open(&client.connection).await;
                let blob = PutBlob { lease, token, hash: [1; 32], bytes: 1024 };
                put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
                streams.push(put);
            }
            clients.push((client, granted));
        }
        let closed = |clients: &[(RawClient, Granted)]| {
            let is_closed = clients.iter().map(|(of, _)| of.connection.close_reason().is_some());
            is_closed.collect::<Vec<_>>()
        };
        // The last one and that of the neighbor go on, so three connections of each kind stay: among them those two.
        for (client, granted) in &mut clients[..7] {
            let free = Free { lease: granted.lease, token: granted.token.clone() };
            client.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
            assert_eq!(client.control.reply().await.unwrap().0, Free::OPCODE | REPLY);
        }
        assert_eq!(closed(&clients), [false; 8], "the clients hear of the end first");
        let (until, t, f) = (Instant::now() + LONG, true, false);
        while closed(&clients) != [t, f, f, f, t, t, f, f] {
            assert!(Instant::now() < until, "{:?}", closed(&clients));
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
}

/// A worker that has the output of its node as its own could fill or truncate the log, or read the terminal.
#[test]
fn worker_does_not_have_the_output_of_its_node() {
    attack(async |node| {
        for worker in node.wait_for_workers(1) {
            let output = |pid: u32, number| std::fs::read_link(format!("/proc/{pid}/fd/{number}"));
            for number in [1, 2] {
                let Ok(own) = output(worker, number) else {
                    return eprintln!("skipped: needs root");
                };
                for of_node in [1, 2] {
                    assert_ne!(own, output(node.pid(), of_node).unwrap());
                }
            }
        }
    });
}

/// A node is killed before a slow disk has removed the records of leases that have ended. Their places, and the names of
/// their sockets, belong to another lease by then.
#[test]
fn records_of_ended_leases_take_nothing_from_a_later_one() {
    let (folder, mut node) = node(&["--spares", "0", "--max-leases", "1"]);
    let records = folder.path().join("state/leases");
    let ended = node.lease().acquire_blocking().unwrap();
    let id = ended.id();
    let record = std::fs::read_to_string(records.join(id.to_string())).unwrap();
    drop(ended);
    let lease = node.lease().wait(LONG).acquire_blocking().unwrap();
    check(&lease);
    node.end(Signal::KILL);
    for other in 100..110 {
        let text = record.replacen(&format!("\"id\": {id},"), &format!("\"id\": {other},"), 1);
        std::fs::write(records.join(other.to_string()), text).unwrap();
    }
    node.start_again();
    check(&lease);
}

/// A detached lease lasts without a connection once its client has used the token, also after a restart.
#[test]
fn detached_lease_whose_token_was_used_outlives_its_node_and_its_connection() {
    /// The opcode and the body of a frame that uses the token of a lease.
    type Use = fn(u64, Bytes) -> (u16, Vec<u8>);
    let (_folder, mut node) = node(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    let uses: [Use; 2] = [
        |lease, token| {
            let (lane, epoch, is_resumed, received) = (Lane::Commands, 1, false, 0);
            let mut out = Vec::new();
            Attach { lease, token, lane, epoch, is_resumed, received }.encode(&mut out);
            (Attach::OPCODE, out)
        },
        |lease, token| {
            let mut out = Vec::new();
            PutBlob { lease, token, hash: [1; 32], bytes: 1 << 40 }.encode(&mut out);
            (PutBlob::OPCODE, out)
        },
    ];
    let mut kept = Vec::new();
    for used in uses {
        block_on(async {
            let mut client = RawClient::connect_with(&node.address, features::CONFIRM).await;
            client.send(&Allocate { detached: true, ..request() }).await;
            let granted = client.granted().await;
            let (opcode, body) = used(granted.lease, granted.token);
            let mut stream = Stream::open(&client.connection).await;
            stream.frame(opcode, 0, 0, |out| out.extend_from_slice(&body)).await;
            stream.reply().await.unwrap();
            kept.push(granted.lease);
        });
    }
    node.restart(Signal::KILL);
    let json = node.json();
    let leases = json["leases"].as_array().unwrap();
    assert_eq!(leases.len(), kept.len());
    for lease in leases {
        assert!(kept.contains(&lease["id"].as_u64().unwrap()));
        assert_eq!(lease["connected"], true, "the lease ends soon: {lease}");
    }
}

/// Images of one client that wait for memory fill the window of its connection, so those that have memory do not arrive.
/// They are refused, and neither the connection nor the session ends.
#[test]
fn images_that_wait_for_memory_end_no_session() {
    attack(async |node| {
        let mut transport = TransportConfig::default();
        transport.send_window(512 << 20);
        let client = RawClient::connect_tuned(&node.address, transport).await;
        let mut client = client.greet(0).await;
        let (lease, token, mut session) = session(&mut client).await;
        let image = Bytes::from(vec![0; 64 << 20]);
        let mut puts = tokio::task::JoinSet::new();
        for number in 0..8 {
            let (image, token) = (image.clone(), token.clone());
            let mut put = Stream::open(&client.connection).await;
            puts.spawn(async move {
                let (hash, bytes) = ([number; 32], image.len() as u64);
                let blob = PutBlob { lease, token, hash, bytes };
                put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
                _ = put.send.write_chunk(image).await;
                put.reply().await
            });
        }
        let replies = tokio::time::timeout(LONG, puts.join_all()).await.expect("they wait");
        for reply in replies {
            // The hash of those that have arrived is another one.
            assert!([Status::BadRequest, Status::CapacityExceeded].contains(&refusal(&reply)));
        }
        command(&mut session, 1, create_stream()).await;
        command(&mut session, 2, allocate(64)).await;
        command(&mut session, 3, read(1, 64)).await;
        while session.reply().await.unwrap().0 != Chunk::OPCODE {}
    });
}

/// An image waits for memory on a connection without a session. A renewal goes by it.
#[test]
fn image_that_waits_for_memory_keeps_no_request_from_arriving() {
    attack(async |node| {
        let upload = async |client: &RawClient, lease, token: &Bytes| {
            let mut put = Stream::open(&client.connection).await;
            let blob = PutBlob { lease, token: token.clone(), hash: [1; 32], bytes: 64 << 20 };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            put
        };
        let mut client = RawClient::connect(&node.address).await;
        let granted = client.allocate().await;
        let other = RawClient::connect(&node.address).await;
        // The memory of the tenant is taken by slow uploads.
        let mut slow = Vec::new();
        for _ in 0..2 {
            let mut put = upload(&other, granted.lease, &granted.token).await;
            put.bytes(&[0; 1 << 20]).await;
            slow.push(put);
        }
        let mut put = upload(&client, granted.lease, &granted.token).await;
        let waits = tokio::spawn(async move { put.bytes(&[0; 8 << 20]).await });
        let renewed = async {
            // Both ways fill the window: the bytes arrive, or the client may send no more of them.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let (lease, token) = (granted.lease, granted.token.clone());
            let renew = Renew { lease, token, lease_secs: 60 };
            client.control.frame(Renew::OPCODE, 0, 3, |out| renew.encode(out)).await;
            client.control.reply().await.unwrap()
        };
        let renewed = tokio::time::timeout(Duration::from_secs(5), renewed).await;
        assert!(renewed.is_ok(), "the renewal does not arrive");
        waits.abort();
        drop(slow);
    });
}

/// A client connects again before the node notices the end of its earlier connection, which has the place among the
/// wide ones. The later connection gets it then.
#[test]
fn connection_becomes_wide_when_another_one_ends() {
    let node = Node::start(&["--spares", "0"]);
    block_on(async {
        let mut first = RawClient::connect(&node.address).await;
        let granted = first.allocate().await;
        let (lease, token) = (granted.lease, granted.token);
        let upload = async |client: &RawClient| {
            let mut put = Stream::open(&client.connection).await;
            let blob = PutBlob { lease, token: token.clone(), hash: [1; 32], bytes: 64 << 20 };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            put
        };
        // The memory of the tenant is taken by slow uploads.
        let (other, second) =
            (RawClient::connect(&node.address).await, RawClient::connect(&node.address).await);
        let mut slow = [upload(&other).await, upload(&other).await];
        // Waits for that memory.
        let waiting = upload(&first).await;
        let slowly = async {
            loop {
                for put in &mut slow {
                    put.bytes(&[0; 1 << 10]).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        };
        let waits = async {
            // The others have their places.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let mut put = upload(&second).await;
            let mut write = std::pin::pin!(put.bytes(&[0; 8 << 20]));
            let narrow = tokio::time::timeout(Duration::from_secs(1), &mut write).await;
            assert!(narrow.is_err(), "the connection is wide");
            first.connection.close(0u32.into(), b"");
            drop(waiting);
            let wide = tokio::time::timeout(LONG, write).await;
            assert!(wide.is_ok(), "the connection stays narrow");
        };
        tokio::select! {
            () = waits => {}
            () = slowly => {}
        }
    });
}

/// Connections that stay open after their leases have ended keep their places among the wide connections of the tenant. The
/// uploads of a later session wait for a kernel, and its renewals go by them.
#[test]
fn idle_connections_keep_no_renewal_of_a_session_from_arriving() {
    let node = Node::start(&["--spares", "0", "--metrics", "127.0.0.1:0"]);
    block_on(async {
        let mut idle = Vec::new();
        for _ in 0..2 {
            let mut client = RawClient::connect(&node.address).await;
            let granted = client.allocate().await;
            let mut put = Stream::open(&client.connection).await;
            let (lease, token, hash) =
                (granted.lease, granted.token.clone(), *blake3::hash(b"code").as_bytes());
            let blob = PutBlob { lease, token, hash, bytes: 4 };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            put.bytes(b"code").await;
            put.reply().await.unwrap();
            idle.push((client, granted));
        }
        for (client, granted) in &mut idle {
            let free = Free { lease: granted.lease, token: granted.token.clone() };
            client.control.frame(Free::OPCODE, 0, 3, |out| free.encode(out)).await;
            client.control.reply().await.unwrap();
        }
        let lease = node.lease().min_vram(1 << 30).lease_secs(6).acquire_blocking().unwrap();
        let uploads = uploads_behind_kernels(&lease);
        let of = |name: &str| node.metric(&format!("cuda_node_leases_{name}"));
        wait_until("the lease was renewed or has expired", || {
            assert!(of("ended_total{reason=\"expired\"}") == 0.0, "the lease was not renewed");
            of("renewed_total") >= 3.0
        });
        drop((uploads, idle));
    });
}

/// A client takes its events slowly, but each batch in time. Its session has completed its work after some milliseconds,
/// so the other session has a turn soon.
#[test]
fn session_whose_client_takes_its_events_slowly_gives_up_its_turn() {
    let node = Node::start(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    check(&other);
    block_on(async {
        let mut transport = TransportConfig::default();
        transport.stream_receive_window((64u32 << 10).into());
        transport.keep_alive_interval(Some(Duration::from_secs(1)));
        let client = RawClient::connect_tuned(&node.address, transport).await;
        let mut client = client.greet(0).await;
        let (_lease, _token, mut stream) = session_with_many_small_reads(&mut client).await;
        let slow = tokio::spawn(async move {
            // A batch of 256 KiB in 8 s. All would take 1000 s.
            let mut due = 0;
            loop {
                due += 32 << 10;
                while due > 0 {
                    match stream.read(due).await {
                        0 => return,
                        bytes => due -= bytes,
                    }
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        check_within(LONG, other).await;
        slow.abort();
    });
}

/// Another session has turns while the client of this one takes no downloads, and sends no bytes of an upload. Both then go
/// on.
#[test]
fn session_that_waits_for_its_client_gives_up_its_turn() {
    const BYTES: u64 = 1 << 20;
    const READS: u64 = 100;
    let (_folder, mut node) = node(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    check(&other);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (lease, token, mut commands) = session_in_turns(&mut client).await;
        command(&mut commands, 1, create_stream()).await;
        command(&mut commands, 2, allocate(BYTES)).await;
        let to = Region { alloc: AllocId(1), offset: 0 };
        let step = Step::WriteBulk { to, transfer: TransferId(0), bytes: BYTES };
        let upload = Command::Submit { ticket: ticket(2), after: Vec::new(), step };
        command(&mut commands, 3, upload).await;
        for number in 1..=READS {
            let Command::Submit { after, step, .. } = read(number, BYTES) else { unreachable!() };
            let submit = Command::Submit { ticket: ticket(number + 2), after, step };
            command(&mut commands, number + 3, submit).await;
        }
        // The upload waits for its bytes.
        let other = check_within(LONG, other).await;
        // A node takes over sessions that wait.
        node.restart(Signal::KILL);
        let other = check_within(LONG, other).await;
        let client = RawClient::connect(&node.address).await;
        let resume = |lane, received| {
            let is_resumed = lane == Lane::Commands;
            Attach { lease, token: token.clone(), lane, epoch: 1, is_resumed, received }
        };
        let (_commands, reply) = client.attach_with(resume(Lane::Commands, 0)).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
        let (mut bulk, reply) = client.attach_with(resume(Lane::Bulk, 0)).await;
        assert_eq!(reply.unwrap().0, Attached::OPCODE);
        let part = Chunk::LIMIT as u64;
        for number in 0..BYTES / part {
            let (transfer, offset) = (TransferId(0), number * part);
            let chunk = Chunk { transfer, offset, bytes: &[7; Chunk::LIMIT] };
            bulk.frame(Chunk::OPCODE, 1, number + 1, |out| chunk.encode(out)).await;
        }
        // The downloads wait for acknowledgements.
        let (mut received, mut taken) = (0, 0);
        let mut take = async |bulk: &mut Stream, received: &mut u64| {
            let (opcode, body) = bulk.reply().await.unwrap();
            if opcode == Chunk::OPCODE {
                let chunk = Chunk::decode(&body).unwrap();
                assert!(chunk.bytes.iter().all(|byte| *byte == 7));
                (taken, *received) = (taken + chunk.bytes.len() as u64, *received + 1);
            }
            taken
        };
        while take(&mut bulk, &mut received).await < 16 * BYTES {}
        check_within(LONG, other).await;
        loop {
            bulk.frame(Ack::OPCODE, 0, 0, |out| Ack { received }.encode(out)).await;
            if take(&mut bulk, &mut received).await == READS * BYTES {
                break;
            }
        }
    });
}

/// The queue of a session is never empty, and each piece of its work takes at most some milliseconds. Another session has its
/// turns nevertheless.
#[test]
fn session_with_much_short_work_gives_up_its_turn() {
    const CHAINS: usize = 3;
    let node = Node::start(&["--spares", "0"]);
    let session = || node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    let (other, busy) = (session(), Arc::new(session()));
    check(&other);
    let is_over = Arc::new(AtomicBool::new(false));
    let (sender, begun) = mpsc::channel();
    let chains: Vec<_> = (0..CHAINS)
        .map(|_| {
            let (busy, is_over, sender) = (busy.clone(), is_over.clone(), sender.clone());
            std::thread::spawn(move || {
                let kernels = Kernels::new(&busy).unwrap();
                sender.send(()).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    kernels.run_many(1 << 14).unwrap();
                }
            })
        })
        .collect();
    for _ in 0..CHAINS {
        begun.recv().unwrap();
    }
    block_on(async { drop(check_within(LONG, other).await) });
    is_over.store(true, Ordering::Relaxed);
    for chain in chains {
        chain.join().unwrap();
    }
}

/// Commands of a session, one after the other.
#[derive(Default)]
struct Commands {
    frames: Vec<u8>,
    last: u64,
}

impl Commands {
    fn add(&mut self, command: Command<'_>) {
        self.last += 1;
        let opcode = command.opcode().unwrap();
        put_frame(&mut self.frames, opcode, 1, self.last, |out| command.encode(out));
    }

    /// Launches a graph once for each number.
    fn launch(&mut self, graph: GraphId, numbers: RangeInclusive<u64>) {
        for ticket in numbers.map(ticket) {
            let step = Step::Graph { graph, changes: Content::NO_CHANGES };
            self.add(Command::Submit { ticket, after: Vec::new(), step });
        }
    }
}

/// Reads events until the reply to a request.
async fn reply_of_worker(stream: &mut Stream) -> cuda_core::Result<Reply> {
    loop {
        let (opcode, body) = stream.reply().await.unwrap();
        if let Ok(Event::Reply { reply, .. }) = Event::decode(opcode, &body) {
            return reply;
        }
    }
}

/// Commands cost the worker time too: of each module that ends it looks through the streams that wait. The request for the
/// turn waits behind those that are on their way to the worker.
#[test]
fn session_that_loads_and_unloads_many_modules_gives_up_its_turn() {
    const STREAMS: u64 = 1000;
    let node = Node::start(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    check(&other);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session_in_turns(&mut client).await;
        let mut commands = Commands::default();
        // Each stream waits for the first one, which waits for bytes that do not come.
        commands.add(create_stream());
        let to = Region { alloc: AllocId(1), offset: 0 };
        let step = Step::WriteBulk { to, transfer: TransferId(1), bytes: 8 };
        commands.add(Command::Submit { ticket: ticket(1), after: Vec::new(), step });
        for id in (2..STREAMS).map(StreamId) {
            commands.add(Command::Control(Control::CreateStream { id, priority: 0 }));
            let (own, step) = (Ticket { stream: id, number: 1 }, Step::Work(Work::Join));
            commands.add(Command::Submit { ticket: own, after: vec![ticket(1)], step });
        }
        for id in (0..80_000).map(ModuleId) {
            commands.add(Command::LoadModule { id, kind: ImageKind::Ptx, hash: [1; 32], bytes: 1 });
            commands.add(Command::Control(Control::UnloadModule { id }));
        }
        stream.bytes(&commands.frames).await;
        check_within(LONG, other).await;
    });
}

/// The node does not know what a graph writes whose content it has refused: each launch of it loses all memory of the
/// session. That costs the worker no time for each allocation, because the request for the turn waits behind the launches
/// that are on their way.
#[test]
fn session_that_loses_much_memory_again_and_again_gives_up_its_turn() {
    const ALLOCATIONS: u64 = 60_000;
    const LAUNCHES: u64 = 5000;
    let node = Node::start(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    check(&other);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session_in_turns(&mut client).await;
        let mut commands = Commands::default();
        commands.add(create_stream());
        for number in 1..=ALLOCATIONS {
            let (id, at) = (AllocId(number), ticket(number));
            commands.add(Command::Control(Control::Allocate { id, bytes: 1, at }));
        }
        let joins = GraphNode { work: Work::Join, after: Vec::new(), name: None };
        let graph = Graph { nodes: vec![joins; GRAPH_NODES], host: Vec::new() };
        let mut content = Vec::new();
        encode_graph(&graph, &[], "lease", &mut content).unwrap();
        // There is no memory for the last one.
        const GRAPHS: u64 = 6;
        for id in (1..=GRAPHS).map(GraphId) {
            commands.add(Command::CreateGraph { id, nodes: Content::Inline(&content) });
        }
        let request = Request::GraphReady { graph: GraphId(GRAPHS) };
        commands.add(Command::Request { id: 1, request });
        stream.bytes(&commands.frames).await;
        let refused = reply_of_worker(&mut stream).await.unwrap_err();
        assert_eq!(refused.status(), Some(Status::CapacityExceeded));
        commands.frames.clear();
        commands.launch(GraphId(GRAPHS), ALLOCATIONS + 1..=ALLOCATIONS + LAUNCHES);
        stream.bytes(&commands.frames).await;
        check_within(LONG, other).await;
    });
}

/// A graph has many nodes and reads lost contents. The worker looks at each node to skip a launch, and the request for the
/// turn waits behind the launches that are on their way.
#[test]
fn session_that_skips_a_long_graph_again_and_again_gives_up_its_turn() {
    const NODES: usize = 10_000;
    const LAUNCHES: u64 = 9000;
    let node = Node::start(&["--spares", "0"]);
    let other = node.lease().exclusive(Exclusivity::Session).acquire_blocking().unwrap();
    check(&other);
    block_on(async {
        let mut client = RawClient::connect(&node.address).await;
        let (_, _, mut stream) = session_in_turns(&mut client).await;
        let mut commands = Commands::default();
        commands.add(create_stream());
        // There is no memory for the last one.
        for (number, bytes) in [(1, 8), (2, 8), (3, u64::MAX)] {
            let (id, at) = (AllocId(number), ticket(number));
            commands.add(Command::Control(Control::Allocate { id, bytes, at }));
        }
        let copy = |from, to| {
            let at = |alloc| Region { alloc: AllocId(alloc), offset: 0 };
            Work::Copy { from: at(from), to: at(to), bytes: 8 }
        };
        let (after, step) = (Vec::new(), Step::Work(copy(3, 2)));
        commands.add(Command::Submit { ticket: ticket(4), after, step });
        let fill = Work::Fill {
            to: Region { alloc: AllocId(1), offset: 0 },
            pattern: Pattern::Word(1),
            count: 1,
        };
        let works = std::iter::repeat_n(fill, NODES).chain([copy(2, 1)]);
        let node = |(index, work): (u32, _)| {
            let after = index.checked_sub(1).into_iter().collect();
            GraphNode { work, after, name: None }
        };
        let graph = Graph { nodes: (0..).zip(works).map(node).collect(), host: Vec::new() };
        let mut content = Vec::new();
        encode_graph(&graph, &[], "lease", &mut content).unwrap();
        let id = GraphId(1);
        commands.add(Command::CreateGraph { id, nodes: Content::Inline(&content) });
        let request = Request::GraphReady { graph: id };
        commands.add(Command::Request { id: 1, request });
        stream.bytes(&commands.frames).await;
        reply_of_worker(&mut stream).await.unwrap();
        commands.frames.clear();
        const FIRST: u64 = 5;
        commands.launch(id, FIRST..=FIRST + LAUNCHES - 1);
        stream.bytes(&commands.frames).await;
        check_within(LONG / 2, other).await;
        loop {
            let (opcode, body) = stream.reply().await.unwrap();
            if let Ok(Event::Notice(Notice::Failed { ticket, .. })) = Event::decode(opcode, &body)
                && ticket.number >= FIRST
            {
                break;
            }
        }
    });
}
