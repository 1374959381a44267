//! Sizes in the PTX that nobody has checked before: an error, not the end of the process.

use cuda_cpu::{FaultKind, Invalid, LaunchError, LoadError, Memory, Program};

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
        // The parser may refuse it first.
        if cuda_ptx::parse(&ptx).is_err() {
            continue;
        }
        let launched = Host::new(&ptx).launch("k", 1, 1, args![]);
        assert!(matches!(launched, Err(LaunchError::Invalid(Invalid::Shared { .. }))));
    }
}

/// A recursion that takes 64 KiB of local memory each time.
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
fn the_blocks_of_a_launch_share_what_there_is() {
    // A block takes 512 MiB: two fit at a time, whatever the number of threads.
    let h = Host::with_pool(DEEP, 4);
    h.run("wide", 3, 1024, args![]);
    // Each warp takes 16 MiB at most, unless the stack overflows.
    h.run("k", 4, 32, args![5u32]);
    let fault = |result| match result {
        Err(LaunchError::Fault(fault)) => fault.kind,
        other => panic!("no fault: {other:?}"),
    };
    let deep = fault(h.launch("k", 1, 32, args![9u32]));
    assert!(matches!(deep, FaultKind::CallDepth { .. }), "{deep}");
}
