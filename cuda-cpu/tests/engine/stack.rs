//! `alloca`, `stacksave` and `stackrestore`.

use cuda_cpu::{Checks, Fault, FaultKind, FaultSpace, LaunchError};

use crate::args;
use crate::host::Host;

const HEADER: &str = ".version 7.3\n.target sm_75\n.address_size 64\n";

/// Two full warps and a partial one.
const THREADS: u32 = 77;

fn compiled() -> Host {
    Host::new(include_str!("../ptx/stack.ptx"))
}

fn random(seed: u32) -> u32 {
    let x = seed.wrapping_add(1).wrapping_mul(0x9e37_79b9);
    (x ^ x >> 15).wrapping_mul(0x85eb_ca6b) ^ x >> 13
}

/// Runs a kernel that maps a number of each thread to another one.
fn run(kernel: &str, numbers: &[u32], further: Option<u32>) -> Vec<u32> {
    let h = compiled();
    let (x, y) = (h.upload(numbers), h.zeros::<u32>(numbers.len()));
    let threads = numbers.len() as u32;
    match further {
        Some(further) => h.run(kernel, 1, threads, args![x, further, y]),
        None => h.run(kernel, 1, threads, args![x, y]),
    }
    h.download(y, numbers.len())
}

#[test]
fn allocation_size_may_differ_by_thread() {
    let h = compiled();
    let stride = 50;
    let counts: Vec<_> = (0..THREADS).map(|t| random(t) % (stride + 1)).collect();
    let mut x: Vec<_> = (0..THREADS * stride).map(|i| random(1000 + i)).collect();
    let (at, y) = (h.upload(&x), h.zeros::<u32>(x.len()));
    h.run("sort_own", 1, THREADS, args![at, h.upload(&counts), stride, y]);
    for (own, &count) in x.chunks_mut(stride as usize).zip(&counts) {
        own[..count as usize].sort_unstable();
        own[count as usize..].fill(0);
    }
    assert_eq!(h.download::<u32>(y, x.len()), x);
}

#[test]
fn allocations_in_a_recursion() {
    fn level(depth: u32, above: &mut [u8]) -> u32 {
        above.iter_mut().zip(0..).for_each(|(byte, i)| *byte = (depth + i) as u8);
        if depth == 0 {
            return 0;
        }
        let mut own = vec![0; (depth * 7 % 29 + 1) as usize];
        let below = level(depth - 1, &mut own);
        own.iter().fold(below, |sum, &byte| sum.wrapping_mul(31).wrapping_add(byte.into()))
    }
    let depths: Vec<_> = (0..THREADS).map(|t| random(t) % 30).collect();
    let wanted = depths.iter().map(|&depth| {
        let mut first = [0; 4];
        level(depth, &mut first).wrapping_add(first[3].into())
    });
    assert_eq!(run("levels", &depths, None), wanted.collect::<Vec<_>>());
}

#[test]
fn allocations_in_loops() {
    let counts: Vec<_> = (0..THREADS).map(|t| random(t) % 60).collect();
    let sum = |(t, &count): (u32, &u32)| {
        (0..count).rev().fold(0u32, |sum, i| sum.wrapping_mul(33).wrapping_add(t * 1000 + i))
    };
    assert_eq!(run("list", &counts, None), (0..).zip(&counts).map(sum).collect::<Vec<_>>());
}

#[test]
fn restored_memory_is_reused() {
    // Without `stackrestore`, a thread would take 32 MiB.
    let count = 100_000 / 256;
    let sizes: Vec<_> = (0..THREADS).map(random).map(|size| size >> 8).collect();
    let sum = |(t, &size): (u32, &u32)| {
        (0..count).fold(0u32, |sum, i| {
            let n = (size + i) % 40 + 1;
            let own = |j| i.wrapping_add(t.wrapping_mul(j));
            let turn = (0..n).rev().fold(0u32, |s, j| s.wrapping_mul(5).wrapping_add(own(j)));
            sum.wrapping_mul(3).wrapping_add(turn)
        })
    };
    let wanted: Vec<_> = (0..).zip(&sizes).map(sum).collect();
    assert_eq!(run("turns", &sizes, Some(count)), wanted);
}

