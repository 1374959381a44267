//! The quickest way there is to wait without blocking in the driver: the stream writes a word of host memory, a
//! thread spins on it and unparks who waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{JoinHandle, Thread},
};

/// Spins on a word for the thread that made it.
pub struct Watcher {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    word: &'static AtomicU64,
    /// What the word will be when what is waited for is done.
    wanted: AtomicU64,
    /// The last value that the waiting thread was unparked for.
    seen: AtomicU64,
    waiting: Thread,
    stop: AtomicBool,
}

impl Watcher {
    /// Watches `word`, which only grows. It spins while somebody waits, and parks else.
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

    /// Parks the calling thread, which made this, until the word is `value`.
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
