//! Shows on a GPU that a node enforces leases, and that tenants do not disturb each other.
//!
//! `cargo bench -p benches --bench enforcement -- HOST:PORT GRACE_MS`, with the address and the grace of a `cuda-node`
//! for `cuda:0`. Beside the neighbors on the node, it measures two plain processes that share the GPU.

mod neighbor;
mod plain;
mod tenants;

use std::{
    thread,
    time::{Duration, Instant},
};

use benches::done;
use cuda_async::prelude::*;
use cuda_core::{Error, protocol::Status};
use cuda_lease::{Exclusivity, LeaseBuilder};
use cuda_node::gpu::{GpuInfo, GpuMonitor, NvmlMonitor};

use crate::neighbor::Neighbor;

type Failure = Box<dyn std::error::Error>;

/// The time of a measurement of speed.
const MEASURE: Duration = Duration::from_secs(2);

/// The memory of the tenant with the endless kernel.
const MEMORY: u64 = 4 << 30;

/// The time of the lease that expires, in seconds.
const LEASE_SECS: u32 = 4;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> =
        std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["plain-work"] => plain::work(),
        ["plain-endless"] => plain::endless(),
        [node, grace] => enforcement(node, Duration::from_millis(grace.parse()?)),
        _ => Err("usage: enforcement HOST:PORT GRACE_MS".into()),
    }
}

fn lease(node: &str) -> LeaseBuilder {
    LeaseBuilder::new(node).min_vram(1 << 30)
}

fn enforcement(node: &str, grace: Duration) -> Result<(), Failure> {
    let gpu = Gpu::first()?;
    println!("# {}, driver {}", gpu.info.name, gpu.info.driver_version);
    println!("\n| what | measured |\n|---|---:|");
    let plain_alone = plain::rate_of_work(MEASURE)?;
    let plain_beside = plain::rate_beside_endless(MEASURE)?;
    row("plain process alone", format!("{plain_alone:.0} pipelines/s"));
    row(
        "plain process beside one with an endless kernel",
        format!("{plain_beside:.0} pipelines/s"),
    );

    let held = lease(node).acquire_blocking()?;
    let neighbor = Neighbor::start(held.device())?;
    let alone = neighbor.rate(MEASURE);
    row("lease alone", format!("{alone:.0} pipelines/s"));

    endless(node, grace, &gpu, &neighbor, (alone, plain_alone, plain_beside))?;
    faults(node, &gpu, &neighbor, alone)?;
    row("pipelines of the neighbor with other bits", neighbor.stop()?.to_string());
    drop(held);

    device_exclusive(node)?;
    quota(node)?;
    freed_memory(node)?;
    Ok(())
}

/// A lease expires during an endless kernel.
fn endless(
    node: &str,
    grace: Duration,
    gpu: &Gpu,
    neighbor: &Neighbor,
    (alone, plain_alone, plain_beside): (f64, f64, f64),
) -> Result<(), Failure> {
    let before = gpu.used();
    let tenant =
        lease(node).min_vram(MEMORY).lease_secs(LEASE_SECS).without_renewal().acquire_blocking()?;
    let ends = Instant::now() + tenant.expires_in() + grace;
    let endless = tenants::start_endless(tenant.device(), MEMORY)?;
    thread::sleep(Duration::from_millis(300));
    let beside = neighbor.rate(MEASURE);
    row("lease beside a lease with an endless kernel", format!("{beside:.0} pipelines/s"));
    row(
        "slowdown beside an endless kernel: leased, plain, leased to plain",
        format!(
            "{:.2}, {:.2}, {:.2}",
            alone / beside,
            plain_alone / plain_beside,
            (alone / beside) / (plain_alone / plain_beside)
        ),
    );
    thread::sleep(ends.saturating_duration_since(Instant::now()));
    // A worker without a lease may have started meanwhile.
    gpu.wait_until(|used| used < before + MEMORY / 2);
    row("memory back after the end of the grace", format!("{:?}", ends.elapsed()));
    let Some(Err(error)) = endless.join().ok() else {
        return Err("the endless kernel ended without an error".into());
    };
    row("the error of the expired tenant", error.to_string());
    thread::sleep((ends + Duration::from_secs(1)).saturating_duration_since(Instant::now()));
    let after = neighbor.rate(MEASURE);
    row("lease 1 s after the kill, to alone", format!("{:.3}", after / alone));
    Ok(())
}