/// Loads a kernel with this body and registers. Its parameter is in `o`.
fn kernel(body: &str, functions: &str) -> Result<Host, String> {
    Host::try_new(&format!(
        "{HEADER}{functions}\n.visible .entry k(.param .u64 out) {{
            .reg .b64 o, a, b, n, d<9>; .reg .b32 t, i, w<9>; .reg .pred p, q;
            .local .align 8 .b8 variable[24];
            ld.param.u64 o, [out]; mov.u32 t, %tid.x; mad.wide.u32 o, t, 64, o;
            {body}
            ret;
        }}"
    ))
}

/// Returns the eight numbers that each of 32 threads has written.
fn results(h: &Host) -> Vec<[u64; 8]> {
    let out = h.zeros::<u64>(8 * 32);
    h.run("k", 1, 32, args![out]);
    h.download::<u64>(out, 8 * 32).chunks(8).map(|own| own.try_into().unwrap()).collect()
}

fn fault(h: &Host) -> Fault {
    match h.launch("k", 1, 32, args![h.zeros::<u64>(8 * 32)]) {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("no fault: {other:?}"),
    }
}

#[test]
fn addresses_are_aligned_and_ascending() {
    let body = "cvt.u64.u32 n, t; add.u64 n, n, 1;
        alloca.u64 d0, n; alloca.u64 d1, n, 256; alloca.u64 d2, 1, 2; alloca.u64 d3, n, 4096;
        alloca.u32 w0, t; mov.u64 d5, variable; stacksave.u64 d6; cvt.u64.u32 d4, w0;
        stacksave.u32 w1; cvt.u64.u32 d7, w1;
        st.global.v2.u64 [o], {d0, d1}; st.global.v2.u64 [o+16], {d2, d3};
        st.global.v2.u64 [o+32], {d4, d5}; st.global.v2.u64 [o+48], {d6, d7};";
    let h = kernel(body, "").unwrap();
    for (lane, [a, b, c, d, e, variable, top, narrow]) in results(&h).into_iter().enumerate() {
        let n = lane as u64 + 1;
        assert_eq!((a % 8, b % 256, c % 8, d % 4096, e % 8), (0, 0, 0, 0, 0));
        let places = [(variable, 24), (a, n), (b, n), (c, 1), (d, n), (e, n - 1), (top, 0)];
        for pair in places.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "lane {lane}: {places:?}");
        }
        assert_eq!(top, narrow);
    }
}

#[test]
fn return_frees_allocations() {
    // Under a guard, and with a pointer that is passed to other lanes: 1000 calls of a kilobyte each.
    let function = ".func (.param .b64 r) f(.param .b64 x) {
        .reg .b64 x1, y1; .reg .pred odd;
        ld.param.u64 x1, [x]; and.b64 y1, x1, 1; setp.ne.u64 odd, y1, 0;
        mov.u64 y1, 0;
        @odd alloca.u64 y1, 1024, 16;
        @odd st.local.u64 [y1+1016], x1;
        @odd ld.local.u64 x1, [y1+1016];
        add.u64 x1, x1, y1;
        st.param.u64 [r], x1; ret; }";
    let body = "mov.u32 i, 0; mov.u64 b, 0; cvt.u64.u32 a, t; alloca.u64 d0, 8; st.local.u64 [d0], a;
        L: add.u64 n, a, b;
        { .param .b64 x; .param .b64 r; st.param.u64 [x], n; call (r), f, (x); ld.param.u64 d1, [r]; }
        add.u64 b, b, 1; add.u32 i, i, 1; setp.lt.u32 p, i, 1000; @p bra L;
        ld.local.u64 d2, [d0]; st.global.v2.u64 [o], {d1, d2}; st.global.u64 [o+16], d0;";
    let h = kernel(body, function).unwrap();
    for (lane, [last, own, at, ..]) in (0..).zip(results(&h)) {
        let (n, odd) = (lane + 999, (lane + 999) % 2 == 1);
        assert_eq!(own, lane);
        assert!(if odd { last >= n + at + 8 } else { last == n }, "lane {lane}: {last:#x}");
    }
}

