//! Generic accesses whose address is the name of a variable.

use cuda_cpu::{Launch, LaunchDims};

use crate::args;
use crate::host::Host;

/// Runs one block of 32 threads. The body has shared, local and global variables, and stores `a` of thread 0.
fn run(body: &str) -> u32 {
    let ptx = format!(
        ".version 9.1\n.target sm_90a\n.address_size 64
.global .align 16 .u32 outer[8];
.shared .align 16 .b8 team[64];
.extern .shared .align 16 .b8 rest[];
.visible .entry k(.param .u64 out) {{
.reg .b64 A, B, o; .reg .b32 a, b, c, d, t; .reg .b16 x; .reg .b128 u, v; .reg .pred p;
.shared .align 16 .b8 buf[64]; .local .align 16 .b8 own[64]; .shared .align 8 .b64 bar;
ld.param.u64 o, [out]; mov.u32 a, 0; mov.u32 t, %tid.x;
{body}
setp.eq.u32 p, t, 0; @p st.global.u32 [o], a; ret; }}\n"
    );
    let h = Host::new(&ptx);
    let out = h.zeros::<u32>(1);
    h.launch_shared("k", 1, 32, 64, args![out]).unwrap_or_else(|e| panic!("{e}"));
    h.download::<u32>(out, 1)[0]
}

#[test]
fn names_of_variables_are_generic_addresses() {
    for (name, store, load) in [
        ("shared", "st.shared.u32 [buf+4], 41;", "ld.u32 a, [buf+4];"),
        ("shared of the module", "st.shared.u32 [team+4], 41;", "ld.u32 a, [team+4];"),
        ("dynamic shared", "st.u32 [rest], 41;", "ld.shared.u32 a, [rest];"),
        ("local", "st.local.u32 [own+8], 41;", "ld.u32 a, [own+8];"),
        ("stored local", "st.u32 [own+8], 41;", "ld.local.u32 a, [own+8];"),
        ("stored shared", "st.u32 [buf], 41;", "ld.shared.u32 a, [buf];"),
        ("global", "st.u32 [outer+4], 41;", "ld.global.u32 a, [outer+4];"),
        ("vector", "st.v2.u32 [buf+8], {40, 41};", "ld.shared.u32 a, [buf+12];"),
        ("loaded vector", "st.shared.v2.u32 [buf+8], {40, 41};", "ld.v2.u32 {b, a}, [buf+8];"),
        ("volatile", "st.volatile.u32 [buf], 41;", "ld.volatile.u32 a, [buf];"),
        (
            "128 bits",
            "mov.b128 u, {40, 41, 42, 43}; st.b128 [buf], u;",
            "ld.shared.u32 a, [buf+4];",
        ),
        (
            "relaxed 128 bits",
            "mov.b128 u, {40, 41, 42, 43}; st.relaxed.cta.b128 [buf+16], u;",
            "ld.relaxed.cta.b128 v, [buf+16]; mov.b128 {_, a, _, _}, v;",
        ),
        (
            "relaxed 128 bits of the block",
            "mov.b128 u, {40, 41, 42, 43}; st.relaxed.cta.shared::cta.b128 [buf+16], u;",
            "ld.relaxed.cta.shared::cta.b128 v, [buf+16]; mov.b128 {_, a, _, _}, v;",
        ),
        (
            "volatile 128 bits",
            "mov.b128 u, {40, 41, 42, 43}; st.volatile.shared.b128 [buf+16], u;",
            "ld.volatile.b128 v, [buf+16]; mov.b128 {_, a, _, _}, v;",
        ),
        (
            "volatile local 128 bits",
            "mov.b128 u, {40, 41, 42, 43}; st.volatile.local.b128 [own+16], u;",
            "ld.volatile.local.b128 v, [own+16]; mov.b128 {_, a, _, _}, v;",
        ),
        (
            "a name in a register",
            "mov.u64 A, buf; cvta.shared.u64 A, A; st.u32 [A], 41;",
            "ld.u32 a, [buf];",
        ),
    ] {
        assert_eq!(run(&format!("{store} {load}")), 41, "{name}");
    }
}

