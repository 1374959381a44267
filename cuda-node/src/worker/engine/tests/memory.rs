//! Tests of the memory that the quota counts, with ids and orders that no client of the library uses.

use std::{
    collections::{BTreeMap, BTreeSet},
    thread,
};

use cuda_core::{
    DeviceInfo,
    protocol::{AllocId, Capabilities, PoolId, PoolSpec, StreamId, Work},
};

use super::{
    super::*,
    graphs::{MODULE, Test, kernel},
};

impl Test {
    fn control(&self, control: Control) -> Result<(), SessionError> {
        self.engine.command(Command::Control(control), 64)
    }

    fn take(&mut self, stream: u64, id: u64, bytes: u64) -> Result<(), SessionError> {
        let at = self.next(stream);
        self.control(Control::Allocate { id: AllocId(id), bytes, at })
    }

    fn free(&self, stream: u64, id: u64) -> Result<(), SessionError> {
        self.free_after(stream, id, Vec::new())
    }

    fn free_after(&self, stream: u64, id: u64, after: Vec<Ticket>) -> Result<(), SessionError> {
        self.control(Control::Free { id: AllocId(id), stream: StreamId(stream), after })
    }

    fn take_in(&mut self, pool: PoolId, id: u64, bytes: u64) -> Result<(), SessionError> {
        let at = self.next(1);
        self.control(Control::AllocateIn { pool, id: AllocId(id), bytes, at })
    }

    /// Carries out the trims, and returns their pools.
    fn trimmed(&self) -> Vec<PoolId> {
        let trims = std::mem::take(&mut *self.backend.trimming.lock());
        let unsupported = || Error::unsupported(Feature::Request, "a test");
        let give = |(pool, answer): (PoolId, Answer)| {
            answer.give(Err(unsupported()));
            pool
        };
        trims.into_iter().map(give).collect()
    }

    fn name(&self, id: u64) -> Result<(), SessionError> {
        let (id, name) = (AllocId(id), "x".into());
        self.control(Control::NameVariable { id, module: MODULE, name, bytes: 4 })
    }

    /// Checks that the bytes that the backend has, with those of charges of other threads, do not exceed the limit.
    fn check_physical(
        &self,
        seed: u64,
        reuses: bool,
        sizes: &BTreeMap<u64, u64>,
        charges: &[(u64, crate::worker::quota::Charge)],
    ) {
        if reuses {
            return;
        }
        let numbers = *self.backend.numbers.lock();
        let is_complete = |ticket: &Ticket| ticket.number <= numbers[ticket.stream.0 as usize].1;
        let frees = self.backend.frees.lock();
        let freed: u64 = frees
            .iter()
            .filter(|(_, tickets)| tickets.iter().all(is_complete))
            .map(|(id, _)| sizes[id])
            .sum();
        let memory = self.memory();
        let made: u64 =
            memory.iter().filter(|(kind, _)| *kind == 'a').map(|(_, id)| sizes[id]).sum();
        let others: u64 =
            charges.iter().filter(|(_, charge)| !charge.waits()).map(|(bytes, _)| bytes).sum();
        let physical = made - freed + others;
        assert!(physical <= ALL, "seed {seed}: the backend has {physical} bytes");
    }

    fn used(&self) -> u64 {
        self.engine.quota.limit_and_used().1
    }

    /// The allocations (`a`) and frees (`f`) that the backend has.
    fn memory(&self) -> Vec<(char, u64)> {
        self.backend.memory.lock().clone()
    }
}

/// Else the end of the module would give back the charge of an allocation that has the id meanwhile.
#[test]
fn variable_is_freed_by_the_end_of_its_module_alone() {
    let mut test = Test::new();
    test.name(1).unwrap();
    let refused = test.free(1, 1).unwrap_err().to_string();
    assert!(refused.contains("unload the module"), "{refused}");
    assert!(test.take(1, 1, 64).is_err());
    // A free that is held may find a variable.
    test.load();
    test.submit(1, &[], kernel());
    test.free(1, 2).unwrap();
    test.name(2).unwrap();
    test.loaded();
    assert_eq!(test.memory(), []);
}

