//! `ShardedArc`: the value lives while a handle exists, and is dropped once, after every use.

use std::sync::Arc;

use ::loom::{cell::UnsafeCell, sync::atomic, thread};

use super::check;
use crate::sync::ShardedArc;

/// loom reports a use that is not ordered before the drop.
struct Value {
    used: UnsafeCell<()>,
    drops: Arc<atomic::AtomicUsize>,
}

// SAFETY: loom checks the accesses of the cell.
unsafe impl Sync for Value {}
// SAFETY: loom checks the accesses of the cell.
unsafe impl Send for Value {}

impl Value {
    fn read(&self) {
        self.used.with(|_| ());
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.used.with_mut(|_| ());
        self.drops.fetch_add(1, atomic::Ordering::Relaxed);
    }
}

/// Starts a thread that clones a handle into the given shards, one clone from the other. It drops each handle after it
/// has cloned it.
fn pass_on(first: ShardedArc<Value>, shards: [usize; 2]) -> thread::JoinHandle<()> {
    thread::spawn(move || {
        let mut handle = first;
        for shard in shards {
            let next = handle.clone_in(shard);
            drop(handle);
            next.read();
            handle = next;
        }
    })
}

fn dropped_once_after_every_use(shards: [[usize; 2]; 2]) {
    check(Some(2), move || {
        let drops = Arc::new(atomic::AtomicUsize::new(0));
        let value = Value { used: UnsafeCell::new(()), drops: drops.clone() };
        let handle = ShardedArc::new_in(0, value);
        let threads = shards.map(|shards| pass_on(handle.clone_in(shards[1]), shards));
        handle.read();
        drop(handle);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(drops.load(atomic::Ordering::Relaxed), 1);
    });
}

#[test]
fn value_is_dropped_once_if_threads_change_to_the_same_shard() {
    dropped_once_after_every_use([[1, 0], [1, 0]]);
}

#[test]
fn value_is_dropped_once_if_threads_change_to_different_shards() {
    dropped_once_after_every_use([[0, 1], [1, 0]]);
}
