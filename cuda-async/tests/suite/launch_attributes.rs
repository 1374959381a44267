//! Launches with attributes: cooperative grids, clusters, dependent launches and much shared memory, directly, in
//! graphs and in work that repeats. Also occupancy.

use std::sync::Arc;

use cuda_async::{
    Device, DeviceBuffer, DeviceOp, Error, Function, LaunchConfig, Module, cuda_launch,
    cuda_launch_async, kernel::Returned, launch, memory::fill, prelude::*,
};

use crate::{
    modules::{load_ptx, prepared},
    on_every_device,
};

on_every_device! {
    blocks_of_a_cooperative_grid_wait_for_each_other
    cooperative_grid_that_does_not_fit_is_refused
    blocks_of_a_cluster_share_their_memory
    cluster_that_no_device_runs_is_refused
    dependent_kernel_sees_the_writes_of_the_earlier_one
    graphs_keep_the_attributes_of_their_launches
    repeated_work_keeps_the_attributes_of_its_launches
    shared_memory_above_the_default_works_everywhere
    occupancy_falls_with_shared_memory
    launch_macros_take_attributes
}

const PTX: &str = include_str!("../../../kernels/sm_90/launches.ptx");

const THREADS: u32 = 64;

/// The kernels. `None` on a GPU before compute capability 9.0, which cannot load them.
fn module(device: &Device) -> Option<Module> {
    let loaded = load_ptx(device, PTX);
    if device.info().compute_capability >= (9, 0) {
        return Some(loaded.unwrap());
    }
    assert!(matches!(loaded, Err(Error::LoadFailed { .. } | Error::Driver { .. })), "{loaded:?}");
    None
}

fn function(device: &Device, name: &str) -> Option<Function> {
    Some(module(device)?.function(name).unwrap())
}

type Words = DeviceBuffer<u32>;

fn rotate(
    kernel: &Function,
    config: LaunchConfig,
    rounds: u32,
) -> impl DeviceOp<Output = Words> + use<> {
    let (n, kernel) = (config.grid[0] * config.block[0], kernel.clone());
    h2d((0..n).collect::<Vec<_>>()).then(move |values| {
        // SAFETY: `rotate` reads and writes one element per thread.
        unsafe { launch(&kernel, config, (values, rounds)) }
    })
}

fn rotated(config: LaunchConfig, rounds: u32) -> Vec<u32> {
    let [threads, n] = [config.block[0], config.grid[0] * config.block[0]];
    (0..n).map(|i| (i + rounds * threads) % n + rounds).collect()
}

fn blocks_of_a_cooperative_grid_wait_for_each_other(device: &Device) {
    let Some(kernel) = function(device, "rotate") else { return };
    let stream = device.new_stream().unwrap();
    let most = kernel.occupancy(LaunchConfig::new(1, THREADS)).wait().unwrap();
    for blocks in [1, 2, most.max_cooperative_blocks] {
        let config = LaunchConfig::new(blocks, THREADS).cooperative();
        let values = rotate(&kernel, config, 3).then(to_host).sync_on(&stream).unwrap();
        assert_eq!(values, rotated(config, 3), "{blocks} blocks");
    }
}

fn cooperative_grid_that_does_not_fit_is_refused(device: &Device) {
    let Some(kernel) = function(device, "rotate") else { return };
    let stream = device.new_stream().unwrap();
    let most = kernel.occupancy(LaunchConfig::new(1, THREADS)).wait().unwrap();
    let most = most.max_cooperative_blocks;
    let config = LaunchConfig::new(most + 1, THREADS).cooperative();
    let refused = rotate(&kernel, config, 1).then(to_host).sync_on(&stream).unwrap_err();
    assert!(matches!(refused, Error::InvalidLaunch { .. }), "{refused:?}");
    let message = refused.to_string();
    assert!(message.contains(&format!("{most} blocks fit at once")), "{message}");
    // The device goes on.
    let config = LaunchConfig::new(1, THREADS).cooperative();
    rotate(&kernel, config, 1).sync_on(&stream).unwrap();
}