#[test]
fn free_waits_for_its_allocation_on_another_stream() {
    let mut test = Test::new();
    test.load();
    test.submit(2, &[], kernel());
    test.take(2, 1, 64).unwrap();
    test.free(1, 1).unwrap();
    let refused = test.take(1, 1, 64).unwrap_err().to_string();
    assert!(refused.contains("already in use"), "{refused}");
    assert_eq!(test.memory(), []);
    test.loaded();
    assert_eq!(test.memory(), [('a', 1), ('f', 1)]);
    assert_eq!(test.used(), 0);
}

/// The quota of a test.
const ALL: u64 = 1 << 20;

#[test]
fn allocation_waits_for_a_free_of_another_stream() {
    let mut test = Test::new();
    test.take(2, 1, ALL).unwrap();
    let work = test.submit(1, &[], Work::Join);
    test.submit(2, &[], Work::Join);
    test.free_after(2, 1, vec![work]).unwrap();
    // It fits, but the device has the memory of the first one until all work before its free is complete.
    test.take(2, 2, ALL).unwrap();
    assert_eq!((test.memory(), test.used()), (vec![('a', 1), ('f', 1)], ALL));
    test.complete(2);
    assert_eq!(test.memory(), [('a', 1), ('f', 1)]);
    test.complete(1);
    assert_eq!(test.memory(), [('a', 1), ('f', 1), ('a', 2)]);
    // The order of the commands decides which allocation fits, not the speed of the device.
    test.take(1, 3, 1).unwrap();
    test.free(2, 2).unwrap();
    test.take(1, 4, ALL).unwrap();
    test.free(1, 4).unwrap();
    test.complete(2);
    assert_eq!(test.memory()[3..], [('f', 2), ('a', 4), ('f', 4)]);
    assert_eq!(test.used(), 0);
}

/// A session on a GPU.
fn gpu() -> Test {
    let mut info = DeviceInfo::new("slow", "reuses memory");
    info.driver = Some((13, 0));
    let mut capabilities = Capabilities::local(ALL);
    capabilities.pools = 8;
    Test::with(info, capabilities)
}

const POOL: PoolId = PoolId(2);

fn create_pool() -> Control {
    Control::CreatePool { id: POOL, spec: PoolSpec::new(ALL) }
}

/// A session on a GPU, whose pool keeps the memory of the lease, which is free.
fn gpu_with_free_pool() -> Test {
    let mut test = gpu();
    test.control(create_pool()).unwrap();
    test.take_in(POOL, 1, ALL).unwrap();
    test.free(1, 1).unwrap();
    test.complete(1);
    test
}

/// Takes the memory of the lease on another thread, until that waits as `waits` says.
fn submit_that_waits(
    test: &Test,
    waits: impl Fn(&Test) -> bool,
    otherwise: &str,
) -> thread::JoinHandle<Result<Memory, Error>> {
    let engine = test.engine.clone();
    let submit = thread::spawn(move || engine.take_memory(ALL));
    while !waits(test) {
        assert!(!submit.is_finished(), "{otherwise}");
        thread::yield_now();
    }
    submit
}

/// Else each pool of the id would have the memory of the lease once more: the device does not reuse that of an earlier
/// one.
#[test]
fn pool_has_its_id_until_its_frees_are_complete() {
    let mut test = gpu();
    test.control(create_pool()).unwrap();
    test.take_in(POOL, 1, ALL).unwrap();
    test.submit(1, &[], Work::Join);
    test.free(1, 1).unwrap();
    test.control(Control::DropPool { id: POOL }).unwrap();
    let refused = test.control(create_pool()).unwrap_err().to_string();
    assert!(refused.contains("already in use"), "{refused}");
    assert_eq!(test.memory(), [('a', 1), ('f', 1)]);
    test.complete(1);
    test.control(create_pool()).unwrap();
    assert_eq!((test.memory()[2..].to_vec(), test.trimmed()), (vec![('d', 2)], vec![POOL]));
}

