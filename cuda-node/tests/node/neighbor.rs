//! The effect of one tenant, who takes all that a node lets him take, on another one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use cuda_async::{Device, Result, runtime::open_blocking};
use cuda_lease::{
    Lease, LeaseBuilder,
    authority::ClientTls,
    wire::{Allocate, Hello, PutBlob, Submit, VERSION, Writer},
};
use quinn::{Endpoint, TransportConfig};

use crate::{
    abuse::black_hole,
    harness::{Kernels, Node, device},
    raw::{RawClient, Stream, request},
    tenants::{certificates, client, secured},
};

/// The leases of a measurement. The slowest hundredth varies by a factor of three between series of 300 on a quiet CPU
/// device. On a GPU a lease takes longer, and varies less.
fn leases() -> usize {
    if device() == "cpu" { 600 } else { 100 }
}

/// The workers of a measurement of pipelines, and the pipelines of each. The time of a short pipeline differs between
/// workers by a factor of up to 1.6, on a quiet node too.
const WORKERS: usize = 16;
const PIPELINES: usize = 250;

/// The memory of a supervisor besides the stated limits of one tenant: code that it keeps and that is arriving, and the
/// first frames of streams.
const BESIDE: u64 = 256 << 20;
const STATED: u64 = (256 + 128 + 16) << 20;

/// Times in order.
struct Times(Vec<Duration>);

impl Times {
    fn of(count: usize, mut step: impl FnMut()) -> Self {
        let time = |_| {
            let started = Instant::now();
            step();
            started.elapsed()
        };
        Self::all((0..count).map(time))
    }

    fn all(times: impl Iterator<Item = Duration>) -> Self {
        let mut times: Vec<_> = times.collect();
        times.sort_unstable();
        Self(times)
    }

    /// The smallest time that at least this percentage of all times does not exceed.
    fn percentile(&self, percent: usize) -> Duration {
        self.0[(self.0.len() * percent).div_ceil(100).saturating_sub(1)]
    }

    /// Prints the times beside those of a quiet node. Returns the ratio of the percentile.
    fn report(&self, what: &str, quiet: &Times, percent: usize) -> f64 {
        let (now, before) = (self.percentile(percent), quiet.percentile(percent));
        let ratio = now.as_secs_f64() / before.as_secs_f64();
        println!("| {what}, percentile {percent} | {before:.2?} | {now:.2?} | {ratio:.2} |");
        ratio
    }
}

/// The figures of the tenant that keeps the rules.
struct Figures {
    acquire: Times,
    pipeline: Times,
}

fn measure(builder: impl Fn() -> LeaseBuilder, leases: usize) -> Figures {
    let of_worker = |_| pipelines(builder().acquire_blocking().unwrap().device()).0;
    let pipeline = Times::all((0..WORKERS).flat_map(of_worker));
    let acquire = Times::of(leases, || drop(builder().acquire_blocking().unwrap()));
    Figures { acquire, pipeline }
}

fn pipelines(device: &Device) -> Times {
    let kernels = Kernels::on(device).unwrap();
    let values = [1.5; 1000];
    Times::of(PIPELINES, || drop(kernels.double(&values).unwrap()))
}

/// A tenant that takes all that it can without device time.
async fn abuse(address: Arc<str>, tls: impl Fn() -> ClientTls + Send + Sync + 'static) {
    // `ABUSE` selects kinds of abuse, by default all.
    let kinds = std::env::var("ABUSE").unwrap_or_else(|_| "code frames refusals handshakes".into());
    let tls = Arc::new(tls);
    let mut tasks = tokio::task::JoinSet::new();
    let connect = {
        let tls = tls.clone();
        let address = address.clone();
        move || {
            let (address, tls) = (address.clone(), tls());
            async move { RawClient::connect_as(&address, tls, TransportConfig::default()).await }
        }
    };
    // Uploads of unused code, over a lease.
    let mut client = connect().await.unwrap();
    let hello = Hello { oldest: VERSION, newest: VERSION, features: 0, program: "x".into() };
    client.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
    client.control.reply().await.unwrap();
    client.send(&Allocate { wait_ms: 10_000, ..request() }).await;
    let granted = client.granted().await;
    let uploads = if kinds.contains("code") { u64::MAX } else { 0 };
    tasks.spawn(async move {
        let mut code = vec![0; 16 << 20];
        for number in 0..uploads {
            code[..8].copy_from_slice(&number.to_le_bytes());
            let hash = *blake3::hash(&code).as_bytes();
            let (lease, token, bytes) = (granted.lease, granted.token.clone(), code.len() as u64);
            let mut put = Stream::open(&client.connection).await;
            let blob = PutBlob { lease, token, hash, bytes };
            put.frame(PutBlob::OPCODE, 0, 0, |out| blob.encode(out)).await;
            put.bytes(&code).await;
            _ = put.reply().await;
        }
    });
    // Connections, with frames that do not end.
    let connections = if kinds.contains("frames") { 150 } else { 0 };
    for _ in 0..connections {
        let connect = connect.clone();
        tasks.spawn(async move {
            loop {
                let Ok(client) = connect().await else { continue };
                let mut frame = Vec::new();
                Writer::new(&mut frame).put(1u32 << 20).put(Submit::OPCODE).put(0u16).put(0u32);
                frame.resize(1 << 20, 0);
                while let Ok((mut send, _receive)) = client.connection.open_bi().await {
                    let write = send.write_all(&frame);
                    _ = tokio::time::timeout(Duration::from_secs(1), write).await;
                }
            }
        });
    }
    // Requests that are refused.
    let flooders = if kinds.contains("refusals") { 4 } else { 0 };
    for _ in 0..flooders {
        let connect = connect.clone();
        tasks.spawn(async move {
            loop {
                let Ok(mut client) = connect().await else { continue };
                let hello =
                    Hello { oldest: VERSION, newest: VERSION, features: 0, program: "x".into() };
                client.control.frame(Hello::OPCODE, 0, 1, |out| hello.encode(out)).await;
                let device = Some("x".repeat(2000));
                for _ in 0..1000 {
                    client.send(&Allocate { device: device.clone(), ..request() }).await;
                }
                while client.control.reply().await.is_ok() {}
            }
        });
    }
    // Handshakes that do not end.
    let handshakes = if kinds.contains("handshakes") { 300 } else { 0 };
    tasks.spawn(async move {
        let (hole, _) = black_hole(address.parse().unwrap(), "127.0.0.2", usize::MAX);
        let endpoint = Endpoint::client(([127, 0, 0, 1], 0).into()).unwrap();
        let config = tls().config_for(hole).unwrap();
        loop {
            let begin = || endpoint.connect_with(config.clone(), hole, "127.0.0.1").ok();
            let begun: Vec<_> = (0..handshakes).map(|_| begin()).collect();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(begun);
        }
    });
    while tasks.join_next().await.is_some() {}
}

