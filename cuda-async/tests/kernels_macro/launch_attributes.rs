//! Declared kernels with launch attributes.

use cuda_async::{Error, LaunchConfig, open_blocking, prelude::*};

cuda_async::kernels! {
    #[ptx = "../kernels/sm_90/launches.ptx"]
    unsafe struct Launches; // SAFETY: the conditions and the shapes give each thread one element.

    #[config(grid = values.len() / 64, block = 64)]
    #[cooperative]
    safe fn rotate(values: &mut [u32], rounds: u32) where values.len() % 64 == 0;

    #[config(grid = values.len() / 64, block = 64, shared = 256)]
    #[cluster(4)]
    safe fn cluster_sum(sums: &mut [u32], values: &[u32])
    where values.len() % 64 == 0, sums.len() == values.len();

    #[elements(n)]
    #[cluster(2)]
    #[dependent]
    safe fn after_previous(values: &mut [u32], n: u32 = values.len());
}

#[test]
fn attributes_reach_the_launch() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let stream = device.new_stream()?;
    let launches = Launches::load(&device)?;
    // Without `#[cooperative]`, `grid.sync()` traps.
    let values = launches.rotate(zeros(128), 3).then(to_host).sync_on(&stream)?;
    assert_eq!(values, [3; 128]);
    let sums = launches.cluster_sum(zeros(512), h2d(vec![1u32; 512]));
    let sums = sums.then(|(sums, _)| to_host(sums)).sync_on(&stream)?;
    assert!(sums.iter().enumerate().all(|(i, sum)| *sum as usize == 25_640 + i / 64 % 4));
    // One block is rounded up to a cluster of two.
    assert_eq!(launches.after_previous(zeros(5)).then(to_host).sync_on(&stream)?, [1; 5]);
    Ok(())
}

#[test]
fn grid_that_is_no_multiple_of_the_cluster_is_refused() -> Result<(), Error> {
    let device = open_blocking("cpu")?;
    let launches = Launches::load(&device)?;
    let op = launches.cluster_sum(zeros(64), zeros(64));
    let refused = op.sync_on(&device.new_stream()?).map(drop).unwrap_err();
    assert!(refused.to_string().contains("not a multiple of cluster [4, 1, 1]"), "{refused}");
    assert!(LaunchConfig::new(1, 1).dependent().attributes.is_dependent());
    Ok(())
}