#[test]
fn stack_overflow_names_the_thread() {
    let sizes = ["mov.u64 n, 524288;", "mov.u64 n, -1;", "mov.u64 n, 0x8000000000000000;"];
    for size in sizes {
        let body = format!(
            "mov.u64 n, 64; setp.eq.u32 p, t, 5; @!p bra L; {size}
            L: alloca.u64 a, n; st.local.u64 [a], n;"
        );
        let fault = fault(&kernel(&body, "").unwrap());
        let bytes = match size.contains("524288") {
            true => 524_288,
            false if size.contains("-1") => u64::MAX,
            false => 1 << 63,
        };
        assert_eq!(fault.kind, FaultKind::StackOverflow { bytes, limit: 512 << 10 });
        assert_eq!(fault.thread, [5, 0, 0]);
        assert!(fault.to_string().contains("stack overflow: alloca of"), "{fault}");
    }
    // In small steps: only thread 9 continues.
    let body = "setp.eq.u32 q, t, 9; L: alloca.u64 a, 1000; @q bra L;";
    let little = fault(&kernel(body, "").unwrap());
    assert_eq!(little.kind, FaultKind::StackOverflow { bytes: 1000, limit: 512 << 10 });
    assert_eq!(little.thread, [9, 0, 0]);
    // By calls, each of which takes some memory.
    let function = ".func f() { .reg .b64 x; alloca.u64 x, 2000; call f; ret; }";
    let deep = fault(&kernel("call f;", function).unwrap());
    assert!(matches!(deep.kind, FaultKind::StackOverflow { .. }), "{deep}");
    let function = ".func f() { .reg .b64 x; .local .b8 v[4000]; alloca.u64 x, 8; call f; ret; }";
    let deep = fault(&kernel("call f;", function).unwrap());
    assert!(matches!(deep.kind, FaultKind::CallDepth { .. }), "{deep}");
}

#[test]
fn restored_address_must_be_on_the_stack() {
    for bad in ["add.u64 a, a, 8;", "mov.u64 a, 0;", "mov.u64 a, -8;", "or.b64 a, a, 0x100000000;"]
    {
        let body = format!(
            "stacksave.u64 a; alloca.u64 b, 64; stackrestore.u64 a;
            setp.eq.u32 p, t, 7; @p {bad} stackrestore.u64 a;"
        );
        let fault = fault(&kernel(&body, "").unwrap());
        assert!(matches!(fault.kind, FaultKind::BadStackPointer { .. }), "{fault}");
        assert_eq!(fault.thread, [7, 0, 0]);
    }
}

#[test]
fn reused_memory_is_unwritten() {
    let body = "stacksave.u64 a; alloca.u64 b, 64; st.local.u64 [b+8], a; ld.local.u64 d0, [b+8];
        stackrestore.u64 a; alloca.u64 d1, 64; READ st.global.u64 [o], d0;";
    let host = |read| {
        let mut h = kernel(&body.replace("READ", read), "").unwrap();
        h.checks = Checks::none().uninitialized();
        h
    };
    results(&host("st.local.u64 [d1+8], d0; ld.local.u64 d0, [d1+8];"));
    let h = host("setp.eq.u32 p, t, 3; @p ld.local.u64 d0, [d1+8];");
    let fault = fault(&h);
    let FaultKind::Uninitialized { space: FaultSpace::Local, bytes: 8, .. } = fault.kind else {
        panic!("{fault}")
    };
    assert_eq!(fault.thread, [3, 0, 0]);
}

#[test]
fn invalid_forms_are_rejected() {
    let all = [
        "alloca.u64 a, n, 3;",
        "alloca.u64 a, n, 16777216;",
        "alloca.u64 a, n, 0;",
        "alloca.u64 a;",
        "alloca.u16 a, n;",
        "alloca.u64 a, n, n;",
        "alloca.u64 w0, n;",
        "alloca a, n;",
        "stacksave.u64 a, n;",
        "stacksave.b64 a;",
        "stackrestore.u64;",
        "stackrestore.local.u64 a;",
    ];
    for text in all {
        let error = kernel(text, "").err().unwrap_or_else(|| panic!("{text} loads"));
        assert!(error.contains("line 9"), "{text}: {error}");
    }
}
