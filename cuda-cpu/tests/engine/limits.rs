//! Unchecked sizes in the PTX cause errors and do not exhaust the host's memory.

use cuda_cpu::{FaultKind, Invalid, Launch, LaunchDims, LaunchError, LoadError, Memory, Program};

use crate::args;
use crate::host::Host;

fn load(text: &str) -> Result<Program, LoadError> {
    let ptx = format!(".version 7.0\n.target sm_70\n.address_size 64\n{text}");
    let module = cuda_ptx::parse(&ptx).unwrap_or_else(|e| panic!("{e}"));
    Program::load(&module, &Memory::new(1 << 30))
}

fn with_local(variables: &str) -> Result<Program, LoadError> {
    load(&format!(".visible .entry k() {{ {variables} ret; }}"))
}

#[test]
fn local_memory_is_limited() {
    with_local(".local .b8 a[524288];").unwrap();
    for variables in [
        ".local .b8 a[524289];",
        ".local .b8 a[1073741824];",
        ".local .b8 a[4294967295]; .local .align 16 .b8 b[16];",
        ".local .b8 a[524288]; .local .b8 b[1];",
    ] {
        let error = with_local(variables).expect_err(variables);
        assert!(error.to_string().contains("512 KiB of local memory"), "{error}");
    }
}

#[test]
fn shared_memory_is_limited() {
    for variables in [
        ".shared .b8 a[4294967295]; .shared .align 16 .b8 b[4294967295];",
        ".shared .b8 a[1099511627776]; .shared .align 16 .b8 b[8];",
    ] {
        let ptx = format!(
            ".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry k() {{ {variables} ret; }}"
        );
        // The parser may reject it first.
        if cuda_ptx::parse(&ptx).is_err() {
            continue;
        }
        let launched = Host::new(&ptx).launch("k", 1, 1, args![]);
        assert!(matches!(launched, Err(LaunchError::Invalid(Invalid::Shared { .. }))));
    }
}

#[test]
fn declared_blocks_and_clusters_of_any_size_are_checked() {
    let launch = |directives: &str| {
        let header = ".version 8.0\n.target sm_90\n.address_size 64\n";
        let ptx = format!("{header}.visible .entry k() {directives} {{ ret; }}");
        Host::new(&ptx).launch("k", 1, 32, args![])
    };
    launch(".maxntid 4294967295, 4294967295, 4294967295").unwrap();
    let refused = launch(".reqnctapercluster 4294967295, 4294967295, 4294967295").unwrap_err();
    let (grid, cluster) = ([1; 3], [u32::MAX; 3]);
    assert_eq!(refused, LaunchError::Invalid(Invalid::Cluster { grid, cluster }));
}

/// Global variables of a single kernel do not count as shared memory.
#[test]
fn large_global_variables_are_not_shared_ones() {
    let variables = ".global .b8 g[1000000]; .const .b8 c[60000]; .shared .b8 s[64];";
    let program = load(&format!(
        "{variables} .visible .entry k() {{ .reg .b64 a; mov.b64 a, g; mov.b64 a, c; mov.b64 a, s; ret; }}"
    ));
    assert_eq!(program.unwrap().entries()[0].static_shared, 64);
}

/// A recursion that takes 64 KiB of local memory per call.
const DEEP: &str = "
.version 7.0
.target sm_70
.address_size 64
.func (.param .b32 out) deep(.param .b32 n)
{
    .local .align 16 .b8 room[65536];
    .reg .pred %p<2>;
    .reg .b32 %r<4>;
    ld.param.u32 %r1, [n];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    sub.u32 %r1, %r1, 1;
    {
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r1;
        call (b), deep, (a);
    }
DONE:
    st.param.b32 [out], %r1;
    ret;
}
.visible .entry k(.param .u32 n)
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [n];
    {
        .param .b32 a;
        .param .b32 b;
        st.param.b32 [a], %r1;
        call (b), deep, (a);
    }
    ret;
}
.visible .entry wide()
{
    .local .b8 room[524288];
    ret;
}
";

#[test]
fn blocks_of_a_launch_share_the_budget() {
    // A block takes 512 MiB, so two fit at a time, with any number of threads.
    let h = Host::with_pool(DEEP, 4);
    h.run("wide", 3, 1024, args![]);
    // Each warp takes at most 16 MiB, unless the stack overflows.
    h.run("k", 4, 32, args![5u32]);
    let fault = |result| match result {
        Err(LaunchError::Fault(fault)) => fault.kind,
        other => panic!("no fault: {other:?}"),
    };
    let deep = fault(h.launch("k", 1, 32, args![9u32]));
    assert!(matches!(deep, FaultKind::CallDepth { .. }), "{deep}");
}

