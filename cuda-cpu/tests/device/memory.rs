//! Memory that is freed in stream order counts as free from when that is enqueued.

use super::*;

const HALF: u64 = 8 << 20;

/// With room for two halves beside the flag.
fn small() -> Device {
    let mut options = CpuOptions::default();
    options.workers = Some(2);
    options.memory = Some(2 * HALF + 4);
    Device::with(options)
}

fn alloc(d: &Device, stream: StreamId, id: u64) -> Result<(), Error> {
    d.put(stream, Command::Alloc { id: AllocId(id), bytes: HALF })
}

fn write(d: &Device, stream: StreamId, id: u64) {
    let to = Region { alloc: AllocId(id), offset: 0 };
    let fill = Command::Fill { to, pattern: Pattern::Word(7), count: HALF / 4 };
    d.put(stream, fill).unwrap();
}

fn free(d: &Device, stream: StreamId, id: u64) {
    d.put(stream, Command::Free { id: AllocId(id) }).unwrap();
}

#[test]
fn an_allocation_waits_for_frees_that_are_enqueued() {
    let d = small();
    let go = d.hold(A);
    alloc(&d, A, 10).unwrap();
    alloc(&d, A, 11).unwrap();
    assert!(matches!(alloc(&d, B, 12), Err(Error::OutOfMemory { free: 0, .. })));
    free(&d, A, 10);
    assert_eq!(d.used(), HALF + 4);
    alloc(&d, B, 12).unwrap();
    write(&d, B, 12);
    assert_eq!(d.used(), 2 * HALF + 4);
    assert!(matches!(alloc(&d, B, 13), Err(Error::OutOfMemory { free: 0, .. })));
    d.put(B, Command::Notify { token: 1 }).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(d.notices.try_recv().is_err(), "there was no room for it yet");
    drop(go);
    d.notices.recv().unwrap().status.unwrap();
    free(&d, B, 12);
    free(&d, A, 11);
    assert_eq!(d.used(), 4);
}

/// Not even between what the stream does to give it back.
#[test]
fn what_counts_as_free_does_not_come_back() {
    let d = small();
    for id in 10..4000 {
        d.put(A, Command::Alloc { id: AllocId(id), bytes: 2 * HALF }).unwrap();
        free(&d, A, id);
        assert_eq!(d.used(), 4);
    }
}

/// Work that is far behind and near the limit: every allocation has to wait for a free on another stream.
#[test]
fn near_the_limit_nobody_is_stuck() {
    for seed in 0..20 {
        let mut options = CpuOptions::default();
        options.memory = Some(2 * HALF + 4);
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
        assert_eq!(d.used(), 4);
    }
}

#[test]
fn who_waits_for_room_on_a_lost_device_goes_on() {
    let d = small();
    let go = d.hold(A);
    alloc(&d, A, 10).unwrap();
    alloc(&d, A, 11).unwrap();
    d.launch(A, WRONG, 1).unwrap();
    free(&d, A, 10);
    alloc(&d, B, 12).unwrap();
    write(&d, B, 12);
    drop(go);
    assert!(is_lost_by(&d.synchronize(B).unwrap_err(), FaultKind::Trap));
    free(&d, B, 12);
    d.request(Request::Reset).unwrap();
    assert_eq!(d.used(), HALF + 4);
    alloc(&d, B, 13).unwrap();
    write(&d, B, 13);
    d.synchronize(B).unwrap();
}

/// A launch that is queued holds its module's variables; they go with it.
#[test]
fn a_module_that_is_unloaded_under_a_launch_leaves_nothing() {
    for lost in [false, true] {
        let d = Device::new(2);
        let before = d.used();
        let text = ".version 7.0\n.target sm_70\n.address_size 64\n.global .u32 v[1000];\n\
                    .visible .entry k(.param .u64 flag) { ret; }";
        let image = ModuleImage::Ptx(text.into());
        d.request(Request::LoadModule { id: ModuleId(2), image }).unwrap();
        assert!(d.used() > before);
        let go = d.hold(A);
        if lost {
            d.launch(A, WRONG, 1).unwrap();
        }
        let launch = Launch {
            function: FunctionId { module: ModuleId(2), entry: 0 },
            config: LaunchConfig::new(1, 32),
            params: vec![0; 8].into(),
            relocations: vec![].into(),
        };
        d.put(A, Command::Launch(launch)).unwrap();
        d.request(Request::UnloadModule { id: ModuleId(2) }).unwrap();
        drop(go);
        assert_eq!(d.synchronize(A).is_err(), lost);
        assert_eq!(d.used(), before);
    }
}
