//! Operations that are performed after their instruction: their faults name the thread and line of the instruction.

use cuda_cpu::{Fault, FaultKind, LaunchError};

use crate::args;
use crate::host::Host;

/// Thread 5 allocates 16 bytes, starts a copy of them and frees them. Thread 40, in another warp, waits for the copy.
fn kernel(begin: &str, wait: &str) -> String {
    format!(
        ".version 8.6\n.target sm_90\n.address_size 64
.extern .func (.param .b64 r) malloc (.param .b64 n);
.extern .func free (.param .b64 p);
.visible .entry k(.param .u64 out) {{
.shared .align 16 .b8 room[16]; .shared .align 8 .b64 s;
.reg .pred p, q; .reg .b32 t; .reg .b64 own, k, to, at;
mov.u32 t, %tid.x; mov.u64 to, room; mov.u64 at, s;
setp.ne.u32 p, t, 5; setp.ne.u32 q, t, 40;
@!p mbarrier.init.shared.b64 [s], 1;
@p bra BEGUN;
{{ .param .b64 n; .param .b64 r; st.param.b64 [n], 16; call (r), malloc, (n); ld.param.b64 own, [r]; }}
st.global.v4.u32 [own], {{t, t, t, t}};
{begin}
{{ .param .b64 n; st.param.b64 [n], own; call free, (n); }}
BEGUN:
bar.sync 0;
{wait}
}}"
    )
}

/// Returns the line of `text` that contains `what`.
fn line(text: &str, what: &str) -> u32 {
    text.lines().position(|line| line.contains(what)).map_or(0, |at| at as u32 + 1)
}

fn fault(text: &str) -> Fault {
    let host = Host::new(text);
    match host.launch("k", 1, 64, args![host.zeros::<u32>(4)]) {
        Err(LaunchError::Fault(fault)) => *fault,
        other => panic!("no fault: {other:?}"),
    }
}

#[test]
fn copy_faults_name_the_starting_thread() {
    let poll = "@q ret; WAIT: mbarrier.try_wait.parity.shared.b64 p, [s], 0; @!p bra WAIT; ret;";
    let cases = [
        // The thread itself waits, others wait at a barrier, and no thread waits.
        ("cp.async.ca.shared.global [to], [own], 16;", "cp.async.wait_all; ret;"),
        (
            "cp.async.ca.shared.global [to], [own], 16;
             cp.async.mbarrier.arrive.noinc.shared.b64 [s];",
            poll,
        ),
        (
            "mbarrier.arrive.expect_tx.shared.b64 k, [at], 16;
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [to], [own], 16, [at];",
            poll,
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [own], [to], 16;
             cp.async.bulk.commit_group;",
            "cp.async.bulk.wait_group 0; ret;",
        ),
        (
            "cp.async.bulk.global.shared::cta.bulk_group [own], [to], 16;
             cp.async.bulk.commit_group;",
            "ret;",
        ),
    ];
    for (begin, wait) in cases {
        let text = kernel(begin, wait);
        let fault = fault(&text);
        assert!(matches!(fault.kind, FaultKind::UseAfterFree { bytes: 16, .. }), "{wait}: {fault}");
        let copy = if begin.contains("bulk") { "cp.async.bulk." } else { "cp.async.ca" };
        assert_eq!((fault.line, fault.thread), (line(&text, copy), [5, 0, 0]), "{wait}: {fault}");
    }
}

/// Arrivals and waits at the cluster barrier must alternate.
#[test]
fn cluster_arrivals_and_waits_alternate() {
    let text = |body: &str| {
        format!(
            ".version 8.6\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 out) {{\n{body}\nret; }}"
        )
    };
    let (arrive, wait) = ("barrier.cluster.arrive;\n", "barrier.cluster.wait;\n");
    for (body, arrived, line) in [
        (format!("{arrive}{arrive}{wait}"), true, 6),
        (wait.to_owned(), false, 5),
        (format!("{arrive}{wait}{wait}"), false, 7),
    ] {
        let fault = fault(&text(&body));
        assert_eq!((fault.kind.clone(), fault.line), (FaultKind::ClusterBarrier { arrived }, line));
    }
    let host = Host::new(&text(&[arrive, wait].concat().repeat(3)));
    host.run("k", 2, 96, args![host.zeros::<u32>(1)]);
}
