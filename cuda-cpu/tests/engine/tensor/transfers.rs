//! Asynchronous copies, reductions and stores with correct waits.

use super::fragments::{ROOM, SHARED, bytes, drain_shared, fill_shared};
use super::{Case, kernel};

/// Returns a kernel that fills shared memory from `a`, runs the body, and copies shared memory to `o`.
fn case(name: &str, registers: &str, body: &str, out: usize) -> Case {
    let ptx = kernel(
        &format!("{SHARED} {registers} .shared .align 8 .b64 s; .reg .pred p, q; .reg .b64 g, e;"),
        &format!("{}{body}\n{}", fill_shared(), drain_shared()),
    );
    Case::new(name.to_owned(), ptx, [bytes(11, ROOM), bytes(12, ROOM), bytes(13, 64)], 1, out)
}

/// `cp.async`: every lane writes to its own place, from an arbitrary one.
fn small() -> impl Iterator<Item = Case> {
    let forms = [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)];
    let tails = [
        ("", "", ""),
        (".L2::64B", "", ""),
        (".L2::128B", "", ""),
        (".L2::256B", ", t", " some"),
        (".L2::cache_hint", ", e", ""),
        (".L2::cache_hint.L2::128B", ", t, e", " some"),
        ("", ", t", " some"),
        ("", ", 0", " none"),
        ("", ", q", " ignored"),
    ];
    forms.into_iter().flat_map(move |(caching, size)| {
        tails.into_iter().map(move |(hints, tail, what)| {
            let name = format!("cp.async.{caching}.shared.global{hints} {size}{what}");
            let body = format!(
                "rem.u32 t, lane, {}; and.b32 u, lane, 3; setp.eq.u32 q, u, 1; mov.u64 d0, 0;
                createpolicy.fractional.L2::evict_first.b64 e, 1.0;
                mul.wide.u32 y, lane, 48; add.u64 y, x, y; mad.lo.u32 u, lane, 5, 3; and.b32 u, u, 31;
                mul.wide.u32 d1, u, {size}; add.u64 d1, b, d1;
                cp.async.{caching}.shared.global{hints} [y+16], [d1], {size}{tail};
                cp.async.wait_all;",
                size + 1
            );
            case(&name, "", &body, ROOM)
        })
    })
}

/// One thread starts a transfer that completes at `s`, and all threads wait for it.
fn completed(name: &str, begin: &str, expected: u32) -> Case {
    let body = format!(
        "fence.proxy.async; bar.sync 0;
        setp.ne.u32 q, lane, 0; @q bra BEGUN; mbarrier.init.shared.b64 [s], 1;
        fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared.b64 _, [s], {expected};
        mov.b16 h, 1; mov.u32 t, 512; createpolicy.fractional.L2::evict_first.b64 e, 1.0;
        {begin}
        BEGUN: bar.sync 0;
        WAIT: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra WAIT;"
    );
    case(name, ".reg .b16 h;", &body, ROOM)
}

const TO_SHARED: &str = "mbarrier::complete_tx::bytes";

fn copies() -> Vec<Case> {
    let from_global = [
        ("shared::cluster.global", "", "512"),
        ("shared::cta.global", "", "t"),
        ("shared::cluster.global", ".multicast::cluster", "16"),
        ("shared::cluster.global", ".L2::cache_hint", "2000"),
        ("shared::cluster.global", ".multicast::cluster.L2::cache_hint", "4032"),
    ];
    let mut cases: Vec<Case> = from_global
        .into_iter()
        .map(|(way, hints, size)| {
            let mask = if hints.contains("multicast") { ", h" } else { "" };
            let policy = if hints.contains("cache_hint") { ", e" } else { "" };
            let begin = format!(
                "cp.async.bulk.{way}.{TO_SHARED}{hints} [x+48], [b+32], {size}, [s]{mask}{policy};"
            );
            let expected = size.parse().unwrap_or(512);
            completed(&format!("cp.async.bulk.{way}{hints} {size}"), &begin, expected)
        })
        .collect();
    let begin = format!(
        "cp.async.bulk.shared::cluster.shared::cta.{TO_SHARED} [x+2048], [x+16], t, [s];
        cp.async.bulk.prefetch.L2.global [b], 256;"
    );
    cases.push(completed("cp.async.bulk.shared::cluster.shared::cta", &begin, 512));
    for (hint, policy) in [("", ""), (".L2::cache_hint", ", e")] {
        let name = format!("cp.async.bulk.global.shared::cta{hint}");
        let begin =
            format!("cp.async.bulk.global.shared::cta.bulk_group{hint} [g], [x], 1024{policy};");
        cases.push(to_global(&name, &begin));
    }
    cases
}

