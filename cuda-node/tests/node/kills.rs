//! Cycles of leases while the node, workers and clients are killed at random points, and the node starts again.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use cuda_async::{LaunchConfig, Result, launch, prelude::*};
use cuda_lease::{Lease, LeaseBuilder};

use crate::{
    chaos::is_end,
    harness::{Node, Signal, status_of, wait_until},
};

/// The number of leases. `KILL_CYCLES` replaces it, and `KILL_SEED` the choice of the points.
const CYCLES: u32 = 40;

/// The threads that acquire leases.
const THREADS: u32 = 4;

/// The variable of the process of a client.
const ADDRESS: &str = "KILLS_ADDRESS";

/// Pseudorandom numbers (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The leases, kills and processes of the test.
#[derive(Default)]
struct History {
    /// The leases that clients got.
    granted: Mutex<BTreeSet<u64>>,
    /// The leases whose workers were killed.
    killed: Mutex<BTreeSet<u64>>,
    /// All processes of workers, with the times of their starts: numbers are used again.
    workers: Mutex<BTreeSet<(u32, String)>>,
    restarts: AtomicU32,
}

/// The leases of the state folder, with the processes of their workers.
fn records(state: &Path) -> Vec<(u64, u32)> {
    let files = std::fs::read_dir(state.join("leases")).unwrap().flatten();
    let record = |file: std::fs::DirEntry| {
        let text = std::fs::read_to_string(file.path()).ok()?;
        let record: serde_json::Value = serde_json::from_str(&text).unwrap();
        let pid = record["worker"]["pid"].as_u64().unwrap();
        Some((record["lease"]["id"].as_u64().unwrap(), pid as u32))
    };
    files.filter_map(record).collect()
}

/// Adds 1 to a buffer again and again: each launch runs exactly once.
fn work(lease: &Lease, random: &mut Random) -> Result<()> {
    let (device, count) = (lease.device(), 1000);
    let basic = device.load_ptx_blocking(include_str!("../../../kernels/basic.ptx"))?;
    let add = basic.function("add_scalar")?;
    let stream = device.new_stream()?;
    let mut sum = zeros::<f32>(count).sync_on(&stream)?;
    let mut launched = 0;
    for _ in 0..random.below(4) {
        for _ in 0..random.below(20) {
            // SAFETY: adds to `sum`, of `count` elements.
            let op = unsafe {
                launch(&add, LaunchConfig::for_num_elems(count), (sum, 1.0f32, count as u32))
            };
            // SAFETY: the buffer is used on this stream only.
            sum = unsafe { op.async_on(&stream) }?;
            launched += 1;
        }
        let read = to_host(&sum).sync_on(&stream)?;
        assert!(read.iter().all(|element| *element == launched as f32), "{read:?}: {launched}");
        if random.below(4) == 0 {
            lease.renew_blocking(30)?;
        }
    }
    Ok(())
}

/// Sets a number to its largest value, minus room for those that count.
struct SetOnDrop<'a>(&'a AtomicU32);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(u32::MAX / 2, Ordering::Relaxed);
    }
}

