//! Cancelled work: skipped if nothing can see its results, and run otherwise.

use cuda_core::protocol::PoolId;
use cuda_cpu::{Checks, Profile};

use super::*;

/// Each kernel writes its operand, and has another effect except `calls`. If the first word is 77, `traps` traps instead,
/// and `prints` prints.
const EFFECTS: &str = "
.version 7.0
.target sm_70
.address_size 64
.extern .func (.param .b32 status) vprintf (.param .b64 format, .param .b64 values);
.global .u32 counter;
.const .u64 address = counter;
.func write(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, 5;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry calls(.param .u64 p)
{
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    { .param .b64 a; st.param.b64 [a], %rd1; call write, (a); }
    ret;
}
.visible .entry counts(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    atom.global.add.u32 %r1, [counter], 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry counts_by_address(.param .u64 p)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p];
    ld.const.u64 %rd2, [address];
    atom.global.add.u32 %r1, [%rd2], 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry traps(.param .u64 p)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 77;
    @%p1 trap;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry prints(.param .u64 p)
{
    .reg .pred %p<2>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p];
    ld.global.u32 %r1, [%rd1];
    setp.ne.u32 %p1, %r1, 77;
    @%p1 bra END;
    { .param .b64 f; .param .b64 v; .param .b32 s;
      st.param.b64 [f], %rd1; st.param.b64 [v], %rd1;
      call (s), vprintf, (f, v); ld.param.b32 %r2, [s]; }
END:
    st.global.u32 [%rd1], %r1;
    ret;
}
";
const KERNELS: [&str; 5] = ["calls", "counts", "counts_by_address", "traps", "prints"];
/// The kernels with no effect besides that on their operand.
const PURE: [&str; 2] = ["store", "calls"];

const X: AllocId = AllocId(100);
const Y: AllocId = AllocId(101);
const Z: AllocId = AllocId(102);

/// A device that counts the launches that run.
struct Counted {
    d: Device,
    profile: Arc<Profile>,
}

impl Counted {
    fn new() -> Self {
        Self::with(CpuOptions::default())
    }

    fn with(mut options: CpuOptions) -> Self {
        let profile = Arc::new(Profile::new());
        options.workers = Some(2);
        let d = Device::with(options.profile(profile.clone()));
        d.client.load(ModuleId(2), EFFECTS);
        [X, Y, Z].into_iter().for_each(|id| _ = d.client.allocate(A, id, 4).unwrap());
        for id in [X, Y, Z] {
            let zero = Work::Fill { to: start(id), pattern: Pattern::Word(0), count: 1 };
            d.submit(A, zero).unwrap();
        }
        d.synchronize(A).unwrap();
        Self { d, profile }
    }

    /// The number of launches that have run.
    fn launches(&self) -> u64 {
        self.profile.kernels().iter().map(|kernel| kernel.launches).sum()
    }

    fn launch(&self, stream: StreamId, kernel: &str, on: AllocId, after: &[Ticket]) -> Ticket {
        let (module, entry) = match kernel {
            "store" => (ModuleId(1), STORE),
            other => (ModuleId(2), KERNELS.iter().position(|name| *name == other).unwrap() as u32),
        };
        let p = Relocation { at: 0, region: start(on), bytes: 4, access: Access::Write };
        let launch = Launch {
            function: FunctionId { module, entry },
            config: LaunchConfig::new(1, 1),
            params: vec![0; 8].into(),
            relocations: vec![p].into(),
            variables: Default::default(),
        };
        self.d.client.submit(stream, after, Work::Launch(launch), &[]).unwrap()
    }

    fn copy(&self, stream: StreamId, from: AllocId, to: AllocId, after: &[Ticket]) -> Ticket {
        let copy = Work::Copy { from: start(from), to: start(to), bytes: 4 };
        self.d.client.submit(stream, after, copy, &[]).unwrap()
    }

    fn download(&self, stream: StreamId, from: AllocId, to: &Arc<HostBlock>) -> Ticket {
        let to_region = HostRegion { block: to.id(), offset: 0 };
        let work = Work::Download { from: start(from), to: to_region, bytes: 4 };
        self.d.client.submit(stream, &[], work, std::slice::from_ref(to)).unwrap()
    }

    fn cancel(&self, tickets: &[Ticket], downloads: bool) {
        for Ticket { stream, number } in tickets.iter().copied() {
            let cancel = Control::Cancel { stream, first: number, last: number, downloads };
            self.d.client.control(cancel).unwrap();
        }
    }

    fn free(&self, stream: StreamId, id: AllocId, after: &[Ticket]) {
        self.d.client.free(stream, id, after).unwrap();
    }
}

fn start(alloc: AllocId) -> Region {
    Region { alloc, offset: 0 }
}

fn word(block: &HostBlock) -> u32 {
    // SAFETY: the callers have waited for every submission that names the block.
    u32::from_ne_bytes(unsafe { block.shared_bytes() }[..4].try_into().unwrap())
}

#[test]
fn cancelled_chain_is_skipped_when_its_memory_is_freed_unread() {
    let c = Counted::new();
    let go = c.d.hold(A);
    let host = Arc::new(HostBlock::heap(4).unwrap());
    let chain = [
        c.launch(A, "store", X, &[]),
        c.launch(A, "calls", X, &[]),
        c.copy(A, X, Y, &[]),
        c.launch(A, "store", Y, &[]),
        c.download(A, Y, &host),
    ];
    c.cancel(&chain, false);
    c.cancel(&chain[4..], true);
    c.free(A, X, &[]);
    c.free(A, Y, &[]);
    let kept = c.launch(A, "store", Z, &[]);
    drop(go);
    assert_eq!(c.d.outcome(kept), Ok(()));
    assert_eq!((c.launches(), word(&host)), (1, 0));
    assert_eq!(c.profile.skipped(), chain.len() as u64);
    assert!(chain.iter().all(|ticket| c.d.sink.failure(*ticket).is_none()));
}

