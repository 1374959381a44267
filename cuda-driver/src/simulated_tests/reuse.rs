//! Reuse of dropped memory without a free.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cuda_core::{
    Device, DeviceBuffer, Error, ForeignCall, MemoryPool, PoolOptions, Stream,
    internals::{
        Window, allocation_id, charged_bytes, is_settled, reclaim_all, recover_memory, want,
    },
    protocol::Access,
};
use proptest::prelude::*;

fn open() -> (Device, [Stream; 2]) {
    let device = Device::open(&Simulated, 0).unwrap();
    let streams = [(); 2].map(|()| device.new_stream().unwrap());
    (device, streams)
}

/// Allocates memory, fills it once the gate opens, and drops it. Returns its id.
fn drop_in_use_until(gate: u32, stream: &Stream, len: usize) -> AllocId {
    let mut memory = DeviceBuffer::<u32>::uninitialized(stream, len).unwrap();
    memory.fill(stream, gate).unwrap();
    allocation_id(memory.allocation())
}

fn allocate(stream: &Stream, len: usize) -> DeviceBuffer<u32> {
    DeviceBuffer::uninitialized(stream, len).unwrap()
}

#[test]
fn allocation_reuses_memory_that_was_dropped_on_the_same_stream() {
    let (device, [stream, _]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &stream, 8);
    let (again, other) = (allocate(&stream, 8), allocate(&stream, 8));
    assert_eq!(allocation_id(again.allocation()), first);
    assert_ne!(allocation_id(other.allocation()), first);
    assert_eq!(device.memory().unwrap().used, 64);
    driver::open(gate);
}

#[test]
fn memory_in_use_on_another_stream_is_not_reused() {
    let (_device, [stream, other]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &other, 8);
    assert_ne!(allocation_id(allocate(&stream, 8).allocation()), first);
    driver::open(gate);
    other.synchronize().unwrap();
    let mut second = allocate(&other, 8);
    second.fill(&other, gate).unwrap();
    other.synchronize().unwrap();
    let id = allocation_id(second.allocation());
    drop(second);
    assert_eq!(allocation_id(allocate(&stream, 8).allocation()), id);
}

/// A program that waits for each operation reuses its memory too, but an idle program holds little.
#[test]
fn a_wait_keeps_little_dropped_memory_for_reuse() {
    let (_device, [stream, _]) = open();
    let opened = driver::gate();
    driver::open(opened);
    for (len, is_kept) in [(8, true), (16 << 20, true), ((16 << 20) + 1, false)] {
        let id = drop_in_use_until(opened, &stream, len);
        stream.synchronize().unwrap();
        assert_eq!(allocation_id(allocate(&stream, len).allocation()) == id, is_kept, "{len}");
        stream.synchronize().unwrap();
    }
}

#[test]
fn memory_of_another_size_or_pool_is_not_reused() {
    let (device, [stream, _]) = open();
    let pool = MemoryPool::new(&device, PoolOptions::new()).unwrap();
    let inside = stream.in_pool(&pool).unwrap();
    let open = driver::gate();
    driver::open(open);
    let first = drop_in_use_until(open, &stream, 8);
    assert_ne!(allocation_id(allocate(&stream, 4).allocation()), first);
    let first = drop_in_use_until(open, &stream, 8);
    assert_ne!(allocation_id(allocate(&inside, 8).allocation()), first);
    let first = drop_in_use_until(open, &inside, 8);
    assert_ne!(allocation_id(allocate(&stream, 8).allocation()), first);
    let first = drop_in_use_until(open, &inside, 8);
    assert_eq!(allocation_id(allocate(&inside, 8).allocation()), first);
    drop(inside);
    assert_eq!(pool.statistics().unwrap().used, 0);
}