fn cycle(address: &str, random: &mut Random, history: &History, ends: impl Fn() -> bool) {
    let lease = loop {
        if ends() {
            return;
        }
        // A node with many leases on a GPU may take longer than 10 s for its start.
        let patience = Duration::from_secs(60);
        let request = LeaseBuilder::new(address).min_vram(16 << 20).wait(patience);
        let request = request.resume_within(patience);
        match request.acquire_blocking() {
            Ok(lease) => break lease,
            // The node does not run now, or the worker of the new lease was killed.
            Err(error) => {
                assert!(is_end(&error) || error.is_retryable(), "{error}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    let id = lease.id();
    assert!(history.granted.lock().unwrap().insert(id), "lease {id} was granted twice");
    match work(&lease, random) {
        Ok(()) => {}
        Err(error) => {
            assert!(is_end(&error), "{error}");
            assert!(history.killed.lock().unwrap().contains(&id), "lease {id}: {error}");
        }
    }
    match random.below(2) {
        0 => lease.free(),
        _ => drop(lease),
    }
}

/// The time of the start of a process that has not ended.
fn started(pid: u32) -> Option<String> {
    let mut status = status_of(pid)?;
    (status[0] != "Z").then(|| status.swap_remove(19))
}

/// Kills something.
fn kill(node: &mut Node, state: &Path, random: &mut Random, history: &History) {
    let found = records(state);
    let mut workers = history.workers.lock().unwrap();
    let all = found.iter().map(|(_, pid)| *pid).chain(node.workers());
    workers.extend(all.filter_map(|pid| Some((pid, started(pid)?))));
    drop(workers);
    match random.below(8) {
        0..=2 => node.restart(Signal::KILL),
        3 => node.restart(Signal::TERM),
        4 | 5 if !found.is_empty() => {
            let (lease, pid) = found[random.below(found.len() as u64) as usize];
            history.killed.lock().unwrap().insert(lease);
            let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
            _ = rustix::process::kill_process(pid, Signal::KILL);
            return;
        }
        _ => {
            let mut client = Command::new(std::env::current_exe().unwrap())
                .args(["kills::client_of_another_process", "--exact", "--ignored", "--nocapture"])
                .env(ADDRESS, &node.address)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            std::thread::sleep(Duration::from_millis(random.below(200)));
            client.kill().unwrap();
            client.wait().unwrap();
            return;
        }
    }
    history.restarts.fetch_add(1, Ordering::Relaxed);
}

/// A client that works until it is killed.
#[test]
#[ignore = "a role of another test"]
fn client_of_another_process() {
    let (address, mut random) = (std::env::var(ADDRESS).unwrap(), Random(7));
    loop {
        let request = LeaseBuilder::new(&address).min_vram(16 << 20);
        if let Ok(lease) = request.acquire_blocking() {
            _ = work(&lease, &mut random);
        }
    }
}

/// The events of each lease in the audit log, in their order.
fn audit(path: &Path) -> BTreeMap<u64, Vec<String>> {
    let mut events = BTreeMap::<_, Vec<_>>::new();
    for line in std::fs::read_to_string(path).unwrap().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(lease) = line["lease"].as_u64() {
            events.entry(lease).or_default().push(line["event"].as_str().unwrap().to_owned());
        }
    }
    events
}

#[test]
fn nothing_is_lost_and_nothing_runs_twice() {
    let cycles = std::env::var("KILL_CYCLES").map_or(CYCLES, |count| count.parse().unwrap());
    let seed = std::env::var("KILL_SEED").map_or(1, |seed| seed.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let (state, log) = (folder.path().join("state"), folder.path().join("audit"));
    let [state_text, log_text] = [&state, &log].map(|path| path.to_str().unwrap().to_owned());
    let mut node = Node::start(&[
        "--state",
        &state_text,
        "--audit",
        &log_text,
        "--max-leases",
        "12",
        "--grace-ms",
        "500",
        "--metrics",
        "127.0.0.1:0",
    ]);
    let (history, done) = (History::default(), AtomicU32::new(0));
    let (own, address) = (std::process::id(), node.address.clone());
    let descriptors = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    let before = descriptors(own);
    std::thread::scope(|scope| {
        let (history, done, address) = (&history, &done, &*address);
        let threads: Vec<_> = (1..=THREADS)
            .map(|thread| {
                scope.spawn(move || {
                    let mut random = Random::new(seed * 100 + u64::from(thread));
                    while done.fetch_add(1, Ordering::Relaxed) < cycles {
                        cycle(address, &mut random, history, || {
                            done.load(Ordering::Relaxed) > u32::MAX / 4
                        });
                    }
                })
            })
            .collect();
        // If this thread panics, the others end too.
        let _end = SetOnDrop(done);
        let mut random = Random::new(seed * 100);
        while !threads.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            std::thread::sleep(Duration::from_millis(random.below(400)));
            kill(&mut node, &state, &mut random, history);
        }
    });

    let granted = history.granted.into_inner().unwrap();
    let killed = history.killed.into_inner().unwrap();
    println!(
        "{} leases, {} restarts, {} workers killed",
        granted.len(),
        history.restarts.into_inner(),
        killed.len()
    );
    wait_until("no lease is left", || node.json()["leases"].as_array().unwrap().is_empty());
    let is_empty = |name: &str| std::fs::read_dir(state.join(name)).unwrap().next().is_none();
    wait_until("the records are gone", || is_empty("leases") && is_empty("ended"));
    wait_until("only the spare worker is left", || node.workers().len() == 1);
    let sockets = || std::fs::read_dir(state.join("workers")).unwrap().count();
    wait_until("only the socket of the spare worker is left", || sockets() == 1);
    let spares = node.workers();
    let is_alive = |(pid, start): &(u32, String)| {
        started(*pid).as_ref() == Some(start) && !spares.contains(pid)
    };
    let workers = history.workers.into_inner().unwrap();
    wait_until("all workers have ended", || !workers.iter().any(is_alive));
    wait_until("the descriptors are closed", || descriptors(own) <= before + 4);
    // Each lease that a client had was granted, perhaps repeatedly, and then has ended.
    let events = audit(&log);
    for lease in granted {
        let events = events.get(&lease).map(Vec::as_slice).unwrap_or_default();
        let last_grant = events.iter().rposition(|event| event == "granted");
        let first_end = events.iter().position(|event| event == "ended");
        assert!(first_end.is_some(), "lease {lease}: {events:?}");
        assert!(last_grant < first_end, "lease {lease}: {events:?}");
    }
}