#[test]
fn work_runs_if_its_results_may_be_seen() {
    // The work that was submitted, whether it is cancelled, whether the download is, and whether the memory is freed.
    let ran = |cancelled: bool, unread: bool, freed: bool| {
        let c = Counted::new();
        let go = c.d.hold(A);
        let host = Arc::new(HostBlock::heap(4).unwrap());
        let launch = c.launch(A, "store", X, &[]);
        let download = c.download(A, X, &host);
        if cancelled {
            c.cancel(&[launch, download], false);
        }
        if unread {
            c.cancel(&[download], true);
        }
        if freed {
            c.free(A, X, &[]);
        }
        drop(go);
        c.d.synchronize(A).unwrap();
        (c.launches(), word(&host))
    };
    assert_eq!(ran(false, false, false), (1, 5));
    assert_eq!(ran(true, false, true), (1, 5), "the download is read");
    assert_eq!(ran(true, true, false), (1, 0), "the memory is kept");
    assert_eq!(ran(false, true, true), (1, 0), "a caller waits for the launch");
    assert_eq!(ran(true, true, true), (0, 0));
}

#[test]
fn kernels_with_other_effects_are_not_skipped() {
    for kernel in KERNELS.into_iter().chain(["store"]) {
        let c = Counted::new();
        let go = c.d.hold(A);
        let launch = c.launch(A, kernel, X, &[]);
        c.cancel(&[launch], true);
        c.free(A, X, &[]);
        drop(go);
        c.d.synchronize(A).unwrap();
        assert_eq!(c.launches(), u64::from(!PURE.contains(&kernel)), "{kernel}");
    }
}

#[test]
fn kernels_without_output_or_with_checks_are_not_skipped() {
    let c = Counted::new();
    let go = c.d.hold(A);
    let reads = c.d.launch(A, SHORT, 1).unwrap();
    c.cancel(&[reads], true);
    c.free(A, FLAG, &[]);
    drop(go);
    c.d.synchronize(A).unwrap();
    assert_eq!(c.launches(), 1);
    for checks in
        [Checks::none().uninitialized(), Checks::none().races(), Checks::none().read_only()]
    {
        let mut options = CpuOptions::default();
        options.checks = checks;
        let c = Counted::with(options);
        let go = c.d.hold(A);
        let launch = c.launch(A, "store", X, &[]);
        c.cancel(&[launch], true);
        c.free(A, X, &[]);
        drop(go);
        c.d.synchronize(A).unwrap();
        assert_eq!(c.launches(), 1, "{checks:?}");
    }
}

/// A launch on A writes what a launch on B and a copy on B use.
#[test]
fn use_on_another_stream_decides() {
    for is_read in [false, true] {
        let c = Counted::new();
        let go = c.d.hold(A);
        let written = c.launch(A, "store", X, &[]);
        let changed = c.launch(B, "store", X, &[written]);
        let copied = c.copy(B, X, Y, &[]);
        c.cancel(&[written, changed], true);
        if !is_read {
            c.cancel(&[copied], true);
        }
        c.free(B, X, &[]);
        c.free(B, Y, &[]);
        drop(go);
        c.d.synchronize(B).unwrap();
        assert_eq!(c.launches(), if is_read { 2 } else { 0 });
    }
}

/// The results of the first launch are read before the memory is written again.
#[test]
fn earlier_read_keeps_earlier_work_and_not_later_work() {
    let c = Counted::new();
    let go = c.d.hold(A);
    let host = Arc::new(HostBlock::heap(4).unwrap());
    let first = c.launch(A, "store", X, &[]);
    c.download(A, X, &host);
    let second = [c.launch(A, "store", X, &[]), c.launch(A, "calls", X, &[])];
    c.cancel(&[first], false);
    c.cancel(&second, false);
    c.free(A, X, &[]);
    drop(go);
    c.d.synchronize(A).unwrap();
    assert_eq!((c.launches(), word(&host)), (1, 5));
}

/// The client infers from the completion of a submission that everything in its `after` is complete.
#[test]
fn skipped_work_completes_after_the_work_that_it_comes_after() {
    let c = Counted::new();
    let go = c.d.hold(B);
    let held = c.launch(B, "store", Z, &[]);
    let skipped = c.launch(A, "store", X, &[held]);
    c.cancel(&[skipped], false);
    c.free(A, X, &[]);
    let independent = c.d.join(A, &[]);
    assert!(c.d.client.peek(A).unwrap() < skipped.number);
    drop(go);
    c.d.client.block_until(independent).unwrap();
    assert_eq!(c.d.client.peek(B).unwrap(), held.number);
    assert_eq!(c.launches(), 1);
}

#[test]
fn cancelling_complete_or_unknown_work_has_no_effect() {
    let c = Counted::new();
    let launch = c.launch(A, "store", X, &[]);
    c.d.synchronize(A).unwrap();
    c.cancel(&[launch, Ticket { number: 1 << 40, ..launch }], true);
    c.cancel(&[Ticket { stream: StreamId(99), number: 1 }], true);
    let pool = PoolId::DEFAULT;
    assert!(c.d.client.ask(Request::PoolMemory { pool }).is_ok());
    assert_eq!(c.launches(), 1);
}
