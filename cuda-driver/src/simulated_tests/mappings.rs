//! Reserved addresses of the backend, to which memory is mapped.

use cuda_core::protocol::Error;

use super::*;

const MIB: u64 = 1 << 20;

impl Gpu {
    fn commit(&self, id: AllocId, bytes: u64) -> cuda_core::protocol::Result<Reply> {
        let (sender, reply) = channel();
        let request = Request::Commit { id, bytes };
        self.backend.request(request, Answer::new(move |reply| _ = sender.send(reply)));
        reply.recv_timeout(PATIENCE).unwrap()
    }
}

/// One test, because the driver counts the mappings of all devices.
#[test]
fn reserved_addresses_get_memory_in_place_and_give_it_back_after_the_last_use() {
    let gpu = Gpu::open();
    let (stream, id) = (gpu.stream(), AllocId(1000));
    gpu.control(Control::Reserve { id, bytes: 9 * MIB });
    assert_eq!((driver::mappings(), gpu.memory_in_use()), ([1, 0, 0], 0));
    assert_eq!(gpu.commit(id, 1), Ok(Reply::Committed));
    assert_eq!((driver::mappings(), gpu.memory_in_use()), ([1, 1, 1], 1));
    // Inside the piece that is there.
    assert_eq!(gpu.commit(id, 2 * MIB), Ok(Reply::Committed));
    assert_eq!(gpu.commit(id, 9 * MIB), Ok(Reply::Committed));
    assert_eq!((driver::mappings(), gpu.memory_in_use()), ([1, 2, 2], 9 * MIB));
    let beyond = gpu.commit(id, 11 * MIB);
    assert!(matches!(beyond, Err(Error::OutOfRange { .. })), "{beyond:?}");
    assert!(gpu.commit(stream.alloc(), 1).is_err());
    // The driver refuses the memory: nothing changes.
    let huge = AllocId(1001);
    gpu.control(Control::Reserve { id: huge, bytes: 1 << 33 });
    let refused = gpu.commit(huge, 1 << 33);
    assert!(matches!(refused, Err(Error::OutOfMemory { .. })), "{refused:?}");
    assert_eq!(driver::mappings(), [2, 2, 2]);
    // A kernel that was enqueued before the free.
    let (_, gate) = stream.kernel(&[]);
    gpu.control(Control::Free { id, stream: stream.id, after: Vec::new() });
    assert_eq!(gpu.memory_in_use(), 64 + 64);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(driver::mappings(), [2, 2, 2]);
    driver::open(gate);
    let start = Instant::now();
    let wait_for = |expected| {
        while driver::mappings() != expected {
            assert!(start.elapsed() < PATIENCE, "{:?}", driver::mappings());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    wait_for([1, 0, 0]);
    // A backend that is dropped gives the rest back.
    drop(gpu);
    wait_for([0, 0, 0]);
}