/// The device trims a pool later. Until then it has the memory of the pool, besides that of the allocation.
#[test]
fn allocation_waits_for_the_trim_of_another_pool() {
    let mut test = gpu_with_free_pool();
    test.take(1, 2, ALL).unwrap();
    assert_eq!(test.memory(), [('a', 1), ('f', 1)]);
    assert_eq!(test.trimmed(), [POOL]);
    assert_eq!(test.memory(), [('a', 1), ('f', 1), ('a', 2)]);
    // The same for a pool that is dropped, which the device destroys later.
    test.free(1, 2).unwrap();
    test.complete(1);
    test.take_in(POOL, 3, ALL).unwrap();
    assert_eq!(test.trimmed(), [PoolId::DEFAULT]);
    test.free(1, 3).unwrap();
    test.complete(1);
    test.control(Control::DropPool { id: POOL }).unwrap();
    test.take(1, 4, ALL).unwrap();
    let dropped = [('a', 3), ('f', 3), ('d', POOL.0)];
    assert_eq!(test.memory()[4..], dropped);
    assert_eq!(test.trimmed(), [POOL]);
    assert_eq!(test.memory().last(), Some(&('a', 4)));
}

/// The memory of a submit is in the default pool, and the other pools keep memory too.
#[test]
fn memory_of_a_submit_waits_for_the_trim_of_a_pool_and_counts_in_the_default_one() {
    let mut test = gpu_with_free_pool();
    let is_trimmed = |test: &Test| !test.trimmed().is_empty();
    let submit = submit_that_waits(&test, is_trimmed, "the pool is not trimmed");
    submit.join().unwrap().unwrap();
    test.take_in(POOL, 2, ALL).unwrap();
    assert_eq!(test.trimmed(), [PoolId::DEFAULT]);
    assert_eq!(test.memory().last(), Some(&('a', 2)));
}

/// The worker waits for the thread of the submits when its session ends.
#[test]
fn end_of_a_session_ends_the_wait_for_a_trim() {
    let test = gpu_with_free_pool();
    let is_trimming = |test: &Test| !test.backend.trimming.lock().is_empty();
    let submit = submit_that_waits(&test, is_trimming, "the pool is not trimmed");
    test.engine.close();
    submit.join().unwrap().unwrap();
}

/// Else the session waits for the progress of other work, which may never come.
#[test]
fn command_of_a_batch_goes_on_though_a_submit_takes_memory_meanwhile() {
    let mut test = Test::new();
    test.take(2, 1, ALL).unwrap();
    test.submit(2, &[], Work::Join);
    test.free(2, 1).unwrap();
    let wants_the_free = |test: &Test| !test.backend.wanted.lock().is_empty();
    let submit = submit_that_waits(&test, wants_the_free, "the memory is in use");
    test.load();
    test.engine.begin_batch();
    test.submit(1, &[], kernel());
    test.loaded();
    test.complete(2);
    submit.join().unwrap().unwrap();
    test.engine.end_batch();
    assert_eq!(test.submitted().last(), Some(&(1, 'l')));
}

/// An endless loop of allocations and frees goes on without waiting, as without a quota.
#[test]
fn gpu_reuses_memory_in_the_order_of_a_stream() {
    let mut test = gpu();
    for id in 1..100 {
        test.take(1, id, ALL - id).unwrap();
        test.submit(1, &[], Work::Join);
        test.free(1, id).unwrap();
    }
    assert_eq!(test.memory().len(), 2 * 99);
    // Another stream cannot reuse it, and neither can another pool.
    test.control(Control::CreatePool { id: PoolId(2), spec: PoolSpec::new(0) }).unwrap();
    test.take(2, 100, ALL).unwrap();
    test.free(2, 100).unwrap();
    let at = test.next(1);
    let in_pool = Control::AllocateIn { pool: PoolId(2), id: AllocId(101), bytes: ALL, at };
    test.control(in_pool).unwrap();
    assert_eq!(test.memory().len(), 2 * 99);
    test.complete(1);
    assert_eq!(test.memory().len(), 2 * 99 + 2);
    test.complete(2);
    assert_eq!(test.trimmed(), [PoolId::DEFAULT]);
    assert_eq!(test.memory().last(), Some(&('a', 101)));
}

