//! Memory counts as free from the submission of its free, in stream order.

use super::*;

const HALF: u64 = 8 << 20;

/// With room for two halves beside the flag.
fn small() -> Device {
    let mut options = CpuOptions::default();
    options.workers = Some(2);
    options.memory = Some(2 * HALF + FLAG_BYTES);
    Device::with(options)
}

fn alloc(d: &Device, stream: StreamId, id: u64) -> Result<Ticket, Error> {
    d.client.allocate(stream, AllocId(id), HALF)
}

fn write(d: &Device, stream: StreamId, id: u64) -> Ticket {
    let to = Region { alloc: AllocId(id), offset: 0 };
    let fill = Work::Fill { to, pattern: Pattern::Word(7), count: HALF / 4 };
    d.submit(stream, fill).unwrap()
}

fn free(d: &Device, stream: StreamId, id: u64) {
    d.client.free(stream, AllocId(id), &[]).unwrap();
}

#[test]
fn allocation_waits_for_frees_in_flight() {
    let d = small();
    let go = d.hold(A);
    alloc(&d, A, 10).unwrap();
    alloc(&d, A, 11).unwrap();
    assert!(matches!(alloc(&d, B, 12), Err(Error::OutOfMemory { free: 0, .. })));
    free(&d, A, 10);
    assert_eq!(d.used(), HALF + FLAG_BYTES);
    alloc(&d, B, 12).unwrap();
    let written = write(&d, B, 12);
    assert_eq!(d.used(), 2 * HALF + FLAG_BYTES);
    assert!(matches!(alloc(&d, B, 13), Err(Error::OutOfMemory { free: 0, .. })));
    d.want(B);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(d.notices.try_recv().is_err(), "there was no room for it yet");
    drop(go);
    assert_eq!(d.next_report(), written);
    d.synchronize(B).unwrap();
    free(&d, B, 12);
    free(&d, A, 11);
    assert_eq!(d.used(), FLAG_BYTES);
}

/// The free runs on one stream after the last use on another.
#[test]
fn free_waits_for_uses_on_other_streams() {
    let d = small();
    let made = alloc(&d, A, 10).unwrap();
    let go = d.hold(A);
    let used = write(&d, A, 10);
    d.join(B, &[made]);
    d.client.free(B, AllocId(10), &[used]).unwrap();
    let behind = d.join(B, &[]);
    d.want(B);
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(d.notices.try_recv().is_err(), "the free did not wait");
    drop(go);
    assert_eq!(d.next_report(), behind);
    assert_eq!(d.outcome(used), Ok(()));
}

/// Also between two steps of the stream that gives it back.
#[test]
fn freed_memory_is_never_counted_again() {
    let d = small();
    for id in 10..4000 {
        d.client.allocate(A, AllocId(id), 2 * HALF).unwrap();
        free(&d, A, id);
        assert_eq!(d.used(), FLAG_BYTES);
    }
}

/// Work that is far behind and near the limit: every allocation has to wait for a free on another stream.
#[test]
fn allocations_near_the_limit_all_end() {
    for seed in 0..20 {
        let mut options = CpuOptions::default();
        options.memory = Some(2 * HALF + FLAG_BYTES);
        options.timing =
            Timing::Adversarial { seed, max_delay: std::time::Duration::from_micros(300) };
        let d = Device::with(options);
        for id in 10..60 {
            let stream = if id % 3 == 0 { A } else { B };
            alloc(&d, stream, id).unwrap();
            write(&d, stream, id);
            free(&d, stream, id);
        }
        d.synchronize(A).unwrap();
        d.synchronize(B).unwrap();
        assert_eq!(d.used(), FLAG_BYTES);
    }
}

#[test]
fn allocation_that_waits_for_room_on_a_lost_device_ends() {
    let d = small();
    let go = d.hold(A);
    alloc(&d, A, 10).unwrap();
    alloc(&d, A, 11).unwrap();
    d.launch(A, TRAP, 1).unwrap();
    free(&d, A, 10);
    alloc(&d, B, 12).unwrap();
    let skipped = write(&d, B, 12);
    drop(go);
    assert!(is_fault(&d.outcome(skipped).unwrap_err(), FaultKind::Trap));
    free(&d, B, 12);
    d.client.reset();
    assert_eq!(d.used(), HALF + FLAG_BYTES);
    alloc(&d, B, 13).unwrap();
    let written = write(&d, B, 13);
    assert_eq!(d.outcome(written), Ok(()));
}

/// A launch in flight holds its module's variables. They are freed with it.
#[test]
fn module_unloaded_during_a_launch_is_freed() {
    for lost in [false, true] {
        let d = Device::new(2);
        let before = d.used();
        let text = ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 v[1000];\n\
                    .visible .entry k(.param .u64 flag) { ret; }";
        d.client.load(ModuleId(2), text);
        assert!(d.used() > before);
        let go = d.hold(A);
        if lost {
            d.launch(A, TRAP, 1).unwrap();
        }
        let launch = Launch {
            function: FunctionId { module: ModuleId(2), entry: 0 },
            config: LaunchConfig::new(1, 32),
            params: vec![0; 8].into(),
            relocations: vec![].into(),
            variables: Default::default(),
        };
        d.submit(A, Work::Launch(launch)).unwrap();
        d.client.control(Control::UnloadModule { id: ModuleId(2) }).unwrap();
        drop(go);
        assert_eq!(d.synchronize(A).is_err(), lost);
        assert_eq!(d.used(), before);
    }
}

/// Else the memory of the first allocation could not be freed any more.
#[test]
fn id_of_an_allocation_is_not_given_to_another_one() {
    let d = small();
    alloc(&d, A, 10).unwrap();
    let in_use = |result: Result<(), Error>| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("the id 10 names"), "{error}");
    };
    in_use(alloc(&d, B, 10).map(drop));
    in_use(d.client.control(Control::Reserve { id: AllocId(10), bytes: HALF }));
    assert_eq!(d.used(), HALF + FLAG_BYTES);
    free(&d, A, 10);
    assert_eq!(d.used(), FLAG_BYTES);
}