fn cluster_values(n: u32) -> Vec<u32> {
    (0..n).map(|i| i * 7 % 31).collect()
}

fn cluster_sum(kernel: &Function, config: LaunchConfig) -> impl DeviceOp<Output = Words> + use<> {
    let (n, kernel) = (config.grid[0] * THREADS, kernel.clone());
    let config = config.shared_bytes(THREADS * 4);
    zip!(zeros::<u32>(n as usize), h2d(cluster_values(n)))
        .then(move |(sums, values)| {
            // SAFETY: `cluster_sum` reads and writes one element per thread.
            unsafe { launch(&kernel, config, (sums, Returned(values))) }
        })
        .map(|(sums, _)| sums)
}

fn cluster_sums(blocks: u32, cluster: u32) -> Vec<u32> {
    let values = cluster_values(blocks * THREADS);
    let of_cluster = (cluster * THREADS) as usize;
    let sum = |i: usize| {
        let first = i / of_cluster * of_cluster;
        let sum: u32 = values[first..first + of_cluster].iter().sum();
        sum * 100 + cluster * 10 + i as u32 / THREADS % cluster
    };
    (0..values.len()).map(sum).collect()
}

fn blocks_of_a_cluster_share_their_memory(device: &Device) {
    let Some(kernel) = function(device, "cluster_sum") else { return };
    let stream = device.new_stream().unwrap();
    let most = kernel.occupancy(LaunchConfig::new(1, THREADS)).wait().unwrap().max_cluster_blocks;
    assert!(most >= 8, "{most}");
    for cluster in [1, 2, 4, 8, 16].into_iter().filter(|blocks| *blocks <= most) {
        let config = LaunchConfig::new(16, THREADS).cluster(cluster, 1, 1);
        let sums = cluster_sum(&kernel, config).then(to_host).sync_on(&stream).unwrap();
        assert_eq!(sums, cluster_sums(16, cluster), "{cluster} blocks per cluster");
    }
    // A launch without a cluster comes between those with one.
    let sums = cluster_sum(&kernel, LaunchConfig::new(16, THREADS)).then(to_host);
    assert_eq!(sums.sync_on(&stream).unwrap(), cluster_sums(16, 1));
}

fn cluster_that_no_device_runs_is_refused(device: &Device) {
    let Some(kernel) = function(device, "cluster_sum") else { return };
    let stream = device.new_stream().unwrap();
    for (cluster, message) in [
        ((3, 1, 1), "not a multiple of cluster [3, 1, 1]"),
        ((32, 1, 1), "32 blocks per cluster, the limit is 16"),
        ((0, 1, 1), "cluster [0, 1, 1] has a 0"),
    ] {
        let (x, y, z) = cluster;
        let config = LaunchConfig::new(32, THREADS).cluster(x, y, z);
        let refused = cluster_sum(&kernel, config).sync_on(&stream).unwrap_err();
        assert!(matches!(refused, Error::InvalidLaunch { .. }), "{refused:?}");
        assert!(refused.to_string().contains(message), "{refused}");
    }
}

fn dependent_kernel_sees_the_writes_of_the_earlier_one(device: &Device) {
    let Some(module) = module(device) else { return };
    let stream = device.new_stream().unwrap();
    let [slow, after] =
        ["fill_slowly", "after_previous"].map(|name| module.function(name).unwrap());
    let n = 1u32 << 12;
    let config = LaunchConfig::for_num_elems(n);
    let spins = if device.info().driver.is_some() { 10_000u32 } else { 10 };
    for round in 0..20u32 {
        let (slow, after) = (slow.clone(), after.clone());
        let op = zeros::<u32>(n as usize)
            // SAFETY: `fill_slowly` writes n elements.
            .then(move |x| unsafe { launch(&slow, config, (x, round, n, spins)) })
            .then(move |x| {
                // SAFETY: `after_previous` waits for the earlier kernel, and changes n elements.
                let add = |x: Words| unsafe { launch(&after, config.dependent(), (x, n)) };
                let again = after.clone();
                // SAFETY: `after_previous` waits for the earlier kernel, and changes n elements.
                add(x).then(move |x| unsafe { launch(&again, config.dependent(), (x, n)) })
            });
        let values = op.then(to_host).sync_on(&stream).unwrap();
        assert_eq!(values, vec![round + 2; n as usize]);
    }
}