#[test]
fn frees_that_are_not_complete_are_limited() {
    let mut test = Test::new();
    test.submit(1, &[], Work::Join);
    for id in 0..2 * FREE_LIMIT as u64 {
        test.take(2, id, 0).unwrap();
        test.complete(2);
        test.free(1, id).unwrap();
    }
    let frees = |test: &Test| test.memory().iter().filter(|(kind, _)| *kind == 'f').count();
    assert_eq!(frees(&test), FREE_LIMIT);
    test.complete(1);
    assert_eq!(frees(&test), 2 * FREE_LIMIT);
}

/// They come after the work of one stream, and their own streams have completed everything.
#[test]
fn frees_that_are_not_complete_are_limited_on_all_streams_together() {
    let mut test = Test::new();
    let after = vec![test.submit(1, &[], Work::Join)];
    for id in 0..ALL_FREES_LIMIT as u64 + 7 {
        test.take(2, id, 0).unwrap();
        test.complete(2);
        test.free_after(2, id, after.clone()).unwrap();
    }
    assert_eq!(test.engine.state.lock().held, 2 * 7 - 1);
    assert!(test.report_wanted());
    test.complete(2);
    assert_eq!((test.engine.state.lock().held, test.engine.reports.all_frees()), (0, 0));
}

/// Random commands of a session with several streams, beside charges of other threads, against a model: which
/// allocations fit depends on the order of arrival alone, the bytes that the backend has never exceed the limit, every
/// command is carried out, and nothing stays charged.
#[test]
fn random_commands_agree_with_a_model_of_the_quota() {
    for seed in 0..400 {
        random_commands(seed, false);
        random_commands(seed, true);
    }
}

fn random_commands(seed: u64, reuses: bool) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut info = DeviceInfo::new("slow", "random");
    let mut capabilities = Capabilities::local(ALL);
    capabilities.pools = 8;
    if reuses {
        info.driver = Some((13, 0));
    }
    let mut test = Test::with(info, capabilities);
    test.control(Control::CreatePool { id: PoolId(2), spec: PoolSpec::new(0) }).unwrap();
    // The model: the bytes of allocations that were admitted and whose free has not arrived.
    let mut used = 0;
    let mut sizes = BTreeMap::new();
    let mut live: Vec<u64> = Vec::new();
    let mut charges: Vec<(u64, crate::worker::quota::Charge)> = Vec::new();
    let mut admitted = 0;
    let mut is_loading = false;
    for id in 1..120 {
        match random(12) {
            0..5 => {
                let (stream, bytes) = (1 + random(2), random(ALL / 2) + 1);
                let fits = bytes <= ALL - used;
                let before = test.used();
                assert_eq!(before, used, "seed {seed}, command {id}");
                if random(4) == 0 {
                    let at = test.next(stream);
                    let pool = PoolId(2);
                    test.control(Control::AllocateIn { pool, id: AllocId(id), bytes, at }).unwrap();
                } else {
                    test.take(stream, id, bytes).unwrap();
                }
                assert_eq!(test.used() - before, if fits { bytes } else { 0 });
                live.push(id);
                sizes.insert(id, if fits { bytes } else { 0 });
                used += sizes[&id];
                admitted += u64::from(fits);
            }
            5..8 if !live.is_empty() => {
                let id = live.swap_remove(random(live.len() as u64) as usize);
                let stream = 1 + random(2);
                let other = StreamId(3 - stream);
                let last = test.last(3 - stream);
                let after = match random(2) == 0 && last > 0 {
                    true => vec![Ticket { stream: other, number: 1 + random(last) }],
                    false => Vec::new(),
                };
                test.free_after(stream, id, after).unwrap();
                if random(8) == 0 {
                    // A second free of the same id.
                    test.free(stream, id).unwrap();
                }
                used -= sizes[&id];
            }
            8 => {
                let bytes = random(ALL / 4);
                let fits = bytes <= ALL - used;
                let charge = test.engine.quota.charge(bytes);
                assert_eq!(charge.is_ok(), fits);
                if let Ok(charge) = charge {
                    test.engine.look_for_memory();
                    used += bytes;
                    charges.push((bytes, charge));
                }
            }
            9 if !charges.is_empty() => {
                // Also one that waits: its job was cancelled.
                let (bytes, charge) = charges.swap_remove(random(charges.len() as u64) as usize);
                drop(charge);
                used -= bytes;
            }
            10 => {
                let stream = 1 + random(2);
                if !is_loading && random(4) == 0 {
                    is_loading = true;
                    test.load();
                    test.submit(stream, &[], kernel());
                } else {
                    let last = test.last(3 - stream);
                    let ticket = Ticket { stream: StreamId(3 - stream), number: last };
                    let after = if last > 0 && random(2) == 0 { vec![ticket] } else { Vec::new() };
                    test.submit(stream, &after, Work::Join);
                }
            }
            _ if random(4) == 0 => _ = test.trimmed(),
            _ => test.complete_some(1 + random(2), &mut random),
        }
        test.check_physical(seed, reuses, &sizes, &charges);
        test.engine.quota.check();
    }
    if is_loading {
        test.loaded();
    }
    // The end: only reports that were requested, as of a device.
    for round in 0.. {
        let waits: Vec<_> =
            charges.iter().map(|(bytes, charge)| (*bytes, charge.waits())).collect();
        let held = test.engine.state.lock().held;
        assert!(
            round < 200,
            "seed {seed} {reuses}: stuck: {held} held, {waits:?}, {:?}",
            test.engine.quota
        );
        let before = (test.memory().len(), test.engine.state.lock().held);
        test.engine.look_for_memory();
        test.engine.report_backlog();
        test.report_wanted();
        test.trimmed();
        charges.retain(|(bytes, charge)| {
            let waits = charge.waits();
            used -= if waits { 0 } else { *bytes };
            waits
        });
        test.engine.look_for_memory();
        test.check_physical(seed, reuses, &sizes, &charges);
        if before == (test.memory().len(), test.engine.state.lock().held) && charges.is_empty() {
            break;
        }
    }
    assert_eq!(test.engine.state.lock().held, 0, "seed {seed}: commands are stuck");
    let made = test.memory().iter().filter(|(kind, _)| *kind == 'a').count();
    assert_eq!(made as u64, admitted, "seed {seed}");
    for id in live {
        test.free(1, id).unwrap();
        used -= sizes[&id];
    }
    test.engine.report_backlog();
    test.report_wanted();
    assert_eq!((used, test.used()), (0, 0), "seed {seed}");
    assert_eq!(test.engine.quota.check(), (0, 0), "seed {seed}");
}