#[test]
fn reused_memory_waits_on_another_stream_for_its_earlier_uses() {
    let (_device, [stream, other]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &stream, 8);
    let mut again = allocate(&stream, 8);
    assert_eq!(allocation_id(again.allocation()), first);
    let open = driver::gate();
    driver::open(open);
    again.fill(&other, open).unwrap();
    assert!(!other.query().unwrap());
    driver::open(gate);
    other.synchronize().unwrap();
}

/// Makes a foreign call that uses the memory, enqueues a fill with the value `gate`, and then fails or panics.
fn enqueue_and_fail(stream: &Stream, memory: &DeviceBuffer<u32>, gate: u32, panics: bool) {
    let call = ForeignCall::new().uses(memory.as_slice(), Access::Write);
    let enqueue_and_fail = |raw: RawStream, _: &[u64]| {
        driver::enqueue(raw.stream, gate);
        assert!(!panics, "on purpose");
        Err(Error::AlreadyEnded)
    };
    // SAFETY: the commands use no memory.
    let submit = || unsafe { call.submit(stream, enqueue_and_fail) };
    let failed = catch_unwind(AssertUnwindSafe(submit));
    assert!(failed.map_or(panics, |result| result.is_err()));
}

/// Foreign code may fail or panic after it has enqueued a part of its commands.
#[test]
fn memory_of_a_failed_foreign_call_is_not_used_before_its_commands() {
    let (_device, [stream, other]) = open();
    for panics in [false, true] {
        let memory = allocate(&stream, 8);
        stream.synchronize().unwrap();
        let (gate, id) = (driver::gate(), allocation_id(memory.allocation()));
        enqueue_and_fail(&stream, &memory, gate, panics);
        drop(memory);
        assert_ne!(allocation_id(allocate(&other, 8).allocation()), id);
        driver::open(gate);
        stream.synchronize().unwrap();
    }
}

/// Later work on memory that stays comes after the commands that the foreign call has enqueued.
#[test]
fn work_comes_after_the_commands_of_a_failed_foreign_call() {
    let (_device, [stream, other]) = open();
    for panics in [false, true] {
        let mut memory = allocate(&stream, 8);
        stream.synchronize().unwrap();
        let (gate, opened) = (driver::gate(), driver::gate());
        driver::open(opened);
        enqueue_and_fail(&stream, &memory, gate, panics);
        memory.fill(&other, opened).unwrap();
        assert!(!driver::has_run(opened), "the fill did not wait");
        driver::open(gate);
        other.synchronize().unwrap();
    }
}