fn graphs_keep_the_attributes_of_their_launches(device: &Device) {
    let Some(module) = module(device) else { return };
    let stream = device.new_stream().unwrap();
    let [rotation, sum] = ["rotate", "cluster_sum"].map(|name| module.function(name).unwrap());
    let config = LaunchConfig::new(2, THREADS).cooperative();
    let graph = prepared(rotate(&rotation, config, 5).graph_on(&stream).unwrap());
    for _ in 0..3 {
        let values = graph.launch().then(to_host).sync_on(&stream).unwrap();
        assert_eq!(values, rotated(config, 5));
    }
    for cluster in [2, 4] {
        let config = LaunchConfig::new(8, THREADS).cluster(cluster, 1, 1);
        let graph = prepared(cluster_sum(&sum, config).graph_on(&stream).unwrap());
        let sums = graph.launch().then(to_host).sync_on(&stream).unwrap();
        assert_eq!(sums, cluster_sums(8, cluster));
    }
    // A dependent launch in a graph waits for the node before it.
    let after = module.function("after_previous").unwrap();
    let config = LaunchConfig::new(1, 32).dependent();
    let op = zeros::<u32>(32).then(|x| fill(x, 4)).then(move |x| {
        // SAFETY: `after_previous` changes 32 elements.
        unsafe { launch(&after, config, (x, 32u32)) }
    });
    let graph = prepared(op.graph_on(&stream).unwrap());
    assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), [5; 32]);
}

/// A device may launch work that repeats as a graph, whose nodes keep their attributes.
fn repeated_work_keeps_the_attributes_of_its_launches(device: &Device) {
    let Some(kernel) = function(device, "cluster_sum") else { return };
    let stream = device.new_stream().unwrap();
    let n = 8 * THREADS;
    let values = Arc::new(h2d(cluster_values(n)).sync_on(&stream).unwrap());
    let mut sums = zeros::<u32>(n as usize).sync_on(&stream).unwrap();
    for round in 0..60usize {
        let last = [2, 8, 4][round % 3];
        let clusters = [4, 1, 2, last];
        for cluster in clusters {
            let config = LaunchConfig::new(8, THREADS).shared_bytes(THREADS * 4);
            let config = if cluster == 1 { config } else { config.cluster(cluster, 1, 1) };
            let arguments = (&mut sums, Returned(&*values));
            // SAFETY: `cluster_sum` reads and writes one element per thread.
            unsafe { launch(&kernel, config, arguments) }.sync_on(&stream).unwrap();
        }
        assert_eq!(to_host(&sums).sync_on(&stream).unwrap(), cluster_sums(8, last), "{round}");
    }
    let mut sums = sums;
    for round in 0..60usize {
        let last = [2, 8, 4][round % 3];
        let op = [4, 1, 2, last].into_iter().fold(value(sums).boxed(), |op, cluster| {
            let (kernel, values) = (kernel.clone(), values.clone());
            op.then(move |sums| {
                let config = LaunchConfig::new(8, THREADS).shared_bytes(THREADS * 4);
                let config = if cluster == 1 { config } else { config.cluster(cluster, 1, 1) };
                // SAFETY: `cluster_sum` reads and writes one element per thread.
                unsafe { launch(&kernel, config, (sums, Returned(values))) }.map(|(sums, _)| sums)
            })
            .boxed()
        });
        sums = op.sync_on(&stream).unwrap();
        assert_eq!(to_host(&sums).sync_on(&stream).unwrap(), cluster_sums(8, last), "{round}");
    }
}