/// One thread starts a transfer to global memory at `g`, after the stores of the other threads.
fn to_global(name: &str, begin: &str) -> Case {
    let body = format!(
        "add.u64 g, o, {ROOM}; mul.wide.u32 d0, lane, 32; add.u64 d1, b, d0; add.u64 d0, g, d0;
        ld.global.v4.b32 {{r0, r1, r2, r3}}, [d1]; st.global.v4.b32 [d0], {{r0, r1, r2, r3}};
        ld.global.v4.b32 {{r0, r1, r2, r3}}, [d1+16]; st.global.v4.b32 [d0+16], {{r0, r1, r2, r3}};
        fence.proxy.async; bar.sync 0;
        createpolicy.fractional.L2::evict_first.b64 e, 1.0;
        setp.ne.u32 q, lane, 0; @q bra BEGUN;
        {begin}
        cp.async.bulk.commit_group; cp.async.bulk.wait_group.read 0; cp.async.bulk.wait_group 0;
        BEGUN:"
    );
    case(name, "", &body, ROOM + 1024)
}

fn reductions() -> Vec<Case> {
    let global = [
        ("add", ["u32", "s32", "u64", "f32", "f64"].as_slice()),
        ("add.noftz", &["f16", "bf16"]),
        ("min", &["u32", "s32", "u64", "s64", "f16", "bf16"]),
        ("max", &["u32", "s32", "u64", "s64", "f16", "bf16"]),
        ("inc", &["u32"]),
        ("dec", &["u32"]),
        ("and", &["b32", "b64"]),
        ("or", &["b32", "b64"]),
        ("xor", &["b32", "b64"]),
    ];
    let shared = [
        ("add", ["u32", "s32", "u64"].as_slice()),
        ("min", &["u32", "s32"]),
        ("max", &["u32", "s32"]),
        ("inc", &["u32"]),
        ("dec", &["u32"]),
        ("and", &["b32"]),
        ("or", &["b32"]),
        ("xor", &["b32"]),
    ];
    let mut cases = Vec::new();
    for (op, types) in global {
        for ty in types {
            let name = format!("cp.reduce.async.bulk.global.shared::cta.bulk_group.{op}.{ty}");
            cases.push(to_global(&name, &format!("{name} [g], [x], 1024;")));
        }
    }
    for (op, types) in shared {
        for ty in types {
            let name =
                format!("cp.reduce.async.bulk.shared::cluster.shared::cta.{TO_SHARED}.{op}.{ty}");
            let begin = format!("{name} [x+2048], [x+16], t, [s];");
            cases.push(completed(&name, &begin, 512));
        }
    }
    cases
}

/// Every lane stores, or reduces at a place that it shares with other lanes.
fn of_lanes(name: &str, registers: &str, store: &str, bytes: u32) -> Case {
    let body = format!(
        "setp.ne.u32 q, lane, 0; @q bra READY; mbarrier.init.shared.b64 [s], 1;
        fence.mbarrier_init.release.cluster; mbarrier.arrive.expect_tx.shared.b64 _, [s], {};
        READY: bar.sync 0; mov.u32 u, s; mapa.shared::cluster.u32 u, u, 0;
        cvt.u32.u64 t, x; mapa.shared::cluster.u32 t, t, 0; mul.wide.u32 y, lane, 16; add.u64 y, b, y;
        ld.global.v4.b32 {{r0, r1, r2, r3}}, [y]; ld.global.v2.b64 {{d0, d1}}, [y];
        {store}
        WAIT: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra WAIT;",
        32 * bytes
    );
    case(name, registers, &body, ROOM)
}

fn stores() -> Vec<Case> {
    let values =
        [("", "r0", "d0"), (".v2", "{r0, r1}", "{d0, d1}"), (".v4", "{r0, r1, r2, r3}", "")];
    let mut cases = Vec::new();
    for ty in ["b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"] {
        let wide = ty.ends_with("64");
        for (count, (vector, narrow, double)) in [1, 2, 4].into_iter().zip(values) {
            let value = if wide { double } else { narrow };
            if value.is_empty() {
                continue;
            }
            let name = format!("st.async.weak.shared::cluster.{TO_SHARED}{vector}.{ty}");
            let store = format!("mad.lo.u32 t, lane, 80, t; {name} [t+16], {value}, [u];");
            cases.push(of_lanes(&name, "", &store, count * if wide { 8 } else { 4 }));
        }
    }
    let reductions = [
        ("add", ["u32", "s32", "u64"].as_slice()),
        ("min", &["u32", "s32"]),
        ("max", &["u32", "s32"]),
        ("and", &["b32"]),
        ("or", &["b32"]),
        ("xor", &["b32"]),
    ];
    for (op, types) in reductions {
        for ty in types {
            let (value, bytes) = if ty.ends_with("64") { ("d0", 8) } else { ("r0", 4) };
            let name = format!("red.async.relaxed.cluster.shared::cluster.{TO_SHARED}.{op}.{ty}");
            let store = format!(
                "and.b32 w0, lane, 7; mad.lo.u32 t, w0, 24, t; {name} [t+16], {value}, [u];"
            );
            cases.push(of_lanes(&name, "", &store, bytes));
        }
    }
    // The order is unspecified, so each value comes from a single lane.
    for op in ["inc", "dec"] {
        let name = format!("red.async.relaxed.cluster.shared::cluster.{TO_SHARED}.{op}.u32");
        let store = format!("mad.lo.u32 t, lane, 24, t; {name} [t+16], r0, [u];");
        cases.push(of_lanes(&name, "", &store, 4));
    }
    cases
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = small().collect();
    cases.extend(copies());
    cases.extend(reductions());
    cases.extend(stores());
    cases
}