/// The memory that a device has reserved for pools. A pool keeps memory until it is trimmed, also when it is dropped.
#[derive(Default)]
struct Reserved {
    /// The number of the pool and the bytes of each allocation.
    allocations: BTreeMap<u64, (usize, u64)>,
    /// The bytes in use and the reserved bytes of each pool.
    pools: Vec<(u64, u64)>,
    /// The entries of `Slow::memory` that are carried out.
    seen: usize,
    /// The allocations that exist.
    made: BTreeSet<u64>,
}

impl Reserved {
    /// Follows the backend.
    fn look(&mut self, test: &Test, seed: u64) {
        self.free(test);
        let memory = test.memory();
        for (kind, id) in &memory[self.seen..] {
            if *kind == 'a' {
                let (pool, bytes) = self.allocations[id];
                let (used, reserved) = &mut self.pools[pool];
                *used += bytes;
                *reserved = (*used).max(*reserved);
                self.made.insert(*id);
                let all: u64 = self.pools.iter().map(|(_, reserved)| reserved).sum();
                assert!(all <= ALL, "seed {seed}: {all} bytes are reserved");
            }
            self.free(test);
        }
        self.seen = memory.len();
    }

    /// Carries out the frees whose tickets are complete.
    fn free(&mut self, test: &Test) {
        let numbers = *test.backend.numbers.lock();
        let is_complete = |ticket: &Ticket| ticket.number <= numbers[ticket.stream.0 as usize].1;
        for (id, tickets) in &*test.backend.frees.lock() {
            if tickets.iter().all(is_complete) && self.made.remove(id) {
                let (pool, bytes) = self.allocations[id];
                self.pools[pool].0 -= bytes;
            }
        }
    }
}

