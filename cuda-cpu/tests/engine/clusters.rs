//! Launches with attributes: clusters of several blocks, and cooperative grids.

use cuda_cpu::{FaultKind, Invalid, LaunchError, Schedule};

use crate::args;
use crate::host::Host;

const LAUNCHES: &str = include_str!("../../../kernels/sm_90/launches.ptx");

/// The kernel rotates its values by one block, and adds 1, in each round.
fn rotated(blocks: u32, threads: u32, rounds: u32) -> Vec<u32> {
    let n = blocks * threads;
    (0..n).map(|i| (i + rounds * threads) % n + rounds).collect()
}

fn rotate(host: &Host, blocks: u32, threads: u32, rounds: u32) -> Result<Vec<u32>, LaunchError> {
    let n = blocks * threads;
    let values = host.upload(&(0..n).collect::<Vec<_>>());
    host.launch("rotate", blocks, threads, args![values, rounds])?;
    Ok(host.download(values, n as usize))
}

#[test]
fn blocks_of_a_cooperative_grid_wait_for_each_other() {
    for schedule in [Schedule::Fixed, Schedule::Shuffled { seed: 3 }, Schedule::Parallel] {
        let mut host = Host::with_pool(LAUNCHES, 2);
        host.cooperative = Some(16);
        host.schedule = schedule;
        assert_eq!(rotate(&host, 300, 32, 3).unwrap(), rotated(300, 32, 3), "{schedule:?}");
        let used = host.memory.usage().used;
        rotate(&host, 4, 64, 1).unwrap();
        assert_eq!(host.memory.usage().used, used + 1024, "the workspace is freed");
    }
}

#[test]
fn cooperative_grid_larger_than_fits_is_refused() {
    let mut host = Host::new(LAUNCHES);
    host.cooperative = Some(2);
    let (blocks, most) = (17, 16);
    let refused = rotate(&host, 17, 256, 1).unwrap_err();
    assert_eq!(refused, LaunchError::Invalid(Invalid::Cooperative { blocks, most }));
    assert!(rotate(&host, 16, 256, 1).is_ok());
}

#[test]
fn grid_barrier_without_a_cooperative_launch_is_a_fault() {
    let host = Host::new(LAUNCHES);
    let Err(LaunchError::Fault(fault)) = rotate(&host, 2, 32, 1) else { panic!("no fault") };
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. } | FaultKind::Trap), "{fault}");
}

#[test]
fn blocks_of_a_cluster_read_each_others_shared_memory() {
    let clusters = [[1, 1, 1], [2, 1, 1], [4, 1, 1], [8, 1, 1], [16, 1, 1]];
    for schedule in [Schedule::Fixed, Schedule::Shuffled { seed: 5 }, Schedule::Parallel] {
        for cluster in clusters {
            let mut host = Host::with_pool(LAUNCHES, 2);
            (host.cluster, host.schedule) = (Some(cluster), schedule);
            let (blocks, threads) = (32, 48);
            let values: Vec<u32> = (0..blocks * threads).map(|i| i * 7 % 31).collect();
            let (sums, input) = (host.zeros::<u32>(values.len()), host.upload(&values));
            let args = args![sums, input];
            host.launch_shared("cluster_sum", blocks, threads, threads * 4, args).unwrap();
            let of_cluster = (cluster[0] * threads) as usize;
            let expected: Vec<u32> = (0..values.len())
                .map(|i| {
                    let first = i / of_cluster * of_cluster;
                    let sum: u32 = values[first..first + of_cluster].iter().sum();
                    let rank = i as u32 / threads % cluster[0];
                    sum * 100 + cluster[0] * 10 + rank
                })
                .collect();
            assert_eq!(host.download::<u32>(sums, values.len()), expected, "{cluster:?}");
        }
    }
}

#[test]
fn clusters_that_do_not_fit_are_refused() {
    let mut host = Host::new(LAUNCHES);
    for cluster in [[3, 1, 1], [0, 1, 1], [32, 1, 1], [8, 4, 1]] {
        host.cluster = Some(cluster);
        let refused = host.launch("after_previous", 32, 32, args![0u64, 0u32]).unwrap_err();
        let grid = [32, 1, 1];
        assert_eq!(refused, LaunchError::Invalid(Invalid::Cluster { grid, cluster }));
    }
}

/// A kernel with a cluster of its own.
fn module(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_90\n.address_size 64\n
        .visible .entry k(.param .u64 out) .explicitcluster .reqnctapercluster 2, 2, 1
        {{
            .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %d<8>;
            .shared .align 8 .b8 memory[64];
            ld.param.u64 %d1, [out];
            {body}
            ret;
        }}"
    )
}