fn shared_memory_above_the_default_works_everywhere(device: &Device) {
    let Some(kernel) = function(device, "through_shared") else { return };
    let stream = device.new_stream().unwrap();
    let run = |bytes: u32, kernel: &Function| {
        let (kernel, config) = (kernel.clone(), LaunchConfig::new(4, 128).shared_bytes(bytes));
        // SAFETY: `through_shared` writes one element per block, and uses `bytes` bytes of shared memory.
        zeros::<u32>(4).then(move |out| unsafe { launch(&kernel, config, (out, bytes / 4)) })
    };
    for bytes in [1 << 10, 49 << 10, 100 << 10, device.info().max_shared_bytes] {
        let expected = [(bytes / 4 - 1) * 3; 4];
        // In a graph first: it raises the limit of the kernel too.
        let fresh = function(device, "through_shared").unwrap();
        let graph = prepared(run(bytes, &fresh).graph_on(&stream).unwrap());
        assert_eq!(graph.launch().then(to_host).sync_on(&stream).unwrap(), expected);
        assert_eq!(run(bytes, &kernel).then(to_host).sync_on(&stream).unwrap(), expected);
    }
    let too_many = device.info().max_shared_bytes + 4;
    let refused = run(too_many, &kernel).sync_on(&stream).unwrap_err();
    assert!(matches!(refused, Error::InvalidLaunch { .. }), "{refused:?}");
}

fn occupancy_falls_with_shared_memory(device: &Device) {
    let Some(kernel) = function(device, "through_shared") else { return };
    let ask = |threads, bytes| {
        kernel.occupancy(LaunchConfig::new(1, threads).shared_bytes(bytes)).wait().unwrap()
    };
    let (small, large) = (ask(128, 0), ask(128, device.info().max_shared_bytes));
    assert!(small.blocks_per_multiprocessor > 1, "{small:?}");
    assert_eq!(large.blocks_per_multiprocessor, 1, "{large:?}");
    for occupancy in [small, large] {
        let all = occupancy.blocks_per_multiprocessor * device.info().multiprocessors;
        assert_eq!(occupancy.max_cooperative_blocks, all);
        assert_eq!(occupancy.kernel, small.kernel);
    }
    assert!(ask(1024, 0).blocks_per_multiprocessor < small.blocks_per_multiprocessor);
    assert!((1..=255).contains(&small.kernel.registers), "{small:?}");
    assert_eq!((small.kernel.static_shared_bytes, small.kernel.local_bytes), (0, 0));
    assert_eq!(small.kernel.max_threads, kernel.info().max_threads);
    let config = kernel.suggested_block(0).wait().unwrap().launch_config(1000);
    assert!(
        config.block[0].is_multiple_of(32) && config.blocks() * u64::from(config.block[0]) >= 1000
    );
    assert_eq!(
        futures::executor::block_on(kernel.suggested_block(0)).unwrap().kernel,
        small.kernel
    );
}

fn launch_macros_take_attributes(device: &Device) {
    let Some(module) = module(device) else { return };
    let stream = device.new_stream().unwrap();
    let n = 8 * THREADS;
    let config = LaunchConfig::new(8, THREADS).shared_bytes(THREADS * 4);
    let values = h2d(cluster_values(n)).sync_on(&stream).unwrap();
    let mut sums = zeros::<u32>(n as usize).sync_on(&stream).unwrap();
    // SAFETY: `cluster_sum` reads and writes one element per thread.
    unsafe {
        cuda_launch! {
            kernel: cluster_sum,
            stream: stream,
            module: module,
            config: config,
            cluster_dim: (4, 1, 1),
            args: [slice_mut(sums), slice(values)]
        }
    }
    .unwrap();
    assert_eq!(to_host(sums).sync_on(&stream).unwrap(), cluster_sums(8, 4));
    let config = LaunchConfig::new(2, THREADS);
    let values = h2d((0..2 * THREADS).collect::<Vec<_>>()).sync_on(&stream).unwrap();
    // SAFETY: `rotate` changes one element per thread.
    let op = unsafe {
        cuda_launch_async! {
            kernel: rotate,
            module: module,
            config: config,
            cooperative: true,
            args: [slice_mut(values), 2u32]
        }
    };
    assert_eq!(op.then(to_host).sync_on(&stream).unwrap(), rotated(config, 2));
}
