//! Instructions by kind.

use std::sync::Arc;

use cuda_cpu::Profile;

use crate::args;
use crate::host::Host;

#[test]
fn counts_warps_and_threads_by_kind() {
    for mut h in [
        Host::new(include_str!("../../../kernels/vecadd.ptx")),
        Host::with_pool(include_str!("../../../kernels/vecadd.ptx"), 3),
    ] {
        let profile = Arc::new(Profile::new());
        h.profile = Some(profile.clone());
        let n = 1000u32;
        let [a, b, c] = [(); 3].map(|()| h.upload(&vec![1.0f32; n as usize]));
        for _ in 0..2 {
            h.run("vecadd", 4, 256, args![a, b, c, n]);
        }
        let [kernel] = &profile.kernels()[..] else { panic!() };
        assert_eq!((kernel.kernel.as_str(), kernel.launches), ("vecadd", 2));
        let of = |kind: &str| kernel.kinds.iter().find(|count| count.kind == kind).unwrap();
        // 4 blocks of 8 warps, launched twice. The last warp has 8 of the 1000 threads.
        let adds = of("add.f32");
        assert_eq!((adds.warps, adds.threads), (64, 2000));
        assert_eq!((of("ld.global.f32").warps, of("ld.global.f32").threads), (128, 4000));
        assert_eq!((of("ret").warps, of("ret").threads), (64, 2048));
        assert_eq!(kernel.warps(), kernel.kinds.iter().map(|count| count.warps).sum::<u64>());
        assert!(kernel.kinds.is_sorted_by(|a, b| a.warps >= b.warps));
        let text = profile.to_string();
        assert!(text.starts_with("kernel `vecadd`: 2 launches, "), "{text}");
        assert!(text.lines().any(|line| line.ends_with(" 100.0 %  ret")), "{text}");
    }
}

/// Launches that end with a fault are also counted.
#[test]
fn counts_up_to_a_fault() {
    let mut h = Host::new(include_str!("../../../kernels/faults.ptx"));
    let profile = Arc::new(Profile::new());
    h.profile = Some(profile.clone());
    h.launch("null_store", 1, 1, &[]).unwrap_err();
    assert!(profile.kernels()[0].kinds.iter().any(|count| count.kind.starts_with("st.")));
}