#[test]
fn special_registers_describe_the_cluster() {
    let registers = [
        "cluster_ctarank",
        "cluster_nctarank",
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "clusterid.x",
        "clusterid.y",
        "nclusterid.x",
        "nclusterid.y",
    ];
    let mut body = String::from(
        "mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mad.lo.u32 %r1, %r2, 4, %r1;
         mul.wide.u32 %d2, %r1, 40; add.u64 %d1, %d1, %d2;",
    );
    for (at, register) in registers.iter().enumerate() {
        body += &format!("mov.u32 %r3, %{register}; st.global.u32 [%d1+{}], %r3;\n", at * 4);
    }
    let host = Host::new(&module(&body));
    let out = host.zeros::<u32>(16 * registers.len());
    host.run("k", (4, 4), 1, args![out]);
    for (block, found) in host.download::<u32>(out, 160).chunks(10).enumerate() {
        let (x, y) = (block as u32 % 4, block as u32 / 4);
        let rank = x % 2 + y % 2 * 2;
        assert_eq!(found, [rank, 4, x % 2, y % 2, 2, 2, x / 2, y / 2, 2, 2]);
    }
    let mut other = Host::new(&module(&body));
    other.cluster = Some([4, 1, 1]);
    let refused = other.launch("k", (4, 4), 1, args![out]).unwrap_err();
    let (cluster, required) = ([4, 1, 1], [2, 2, 1]);
    assert_eq!(refused, LaunchError::Invalid(Invalid::RequiredCluster { cluster, required }));
}

#[test]
fn blocks_signal_mbarriers_of_other_blocks() {
    // Every block arrives at the mbarrier of block 0, with its rank added to a word there. Block 0 waits for four.
    let host = Host::new(&module(
        "mov.u32 %r1, %cluster_ctarank; setp.ne.u32 %p1, %r1, 0; mov.u32 %r2, memory;
         @!%p1 mbarrier.init.shared.b64 [%r2], 4; mov.u32 %r3, 0; @!%p1 st.shared.u32 [%r2+8], %r3;
         barrier.cluster.arrive; barrier.cluster.wait;
         mapa.shared::cluster.u32 %r4, %r2, 0;
         getctarank.shared::cluster.u32 %r5, %r4; add.u32 %r6, %r1, %r5;
         red.shared::cluster.add.u32 [%r4+8], %r6;
         mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r4];
         @%p1 bra END;
      L: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra L;
         ld.shared.u32 %r7, [%r2+8]; st.global.u32 [%d1], %r7;
    END: barrier.cluster.arrive; barrier.cluster.wait;",
    ));
    let out = host.zeros::<u32>(1);
    host.run("k", (2, 2), 1, args![out]);
    assert_eq!(host.download::<u32>(out, 1), [1 + 2 + 3]);
}

#[test]
fn access_to_a_block_that_has_ended_is_a_fault() {
    let host = Host::new(&module(
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 0; @%p1 bra END;
         mov.u32 %r2, 0;
      L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 1000000; @%p2 bra L;
         mov.u32 %r3, memory; mapa.shared::cluster.u32 %r4, %r3, 0;
         ld.shared::cluster.u32 %r5, [%r4];
    END:",
    ));
    let Err(LaunchError::Fault(fault)) = host.launch("k", (2, 2), 1, args![0u64]) else {
        panic!("no fault")
    };
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { .. }), "{fault}");
    assert_ne!(fault.block, [0, 0, 0]);
}

#[test]
fn cluster_that_waits_without_end_is_a_deadlock() {
    let host = Host::new(&module(
        "mov.u32 %r1, %cluster_ctarank; setp.eq.u32 %p1, %r1, 3; mov.u32 %r2, memory;
         mbarrier.init.shared.b64 [%r2], 1;
         @%p1 bra WAIT;
         barrier.cluster.arrive; barrier.cluster.wait; ret;
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r2], 0; @!%p2 bra WAIT;",
    ));
    let Err(LaunchError::Fault(fault)) = host.launch("k", (2, 2), 1, args![0u64]) else {
        panic!("no fault")
    };
    assert!(matches!(fault.kind, FaultKind::Deadlock { .. }), "{fault}");
}

#[test]
fn block_that_computes_for_long_is_no_deadlock() {
    let host = Host::new(&module(
        "mov.u32 %r1, %cluster_ctarank; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;
         mov.u32 %r2, 0;
      L: add.u32 %r2, %r2, 1; setp.lt.u32 %p2, %r2, 40000000; @%p2 bra L;
    END: barrier.cluster.arrive; barrier.cluster.wait;",
    ));
    host.run("k", (2, 2), 1, args![0u64]);
}