#[test]
fn parameter_block_has_the_length_of_the_parameters() {
    let h =
        Host::new(&format!("{HEADER}.visible .entry k(.param .u32 a, .param .u64 b) {{ ret; }}"));
    let dims = LaunchDims { grid: [1; 3], block: [1; 3], dynamic_shared: 0 };
    let check =
        |bytes: usize| h.program.check(0, &Launch::new(dims, &vec![0; bytes], &|_| ())).map(drop);
    assert_eq!(check(16), Ok(()));
    for given in [0, 12, 15, 17, 24] {
        assert_eq!(check(given), Err(Invalid::Params { given, needed: 16 }));
    }
}

const HEADER: &str = ".version 7.0\n.target sm_70\n.address_size 64\n";

fn fault(h: &Host, kernel: &str) -> FaultKind {
    match h.launch(kernel, 1, 32, args![]) {
        Err(LaunchError::Fault(fault)) => fault.kind,
        other => panic!("no fault: {other:?}"),
    }
}

/// Returns instructions that use `count` 64-bit registers of 256 bytes.
fn registers(count: usize) -> String {
    let pairs = (0..count / 2).map(|i| format!("mov.u64 %d{}, %d{};\n", 2 * i, 2 * i + 1));
    format!(".reg .b64 %d<{count}>;\n{}", pairs.collect::<String>())
}

#[test]
fn the_frames_of_a_recursion_are_limited() {
    // Each call takes 8 MiB of registers. A 32-bit sum of them would wrap to 0.
    for room in [32_720, 32_768, 131_072] {
        let h = Host::new(&format!(
            "{HEADER}.func f() {{ {} call f; ret; }} .visible .entry k() {{ call f; ret; }}",
            registers(room)
        ));
        let kind = fault(&h, "k");
        assert!(matches!(kind, FaultKind::CallDepth { .. }), "{kind}");
        assert!(kind.to_string().contains("exceed the local memory or the registers"), "{kind}");
    }
}

#[test]
fn a_frame_is_limited() {
    let error = load(&format!(".visible .entry k() {{ {} ret; }}", registers((1 << 18) + 2)));
    let error = error.expect_err("64 MiB and a bit").to_string();
    assert!(error.contains("64 MiB of registers"), "{error}");
}

#[test]
fn wild_pointers_of_builtins_are_faults() {
    const ARGUMENTS: &str = "
        .extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);
        .global .align 1 .b8 text[7] = {37, 100, 32, 37, 108, 100, 0};";
    for at in ["0xFFFFFFFFFFFFFFFE", "0xFFFFFFFFFFFFFFFC", "0xFFFFFFFFFFFFFFFF", "0"] {
        let h = Host::new(&format!(
            "{HEADER}{ARGUMENTS}.visible .entry arguments() {{
                .reg .b64 %d<2>; .reg .b32 %r<1>;
                mov.u64 %d0, text; mov.u64 %d1, {at};
                call (%r0), vprintf, (%d0, %d1); ret; }}
            .visible .entry format() {{
                .reg .b64 %d<2>; .reg .b32 %r<1>;
                mov.u64 %d0, {at};
                call (%r0), vprintf, (%d0, %d0); ret; }}"
        ));
        for kernel in ["arguments", "format"] {
            let kind = fault(&h, kernel);
            assert!(matches!(kind, FaultKind::OutOfBounds { .. }), "{at}: {kind}");
        }
        assert_eq!(*h.printed.lock().unwrap(), "");
    }
}

#[test]
fn far_offsets_are_errors() {
    for instruction in [
        "mov.u64 %d0, a+9223372036854775807;",
        "mov.u64 %d0, a-1;",
        "ld.param.u32 %r0, [p+9223372036854775807];",
        "ld.param.u32 %r0, [p+-9223372036854775807];",
        "ld.param.u32 %r0, [p+1];",
    ] {
        let loaded = load(&format!(
            ".visible .entry k(.param .u32 p) {{ .local .b8 a[16]; .reg .b64 %d<1>; .reg .b32 %r<1>;
            {instruction} ret; }}"
        ));
        assert!(loaded.is_err(), "{instruction}");
    }
    // An address far out of bounds, in a frame other than the first.
    let h = Host::new(&format!(
        "{HEADER}.func f() {{ .local .b8 a[64]; .reg .b64 %d<1>;
            mov.u64 %d0, a+4294967295; st.local.u8 [%d0], 1; ret; }}
        .visible .entry k() {{ .local .b8 a[64]; call f; ret; }}"
    ));
    let kind = fault(&h, "k");
    assert!(matches!(kind, FaultKind::OutOfBounds { address: 0x1_0000_003F, .. }), "{kind}");
}
