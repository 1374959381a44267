//! The fastest known wait that does not block in the driver: the stream writes a word of host memory, and a thread that
//! spins on the word unparks the waiting thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{JoinHandle, Thread},
};

/// Watches a word for the thread that created the watcher.
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    word: &'static AtomicU64,
    /// The value of the word at which the wait ends.
    wanted: AtomicU64,
    /// The last value for which the waiting thread was unparked.
    seen: AtomicU64,
    waiting: Thread,
    stop: AtomicBool,
}

impl Watcher {
    /// Creates a watcher of `word`, whose value must only increase. The watching thread spins during a wait and is
    /// parked otherwise.
    pub fn new(word: &'static AtomicU64) -> Self {
        let shared = Arc::new(Shared {
            word,
            wanted: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            waiting: std::thread::current(),
            stop: AtomicBool::new(false),
        });
        let thread = std::thread::spawn({
            let shared = shared.clone();
            move || shared.watch()
        });
        Self { shared, thread: Some(thread) }
    }

    /// Parks the calling thread, which created the watcher, until the word reaches `value`.
    pub fn wait_for(&self, value: u64) {
        self.shared.wanted.store(value, Ordering::Release);
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
        while self.shared.seen.load(Ordering::Acquire) < value {
            std::thread::park();
        }
    }
}

impl Shared {
    fn watch(&self) {
        while !self.stop.load(Ordering::Acquire) {
            let wanted = self.wanted.load(Ordering::Acquire);
            if wanted == self.seen.load(Ordering::Relaxed) {
                std::thread::park();
                continue;
            }
            while self.word.load(Ordering::Acquire) < wanted {
                std::hint::spin_loop();
            }
            self.seen.store(wanted, Ordering::Release);
            self.waiting.unpark();
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            drop(thread.join());
        }
    }
}
