//! Memory pools of the backend.

use cuda_core::protocol::{Error, PoolChange, PoolId, PoolMemory, PoolSpec};

use super::*;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

impl Gpu {
    fn pool(&self, keep: u64) -> PoolId {
        let id = PoolId(self.ids.fetch_add(1, Ordering::Relaxed));
        self.control(Control::CreatePool { id, spec: PoolSpec::new(keep) });
        id
    }

    fn memory_of(&self, request: Request) -> PoolMemory {
        let (sender, reply) = channel();
        self.backend.request(request, Answer::new(move |reply| _ = sender.send(reply)));
        match reply.recv_timeout(PATIENCE).unwrap().unwrap() {
            Reply::Pool(memory) => memory,
            other => panic!("{other:?}"),
        }
    }

    fn reserved(&self, pool: PoolId) -> u64 {
        self.memory_of(Request::PoolMemory { pool }).reserved
    }

    fn free(&self, id: AllocId, stream: &Stream<'_>) {
        self.control(Control::Free { id, stream: stream.id, after: Vec::new() });
    }
}

impl Stream<'_> {
    fn try_in(&self, pool: PoolId, bytes: u64) -> cuda_core::protocol::Result<AllocId> {
        let id = AllocId(self.gpu.ids.fetch_add(1, Ordering::Relaxed));
        let number = self.number.load(Ordering::Relaxed) + 1;
        let at = Ticket { stream: self.id, number };
        let control = match pool {
            PoolId::DEFAULT => Control::Allocate { id, bytes, at },
            pool => Control::AllocateIn { pool, id, bytes, at },
        };
        // SAFETY: gives nothing up.
        unsafe { self.gpu.backend.control(control) }?;
        self.number.store(number, Ordering::Relaxed);
        Ok(id)
    }
}

#[test]
fn pools_count_their_own_memory_and_keep_it_until_a_trim() {
    let gpu = Gpu::open();
    let (stream, pool) = (gpu.stream(), gpu.pool(5));
    let allocation = stream.try_in(pool, 8 * MIB).unwrap();
    assert_eq!((gpu.reserved(pool), gpu.reserved(PoolId::DEFAULT)), (8 * MIB, 0));
    gpu.free(allocation, &stream);
    let kept = gpu.memory_of(Request::PoolMemory { pool });
    let (reserved, reserved_peak) = (8 * MIB, 8 * MIB);
    assert_eq!(kept, PoolMemory { reserved, reserved_peak, release_threshold: 5 });
    // The driver keeps whole pages of 2 MiB.
    assert_eq!(gpu.memory_of(Request::TrimPool { pool, keep: 3 * MIB }).reserved, 4 * MIB);
    gpu.control(Control::ChangePool { id: pool, change: PoolChange::ResetPeak });
    gpu.control(Control::ChangePool { id: pool, change: PoolChange::ReleaseThreshold(7) });
    let (reserved, reserved_peak) = (4 * MIB, 4 * MIB);
    let changed = PoolMemory { reserved, reserved_peak, release_threshold: 7 };
    assert_eq!(gpu.memory_of(Request::PoolMemory { pool }), changed);
}

#[test]
fn memory_that_other_pools_keep_is_found_again() {
    let gpu = Gpu::open();
    let (stream, one, two) = (gpu.stream(), gpu.pool(u64::MAX), gpu.pool(u64::MAX));
    for (from, to) in [(one, two), (two, PoolId::DEFAULT), (PoolId::DEFAULT, one)] {
        let kept = stream.try_in(from, 6 * GIB).unwrap();
        gpu.free(kept, &stream);
        assert_eq!(gpu.reserved(from), 6 * GIB);
        let found = stream.try_in(to, 6 * GIB).unwrap();
        assert_eq!((gpu.reserved(from), gpu.reserved(to)), (0, 6 * GIB));
        gpu.free(found, &stream);
    }
    let _held = stream.try_in(one, 6 * GIB).unwrap();
    let refused = stream.try_in(two, 3 * GIB);
    let (free, total) = (2 * GIB, 8 * GIB);
    let error = Error::OutOfMemory { requested: 3 * GIB, free, total, pool: None };
    assert_eq!(refused, Err(error));
}

#[test]
fn pool_whose_attributes_the_driver_refuses_is_destroyed() {
    let gpu = Gpu::open();
    driver::refuse_pool_attributes(gpu.device, true);
    for _ in 0..3 {
        let id = PoolId(gpu.ids.fetch_add(1, Ordering::Relaxed));
        let create = Control::CreatePool { id, spec: PoolSpec::new(0) };
        // SAFETY: gives nothing up.
        let refused = unsafe { gpu.backend.control(create) };
        assert!(refused.is_err(), "{refused:?}");
    }
    assert_eq!(driver::pools_of(gpu.device), 1);
    driver::refuse_pool_attributes(gpu.device, false);
    let pool = gpu.pool(0);
    assert!(gpu.stream().try_in(pool, 1).is_ok());
}

#[test]
fn dropped_pool_is_destroyed_and_others_stay() {
    let gpu = Gpu::open();
    let pools = || driver::pools_of(gpu.device);
    assert_eq!(pools(), 1);
    let (one, _two) = (gpu.pool(0), gpu.pool(0));
    assert_eq!(pools(), 3);
    gpu.control(Control::DropPool { id: one });
    let start = Instant::now();
    while pools() > 2 {
        assert!(start.elapsed() < PATIENCE, "{} pools exist", pools());
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: gives nothing up.
    let gone = unsafe { gpu.backend.control(Control::DropPool { id: one }) };
    assert!(matches!(gone, Err(Error::NoSuchObject { .. })), "{gone:?}");
    assert!(gpu.stream().try_in(one, 1).is_err());
    let device = gpu.device;
    drop(gpu);
    while driver::pools_of(device) > 1 {
        assert!(start.elapsed() < PATIENCE, "the pools of a closed backend exist");
        std::thread::sleep(Duration::from_millis(1));
    }
}
