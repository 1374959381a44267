//! Teardown: a client that goes away leaves its resources to the backend, and makes no other call.

use std::{
    any::Any,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use cuda_core::{
    LaunchConfig,
    protocol::{HostRegion, Ticket, Work},
};

use crate::{
    harness::{eventually, gpu, start},
    kernels::{SLOW_STORE, slow_store_params},
};

/// Counts its drops.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn retained_resources_are_dropped_after_the_work_without_another_call() {
    let Some(gpu) = gpu() else { return };
    let (idle, stream) = (gpu.stream(), gpu.stream());
    let (to, store) = (gpu.upload(stream, &[0]), gpu.kernel(SLOW_STORE));
    let block = Arc::new(gpu.backend.host_block(1 << 20).unwrap());
    let weak = Arc::downgrade(&block);
    let params = slow_store_params(1, 300_000_000);
    let begin = Instant::now();
    gpu.launch(stream, store, LaunchConfig::new(1, 1), &params, &[(8, to)]).unwrap();
    let host = HostRegion { block: block.id(), offset: 0 };
    let work = Work::Download { from: start(to), to: host, bytes: 4 };
    let last = gpu.run_after(stream, &[], work, std::slice::from_ref(&block)).unwrap();
    let done = gpu.run(idle, Work::Join).unwrap();
    let drops = [0; 2].map(|_| Arc::new(AtomicUsize::new(0)));
    let counted = |which: usize| Box::new(Counted(drops[which].clone()));
    let retained: Vec<(Ticket, Box<dyn Any + Send + Sync>)> =
        vec![(done, counted(0)), (last, counted(1)), (last, Box::new(block))];
    // Only to look how far the stream is.
    let backend = gpu.backend.clone();
    gpu.close(retained);
    let dropped = |which: usize| drops[which].load(Ordering::SeqCst) == 1;
    // Other tests may hold up the helper thread, so the order of states is checked, and no time.
    assert!(eventually(Duration::from_secs(20), || {
        let gone = dropped(1) || weak.strong_count() == 0;
        // SAFETY: no thread retires the stream.
        let complete = unsafe { backend.peek(stream) }.unwrap() >= last.number;
        assert!(complete || !gone, "dropped before the work ended");
        dropped(0) && dropped(1) && weak.strong_count() == 0
    }));
    let late = begin.elapsed().saturating_sub(Duration::from_millis(300));
    println!("dropped {late:?} after the end of the work");
}

#[test]
fn resources_of_a_retired_stream_are_dropped_at_once() {
    let Some(gpu) = gpu() else { return };
    let gone = Ticket { stream: cuda_core::protocol::StreamId(u64::MAX), number: 1 };
    let drops = Arc::new(AtomicUsize::new(0));
    gpu.close(vec![(gone, Box::new(Counted(drops.clone())))]);
    assert!(eventually(Duration::from_millis(300), || drops.load(Ordering::SeqCst) == 1));
}

/// A backend is dropped while a module loads: the question is answered, and nothing is left behind.
#[test]
fn backend_that_is_dropped_while_a_module_loads_answers() {
    use cuda_core::protocol::{Answer, Control, ModuleId, ModuleImage, Request};
    let Some(gpu) = gpu() else { return };
    let (id, image) = (ModuleId(77), ModuleImage::Ptx(SLOW_STORE.into()));
    gpu.control(Control::LoadModule { id, image }).unwrap();
    let (sender, reply) = std::sync::mpsc::channel();
    let answer = Answer::new(move |reply| _ = sender.send(reply));
    gpu.backend.request(Request::Loaded { module: id }, answer);
    gpu.close(Vec::new());
    let reply = reply.recv_timeout(Duration::from_secs(10)).unwrap();
    println!("{reply:?}");
}
