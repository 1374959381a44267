//! Matrix instructions of half a warp, and unsupported instructions: both are rejected by name.

use cuda_cpu::{FaultKind, Memory, Program};

use super::kernel;
use super::misuse::{REGISTERS, fault, run};

const MULTIPLY: &str =
    "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {n0, n1}, {n2}, {n3}, {n4, n5};";

#[test]
fn matrices_belong_to_whole_warps() {
    let inputs = "mov.u32 t, %tid.x; mov.u32 n2, 1; mov.u32 n3, 1; mov.u32 n4, 9; mov.u32 n5, 9;
        cvt.u64.u32 y, 0;";
    for instruction in [
        MULTIPLY,
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {n0}, [room];",
        "stmatrix.sync.aligned.m8n8.x1.shared.b16 [room], {n2};",
        "movmatrix.sync.aligned.m8n8.trans.b16 n0, n2;",
        "wmma.load.a.sync.aligned.row.m8n8k32.shared.s4 {n0}, [room];",
        "wmma.store.d.sync.aligned.row.m8n8k32.shared.s32 [room], {n2, n3};",
        "wmma.mma.sync.aligned.row.col.m8n8k32.s32.s4.s4.s32 {n0, n1}, {n2}, {n3}, {n4, n5};",
    ] {
        for (guard, lanes) in
            [("setp.lt.u32 p, t, 40; @p", 0xFF), ("setp.eq.u32 p, t, 63; @p", 1 << 31)]
        {
            let f = fault(&format!("{inputs} {guard} {instruction}"), 64);
            assert_eq!(f.kind, FaultKind::PartialWarp { lanes }, "{instruction}: {f}");
        }
        let f = fault(&format!("{inputs} {instruction}"), 16);
        assert_eq!(f.kind, FaultKind::PartialWarp { lanes: 0xFFFF }, "{instruction}: {f}");
    }
    // One warp executes it, and the other one does not.
    let body = format!(
        "{inputs} mov.u32 n0, 3; mov.u32 n1, 4; setp.ge.u32 p, t, 32; @p {MULTIPLY}
        mul.wide.u32 x, t, 8; add.u64 o, o, x; st.global.v2.u32 [o], {{n0, n1}};"
    );
    let out = run(&body, 64);
    assert_eq!((&out[..2], &out[62..66]), (&[3, 4][..], &[3, 4, 13, 13][..]));
}

#[test]
fn unsupported_instructions_are_named() {
    for (instruction, named) in [
        ("wgmma.fence.sync.aligned;", "wgmma"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {n0, n1, n2, n3}, a, b, 1, 1, 1, 0, 0;",
            "multiplications by warp groups",
        ),
        ("tcgen05.wait::ld.sync.aligned;", "compile for sm_80"),
        ("tex.2d.v4.f32.f32 {n0, n1, n2, n3}, [a, {t, u}];", "textures and surfaces"),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [room], [a, {t, u}], [s];",
            "tensor maps",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32 {n0, n1, n2, n3}, {n0, n1, n2, n3}, {n0, n1}, {n0, n1, n2, n3};",
            "kind::f8f6f4",
        ),
        (
            "ldmatrix.sync.aligned.m8n16.x1.shared.b8x16.b6x16_p32 {n0}, [room];",
            "elements of 4 or 6 bits",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.row.f32.f16.f16.f32 {n0, n1, n2, n3}, {n0, n1}, {n2}, {n0, n1, n2, n3};",
            "row.row",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {n0, n1, n2, n3}, {n0, n1}, {n2}, {n0, n1, n2, n3};",
            "a vector of 2",
        ),
        ("cp.async.cg.shared.global [room], [a], 8;", "cp.async.cg"),
        ("fence.proxy.foo;", "fence.proxy.foo"),
        ("fence.acquire.sync_restrict::shared::cta.cluster;", "sync_restrict"),
        ("mbarrier.arrive.noComplete.release.cta.shared.b32 k, [s], 1;", "mbarrier.arrive"),
        ("createpolicy.fractional.L2::evict_last.b64 x, 1.5;", "createpolicy"),
        ("setmaxnreg.inc.sync.aligned.u32 65;", "setmaxnreg"),
    ] {
        let module = cuda_ptx::parse(&kernel(REGISTERS, instruction))
            .unwrap_or_else(|e| panic!("{instruction}: {e}"));
        let error =
            Program::load(&module, &Memory::new(1 << 30)).expect_err(instruction).to_string();
        assert!(error.contains(named), "{error}");
    }
}