/// Another thread may be freeing the dropped memory at this moment.
#[test]
fn dropped_memory_is_never_missing_for_the_next_allocation() {
    let (device, [stream, _]) = open();
    let pool = MemoryPool::new(&device, PoolOptions::new().limit(32)).unwrap();
    let stream = stream.in_pool(&pool).unwrap();
    let opened = driver::gate();
    driver::open(opened);
    for round in 0..20_000 {
        // Two sizes, so that each allocation needs the free of the one before.
        let memory = DeviceBuffer::<u32>::uninitialized(&stream, 7 + round % 2);
        let mut memory = memory.unwrap_or_else(|error| panic!("round {round}: {error}"));
        let ticket = memory.fill(&stream, opened).unwrap();
        want(&device, ticket);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Allocate(usize, usize),
    Fill(usize, usize),
    Drop(usize),
    Open(usize),
    Query(usize),
    Synchronize(usize),
    Renew(usize),
    Window(usize),
    Close(usize),
    Reclaim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0..3usize, 1..3usize).prop_map(|(s, n)| Step::Allocate(s, n)),
        5 => (0..3usize, any::<usize>()).prop_map(|(s, b)| Step::Fill(s, b)),
        4 => any::<usize>().prop_map(Step::Drop),
        3 => any::<usize>().prop_map(Step::Open),
        1 => (0..3usize).prop_map(Step::Query),
        1 => (0..3usize).prop_map(Step::Synchronize),
        1 => (0..3usize).prop_map(Step::Renew),
        1 => (0..3usize).prop_map(Step::Window),
        1 => (0..3usize).prop_map(Step::Close),
        1 => Just(Step::Reclaim),
    ];
    proptest::collection::vec(step, 1..120)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// All fills of one piece of memory run in the order in which they were submitted, also across its owners.
    #[test]
    fn fills_of_memory_run_in_order_across_owners(steps in steps()) {
        static DEVICE: OnceLock<Device> = OnceLock::new();
        let device = DEVICE.get_or_init(|| Device::open(&Simulated, 0).unwrap());
        let mut streams = [(); 3].map(|()| device.new_stream().unwrap());
        let mut live = Vec::<DeviceBuffer<u32>>::new();
        let mut fills = std::collections::HashMap::<AllocId, Vec<u32>>::new();
        let mut closed = Vec::new();
        for step in steps {
            match step {
                Step::Allocate(s, n) => {
                    let new = allocate(&streams[s], n);
                    let id = allocation_id(new.allocation());
                    prop_assert!(live.iter().all(|buffer| allocation_id(buffer.allocation()) != id));
                    live.push(new);
                }
                Step::Fill(s, b) if !live.is_empty() => {
                    let (gate, at) = (driver::gate(), b % live.len());
                    live[at].fill(&streams[s], gate).unwrap();
                    closed.push(gate);
                    fills.entry(allocation_id(live[at].allocation())).or_default().push(gate);
                }
                Step::Drop(b) if !live.is_empty() => drop(live.swap_remove(b % live.len())),
                Step::Open(g) if !closed.is_empty() => driver::open(closed.swap_remove(g % closed.len())),
                Step::Query(s) => _ = streams[s].query().unwrap(),
                Step::Synchronize(s) => {
                    closed.drain(..).for_each(driver::open);
                    streams[s].synchronize().unwrap();
                }
                Step::Renew(s) => streams[s] = device.new_stream().unwrap(),
                Step::Window(s) => Window(&streams[s]).open(),
                Step::Close(s) => Window(&streams[s]).close(),
                Step::Reclaim => reclaim_all(device),
                _ => {}
            }
            for fills in fills.values() {
                prop_assert!(fills.windows(2).all(|pair| driver::has_run(pair[0]) || !driver::has_run(pair[1])));
            }
            let bytes: u64 = live.iter().map(|buffer| buffer.allocation().bytes()).sum();
            prop_assert!(charged_bytes(device) >= bytes);
        }
        streams.iter().for_each(|stream| Window(stream).close());
        closed.drain(..).for_each(driver::open);
        device.synchronize().unwrap();
        prop_assert!(fills.values().flatten().all(|gate| driver::has_run(*gate)));
        drop(live);
        recover_memory(device);
        prop_assert_eq!(charged_bytes(device), 0);
        prop_assert_eq!(device.memory().unwrap().used, 0);
    }
}

/// An allocation that is refused is no use of memory.
#[test]
fn refused_allocations_do_not_count_in_the_peak() {
    let (device, [stream, _]) = open();
    for managed in [false, true] {
        let options = PoolOptions::new();
        let pool = MemoryPool::new(&device, if managed { options.managed() } else { options });
        let Ok(pool) = pool else { continue };
        pool.allocate(&stream, 8).unwrap();
        for _ in 0..2 {
            pool.allocate(&stream, 1 << 60).unwrap_err();
        }
        assert_eq!(pool.statistics().unwrap().used_peak, 8, "managed: {managed}");
    }
    let _held = stream.allocate(8).unwrap();
    stream.allocate(device.capabilities().memory_quota).unwrap_err();
    assert_eq!(device.default_pool().statistics().unwrap().used_peak, 8);
}