/// A runtime of the lowest priority: an abuser usually has processors of its own, on another machine.
fn idle_runtime() -> tokio::runtime::Runtime {
    // A thread has the priority of the one that starts it.
    let runtime = thread::spawn(|| {
        rustix::process::nice(19).unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(4).enable_all().build().unwrap()
    });
    runtime.join().unwrap()
}

fn resident(pid: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() << 12
}

/// Calls `during` while a thread observes the memory of the node. Returns its maximum too.
fn observed<T>(node: &Node, during: impl FnOnce() -> T) -> (T, u64) {
    let (most, ends) = (AtomicU64::new(0), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                most.fetch_max(resident(node.pid()), Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let result = during();
        ends.store(true, Ordering::Relaxed);
        result
    });
    (result, most.into_inner())
}

/// Keeps the device busy until `ends`, with copies of 4 MiB and kernels. With `BUSY=kernels` with kernels only.
fn keep_busy(lease: &Lease, ends: &AtomicBool) -> Result<()> {
    let kernels = Kernels::new(lease)?;
    let values = vec![1.5; 1 << 20];
    let without_copies = std::env::var("BUSY").is_ok_and(|busy| busy == "kernels");
    while !ends.load(Ordering::Relaxed) {
        match without_copies {
            true => kernels.run_many(1 << 20)?,
            false => drop(kernels.double(&values)?),
        }
    }
    Ok(())
}

/// Run it alone on a machine with idle cores: `cargo test -p cuda-node --test node -- --ignored neighbor --nocapture`.
#[test]
#[ignore = "a measurement"]
fn neighbor_of_an_abusive_tenant_keeps_its_speed() {
    let folder = certificates();
    let node = secured(folder.path(), &["--spares", "2"]);
    // A lease waits for the worker of the one before it to end.
    let wait = Duration::from_secs(10);
    let builder = |name| node.lease().tls(client(folder.path(), name)).wait(wait);
    let bob = || builder("bob");
    measure(bob, 10);
    let quiet = measure(bob, leases());
    // The same pipelines without a node, on the same device.
    let local = open_blocking(&device()).unwrap();
    pipelines(&local);
    let quiet_local = pipelines(&local);
    let before = resident(node.pid());

    let of_alice = builder("alice").acquire_blocking().unwrap();
    let (address, path) = (node.address.clone().into(), folder.path().to_owned());
    let abuser = idle_runtime();
    let abuse = abuser.spawn(abuse(address, move || client(&path, "alice")));
    thread::sleep(Duration::from_secs(3));
    let (abused, most) = observed(&node, || measure(bob, leases()));
    println!("| | quiet | abused | ratio |\n|---|---|---|---|");
    let acquire = abused.acquire.report("acquire", &quiet.acquire, 99);
    abused.acquire.report("acquire", &quiet.acquire, 50);
    let pipeline = abused.pipeline.report("pipeline", &quiet.pipeline, 50);
    abused.pipeline.report("pipeline", &quiet.pipeline, 99);
    println!("| memory of the supervisor, MiB | {} | {} | |", before >> 20, most >> 20);

    let ends = AtomicBool::new(false);
    let (busy, busy_local) = thread::scope(|scope| {
        scope.spawn(|| keep_busy(&of_alice, &ends).unwrap());
        thread::sleep(Duration::from_secs(1));
        let busy = (measure(bob, leases()), pipelines(&local));
        ends.store(true, Ordering::Relaxed);
        busy
    });
    assert!(!abuse.is_finished(), "the abuse has ended");
    abuser.shutdown_background();
    busy.acquire.report("acquire, with kernels", &quiet.acquire, 99);
    busy_local.report("pipeline without a node, with kernels", &quiet_local, 50);
    let with_kernels = busy.pipeline.report("pipeline, with kernels", &quiet.pipeline, 50);
    assert!(acquire <= 2.0 && pipeline <= 1.5, "{acquire:.2}, {pipeline:.2}");
    assert!(with_kernels <= 2.2, "{with_kernels:.2}");
    assert!(most <= STATED + BESIDE, "{most} bytes");
}