#[test]
fn names_of_variables_are_generic_addresses_of_atomics() {
    for (name, body) in [
        (
            "atom",
            "st.shared.u32 [buf], 40; bar.sync 0; setp.eq.u32 p, t, 0; @p atom.add.u32 b, [buf], 1;",
        ),
        ("red", "st.shared.u32 [buf], 9; bar.sync 0; red.add.u32 [buf], 1;"),
        ("atom of 16 bits", "st.shared.u32 [buf], 40; bar.sync 0; atom.cas.b16 x, [buf], 40, 41;"),
        ("exchange", "atom.exch.b32 b, [buf], 41;"),
    ] {
        assert_eq!(run(&format!("{body} bar.sync 0; ld.shared.u32 a, [buf];")), 41, "{name}");
    }
    let exchange =
        "mov.b128 u, {40, 41, 42, 43}; atom.exch.b128 v, [buf], u; ld.shared.u32 a, [buf+4];";
    assert_eq!(run(exchange), 41);
}

#[test]
fn names_of_variables_are_generic_addresses_of_barriers_and_matrices() {
    let barrier = "setp.eq.u32 p, t, 0; @p mbarrier.init.b64 [bar], 32; bar.sync 0;
        mbarrier.arrive.b64 A, [bar]; W: mbarrier.test_wait.b64 p, [bar], A; @!p bra W; mov.u32 a, 41;";
    assert_eq!(run(barrier), 41);
    let matrix =
        "mov.u32 b, t; shl.b32 c, b, 2; cvt.u64.u32 A, c; mov.u64 B, team; add.u64 B, B, A;
        st.shared.u32 [B], 41; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x1.b16 {a}, [team];";
    assert_eq!(run(&matrix.replace("shl.b32 c, b, 2", "and.b32 c, b, 15; shl.b32 c, c, 2")), 41);
}

#[test]
fn constants_are_in_a_space_of_their_own() {
    let h = Host::new(
        ".version 9.1\n.target sm_90a\n.address_size 64
.const .b32 first; .global .b32 middle; .const .b32 last[2]; .global .b32 spaces;
.visible .entry k() {
.reg .b64 a; .reg .b32 n, bit; .reg .pred p; mov.b32 n, 0;
mov.b64 a, first; isspacep.const p, a; selp.b32 bit, 1, 0, p; or.b32 n, n, bit;
mov.b64 a, middle; isspacep.const p, a; selp.b32 bit, 2, 0, p; or.b32 n, n, bit;
isspacep.global p, a; selp.b32 bit, 4, 0, p; or.b32 n, n, bit;
mov.b64 a, last; add.u64 a, a, 7; isspacep.const p, a; selp.b32 bit, 8, 0, p; or.b32 n, n, bit;
isspacep.global p, a; selp.b32 bit, 16, 0, p; or.b32 n, n, bit;
add.u64 a, a, 1; isspacep.const p, a; selp.b32 bit, 32, 0, p; or.b32 n, n, bit;
st.global.b32 [spaces], n; ret; }\n",
    );
    h.run("k", 1, 1, args![]);
    let (spaces, _) = h.program.variable("spaces").unwrap();
    assert_eq!(h.download::<u32>(spaces, 1), [1 | 4 | 8]);
}

/// The parameters. A write to this memory ends the process.
#[repr(align(16))]
struct ReadOnly([u8; 16]);
static PARAMETERS: ReadOnly = ReadOnly([7; 16]);

#[test]
fn atomic_reads_of_parameters_do_not_write_them() {
    let h = Host::new(
        ".version 9.1\n.target sm_90a\n.address_size 64
.global .align 16 .b32 one[4] = {5, 5, 5, 5};
.global .align 16 .b128 read[32];
.visible .entry k(.param .align 16 .b8 x[16]) {
.reg .b64 a, o; .reg .b32 t; .reg .b128 v; .reg .pred p;
mov.u32 t, %tid.x; and.b32 t, t, 1; setp.eq.u32 p, t, 0;
mov.b64 a, x; @p mov.b64 a, one;
ld.relaxed.gpu.b128 v, [a];
mov.u32 t, %tid.x; mov.b64 a, read; mad.wide.u32 o, t, 16, a; st.b128 [o], v; ret; }\n",
    );
    let dims = LaunchDims { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0 };
    let launch = Launch::new(dims, &PARAMETERS.0, &|_| {});
    h.program.launch(&h.memory, 0, &launch).unwrap_or_else(|e| panic!("{e}"));
    let (read, _) = h.program.variable("read").unwrap();
    let both = [[5, 0, 0, 0].repeat(4), vec![7; 16]].concat();
    assert_eq!(h.download::<u8>(read, 512), both.repeat(16));
}