/// Tenants fault, one after the other.
fn faults(node: &str, gpu: &Gpu, neighbor: &Neighbor, alone: f64) -> Result<(), Failure> {
    let mut longest = Duration::ZERO;
    for _ in 0..3 {
        let before = gpu.used();
        let tenant = lease(node).min_vram(MEMORY).acquire_blocking()?;
        let error = done(tenants::fault(tenant.device(), MEMORY).err().ok_or("no fault"));
        if !matches!(error, Error::Fault(_)) {
            return Err(error.into());
        }
        let freed = Instant::now();
        drop(tenant);
        gpu.wait_until(|used| used < before + MEMORY / 2);
        longest = longest.max(freed.elapsed());
    }
    row("memory back after the drop of a lease that faulted, longest of 3", format!("{longest:?}"));
    thread::sleep(Duration::from_secs(1));
    let after = neighbor.rate(MEASURE);
    row("lease 1 s after faults of others, to alone", format!("{:.3}", after / alone));
    Ok(())
}

/// No other lease gets on the device of a device-exclusive one.
fn device_exclusive(node: &str) -> Result<(), Failure> {
    let held = lease(node)
        .exclusive(Exclusivity::Device)
        .wait(Duration::from_secs(5))
        .acquire_blocking()?;
    let neighbor = Neighbor::start(held.device())?;
    let alone = neighbor.rate(MEASURE);
    let refused = lease(node).acquire_blocking().map(drop);
    let waiting = thread::spawn({
        let node = node.to_owned();
        move || lease(&node).wait(Duration::from_secs(30)).acquire_blocking().map(drop)
    });
    let beside = neighbor.rate(MEASURE);
    row("device-exclusive lease while others wait, to alone", format!("{:.3}", beside / alone));
    row("a request meanwhile", refused.err().map_or("granted".into(), |error| error.to_string()));
    row("pipelines of the device-exclusive lease with other bits", neighbor.stop()?.to_string());
    drop(held);
    let later = waiting.join().map_err(|_| "the thread that waits panicked")?;
    row(
        "the request that waited, after the end",
        later.map_or_else(|error| error.to_string(), |()| "granted".into()),
    );
    Ok(())
}

/// A tenant requests more memory than it has.
fn quota(node: &str) -> Result<(), Failure> {
    let tenant = lease(node).acquire_blocking()?;
    let stream = tenant.device().new_stream()?;
    let error = zeros::<u8>(2 << 30).sync_on(&stream).err().ok_or("2 GiB of 1 GiB were granted")?;
    row("allocation of 2 GiB in a lease of 1 GiB", error.to_string());
    let module = tenant.device().load_ptx_blocking(tenants::LARGE_VARIABLE);
    row(
        "a module with a variable of 4 GiB",
        match module {
            Ok(_) => tenants::end_of(&tenant)?.to_string(),
            Err(error) => error.to_string(),
        },
    );
    let free = lease(node).min_vram(1 << 50).acquire_blocking().err().ok_or("1 PiB was granted")?;
    let is_refused = matches!(&free, Error::Remote { status: Status::TooLarge, .. });
    row("a lease of 1 PiB", if is_refused { "too large".into() } else { free.to_string() });
    Ok(())
}

/// A tenant looks for what an earlier one left.
fn freed_memory(node: &str) -> Result<(), Failure> {
    const BYTES: u64 = 48 << 30;
    let first = lease(node).min_vram(BYTES + (1 << 30)).acquire_blocking()?;
    tenants::fill(first.device(), BYTES)?;
    let own = tenants::count(first.device(), BYTES, true)?;
    drop(first);
    let second =
        lease(node).min_vram(BYTES + (1 << 30)).wait(Duration::from_secs(10)).acquire_blocking()?;
    let found = tenants::count(second.device(), BYTES, false)?;
    row("words of a pattern that a tenant wrote to 48 GiB and found", own.to_string());
    row("of these, found by the next tenant", found.to_string());
    Ok(())
}

fn row(what: &str, measured: String) {
    println!("| {what} | {measured} |");
}

/// The first GPU, by NVML.
struct Gpu {
    monitor: NvmlMonitor,
    info: GpuInfo,
}

impl Gpu {
    fn first() -> Result<Self, Failure> {
        let monitor = NvmlMonitor::new()?;
        let info = monitor.devices()?.into_iter().next().ok_or("no GPU")?;
        Ok(Self { monitor, info })
    }

    fn used(&self) -> u64 {
        done(self.monitor.used(&self.info.uuid))
    }

    fn wait_until(&self, is_so: impl Fn(u64) -> bool) {
        while !is_so(self.used()) {
            thread::sleep(Duration::from_millis(1));
        }
    }
}