/// A buffer in managed memory may be larger than the memory of the GPU.
#[test]
fn managed_memory_is_not_charged_to_the_device() {
    let (device, [stream, _]) = open();
    let quota = device.capabilities().memory_quota;
    let pool = MemoryPool::new(&device, PoolOptions::new().managed()).unwrap();
    let managed = stream.in_pool(&pool).unwrap();
    let allocate =
        |stream: &Stream, bytes: u64| DeviceBuffer::<u8>::uninitialized(stream, bytes as usize);
    for _ in 0..2 {
        let beyond = allocate(&managed, 2 * quota).unwrap();
        let all = allocate(&stream, quota).unwrap();
        allocate(&stream, 1).unwrap_err();
        drop((beyond, all));
        recover_memory(&device);
        assert_eq!(charged_bytes(&device), 0);
    }
}

/// The device is idle after the last gate: no call of the client looks for foreign memory again.
#[test]
fn owners_of_foreign_memory_are_dropped_while_the_device_is_idle() {
    let (_device, streams) = open();
    let owners = Arc::new(AtomicU64::new(0));
    struct Owner(Arc<AtomicU64>);
    impl Drop for Owner {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }
    for round in 0..300u64 {
        let gates: Vec<_> = (0..6).map(|_| driver::gate()).collect();
        for at in 0..4 {
            owners.fetch_add(1, Ordering::SeqCst);
            let owner = Box::new(Owner(owners.clone()));
            let address = 0x10_0000 + 0x1000 * (4 * round + at);
            // SAFETY: the simulated driver writes no memory.
            let memory =
                unsafe { DeviceBuffer::<u32>::from_raw_parts(&streams[0], address, 8, owner) };
            let mut memory = memory.unwrap();
            for (index, gate) in gates.iter().enumerate() {
                if !(round + at + index as u64).is_multiple_of(3) {
                    memory.fill(&streams[index % 2], *gate).unwrap();
                }
            }
        }
        let opened = std::thread::spawn(move || gates.into_iter().rev().for_each(driver::open));
        wait_until(|| owners.load(Ordering::SeqCst) == 0);
        opened.join().unwrap();
    }
}

/// A buffer that threads share may be lent while another thread reads it.
#[test]
fn lending_shared_memory_loses_no_use_of_another_thread() {
    let (_device, [stream, other]) = open();
    let opened = driver::gate();
    driver::open(opened);
    for round in 0..5_000 {
        let mut memory = allocate(&stream, 8);
        memory.fill(&stream, opened).unwrap();
        memory.lend_raw(&stream).unwrap();
        let reads = |on: &Stream, gate: u32| {
            let call = ForeignCall::new().uses(memory.as_slice(), Access::Read);
            let enqueue = |raw: RawStream, _: &[u64]| {
                driver::enqueue(raw.stream, gate);
                Ok(())
            };
            // SAFETY: the commands use no memory.
            unsafe { call.submit(on, enqueue) }.unwrap();
        };
        reads(&stream, opened);
        let (closed, after, begun) = (driver::gate(), driver::gate(), AtomicU64::new(0));
        driver::open(after);
        let begin = || {
            begun.fetch_add(1, Ordering::SeqCst);
            while begun.load(Ordering::SeqCst) < 2 {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin();
                reads(&other, closed);
            });
            begin();
            memory.lend_raw(&stream).unwrap();
        });
        memory.fill(&stream, after).unwrap();
        assert!(!driver::has_run(after), "round {round}: the write did not wait for the read");
        driver::open(closed);
        stream.synchronize().unwrap();
    }
}

/// A caller that waits for all submissions of its own handle, as `to_device` does, may then use the memory in any
/// order: a copy from another device needs that.
#[test]
fn handle_waits_for_the_uses_of_memory_that_it_uses_again() {
    let (_device, [stream, _]) = open();
    let gate = driver::gate();
    let first = drop_in_use_until(gate, &stream, 8);
    let handle = stream.clone();
    assert_eq!(handle.last().number, 0);
    let again = allocate(&handle, 8);
    assert_eq!(allocation_id(again.allocation()), first);
    assert!(!is_settled(again.allocation()));
    assert!(handle.last().number > 0, "there is nothing to wait for");
    driver::open(gate);
    handle.synchronize_to(handle.last().number).unwrap();
    assert!(is_settled(again.allocation()));
}