/// Random allocations, frees, and pools that come and go: the device never reserves more than the quota, every
/// allocation is made, and every dropped pool ends.
#[test]
fn pools_never_reserve_more_than_the_quota() {
    for seed in 0..400 {
        random_pools(seed);
    }
}

fn random_pools(seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let mut capabilities = Capabilities::local(ALL);
    capabilities.pools = 8;
    let mut test = Test::with(DeviceInfo::new("slow", "random"), capabilities);
    let mut device = Reserved { pools: vec![(0, 0)], ..Reserved::default() };
    // The pools of the client, and the numbers in the model of all that have been.
    let mut own = vec![(PoolId::DEFAULT, 0)];
    let mut numbers = BTreeMap::from([(0, 0)]);
    let (mut live, mut used, mut dropped) = (Vec::new(), 0, 0);
    let trim = |test: &Test, device: &mut Reserved, numbers: &BTreeMap<u64, usize>| {
        for (pool, _) in &*test.backend.trimming.lock() {
            let (used, reserved) = &mut device.pools[numbers[&pool.0]];
            *reserved = *used;
        }
        test.trimmed();
    };
    for id in 1..150 {
        match random(10) {
            0..4 => {
                let (pool, number) = own[random(own.len() as u64) as usize];
                let bytes = 1 + random(ALL * 2 / 3);
                if bytes <= ALL - used {
                    let at = test.next(1 + random(2));
                    let control = match pool {
                        PoolId::DEFAULT => Control::Allocate { id: AllocId(id), bytes, at },
                        pool => Control::AllocateIn { pool, id: AllocId(id), bytes, at },
                    };
                    device.allocations.insert(id, (number, bytes));
                    test.control(control).unwrap();
                    live.push(id);
                    used += bytes;
                }
            }
            4..6 if !live.is_empty() => {
                let id = live.swap_remove(random(live.len() as u64) as usize);
                used -= device.allocations[&id].1;
                test.free(1 + random(2), id).unwrap();
            }
            6 if own.len() < 4 => {
                let pool = PoolId(id);
                test.control(Control::CreatePool { id: pool, spec: PoolSpec::new(ALL) }).unwrap();
                numbers.insert(id, device.pools.len());
                own.push((pool, device.pools.len()));
                device.pools.push((0, 0));
            }
            6 => {
                let (id, _) = own.swap_remove(1 + random(3) as usize);
                test.control(Control::DropPool { id }).unwrap();
                dropped += 1;
            }
            7 => _ = test.submit(1 + random(2), &[], Work::Join),
            8 => trim(&test, &mut device, &numbers),
            _ => test.complete_some(1 + random(2), &mut random),
        }
        device.look(&test, seed);
    }
    for id in live {
        test.free(1, id).unwrap();
    }
    for _ in 0..200 {
        test.engine.report_backlog();
        test.report_wanted();
        device.look(&test, seed);
        trim(&test, &mut device, &numbers);
        device.look(&test, seed);
    }
    let made = |kind| test.memory().iter().filter(|(of, _)| *of == kind).count();
    assert_eq!(test.engine.state.lock().held, 0, "seed {seed}: commands are stuck");
    assert_eq!(made('a'), device.allocations.len(), "seed {seed}");
    // The pools of frees that are complete end with the next command about pools.
    test.control(Control::CreatePool { id: PoolId(1000), spec: PoolSpec::new(0) }).unwrap();
    assert_eq!(made('d'), dropped, "seed {seed}");
}

/// A client may have a thousand allocations that wait, and frees on a thousand streams.
#[test]
fn progress_of_frees_is_requested_once() {
    let mut test = Test::new();
    let all = test.engine.quota.limit_and_used().0;
    test.take(1, 10, all).unwrap();
    test.submit(1, &[], Work::Join);
    test.free(1, 10).unwrap();
    for (stream, id) in [(1, 11), (2, 12)] {
        test.take(stream, id, 64).unwrap();
        test.engine.after_progress();
    }
    assert_eq!(test.engine.state.lock().held, 2);
    assert_eq!(test.backend.wanted.lock().len(), 1);
    assert!(test.report_wanted());
    assert_eq!(test.engine.state.lock().held, 0);
}
