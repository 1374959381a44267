//! Accounting of device memory against its capacity.
//!
//! As in the stream-ordered pool of a GPU, memory counts as free from the submission of its free, when the release is
//! *announced*. An allocation is *promised* if it fits after the announced releases. A promise that does not fit yet
//! *waits*. Waiting promises are fulfilled in order, when enough memory is released.
//!
//! The bytes really in use therefore never exceed the capacity. Every promise is fulfilled eventually: the releases
//! announced before it suffice for it and for all earlier promises, and they do not wait for later ones.

use std::collections::VecDeque;

use super::error::OutOfMemory;

#[derive(Debug)]
pub(super) struct Accounting {
    capacity: u64,
    /// The bytes in use now.
    used: u64,
    /// The bytes, in use or waiting, whose release is announced.
    leaving: u64,
    peak: u64,
    /// The addresses and sizes of waiting promises, in order.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
}

impl Accounting {
    pub(super) fn new(capacity: u64) -> Self {
        let waiting = VecDeque::new();
        Self { capacity, used: 0, leaving: 0, peak: 0, waiting, waiting_bytes: 0 }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Returns the bytes in use or promised, without those whose release is announced.
    pub(super) fn used(&self) -> u64 {
        (self.used + self.waiting_bytes).saturating_sub(self.leaving)
    }

    /// Returns the maximum of bytes in use so far.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    /// Returns the error for an allocation that does not fit.
    pub(super) fn out_of_memory(&self, requested: u64) -> OutOfMemory {
        let free = self.capacity.saturating_sub(self.used());
        OutOfMemory { requested, free, total: self.capacity, refused_by_host: false }
    }

    /// Returns the error for an allocation that fits, and for which the host has no memory or no addresses.
    pub(super) fn no_host_memory(&self, requested: u64) -> OutOfMemory {
        OutOfMemory { refused_by_host: true, ..self.out_of_memory(requested) }
    }

    /// Whether `bytes` fit now, in addition to all waiting promises.
    pub(super) fn fits_now(&self, bytes: u64) -> bool {
        let taken = self.used.saturating_add(self.waiting_bytes);
        taken.checked_add(bytes).is_some_and(|all| all <= self.capacity)
    }

    /// Whether `bytes` fit after all announced releases.
    pub(super) fn fits_later(&self, bytes: u64) -> bool {
        self.used().checked_add(bytes).is_some_and(|all| all <= self.capacity)
    }

    /// Counts bytes that fit as in use.
    pub(super) fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Promises bytes that fit now or later. They count as in use as soon as they fit. The address must be above all
    /// earlier ones.
    pub(super) fn take_when_free(&mut self, address: u64, bytes: u64) {
        if self.fits_now(bytes) {
            return self.take(bytes);
        }
        self.waiting.push_back((address, bytes));
        self.waiting_bytes += bytes;
    }

    /// Whether the promise of this address is still waiting.
    pub(super) fn is_waiting(&self, address: u64) -> bool {
        self.waiting.front().is_some_and(|(first, _)| address >= *first)
    }

    /// Announces that `bytes` will be released.
    pub(super) fn announce_release(&mut self, bytes: u64) {
        self.leaving += bytes;
    }

    /// Records that an announced release happens now.
    pub(super) fn complete_announced(&mut self, bytes: u64) {
        self.leaving = self.leaving.saturating_sub(bytes);
    }

    /// Releases bytes in use, and fulfills the waiting promises that fit then.
    pub(super) fn release(&mut self, bytes: u64) {
        self.used = self.used.saturating_sub(bytes);
        while let Some((_, next)) = self.waiting.front().copied()
            && self.used.saturating_add(next) <= self.capacity
        {
            self.waiting.pop_front();
            self.waiting_bytes -= next;
            self.take(next);
        }
    }
}

/// The usage of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// The bytes of allocations that are not freed and for which no free is submitted.
    pub used: u64,
    /// The maximum number of bytes in use so far.
    pub peak: u64,
    /// The capacity in bytes.
    pub total: u64,
    /// The number of live allocations.
    pub allocations: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn announced_bytes_count_as_free_and_stay_in_use_until_released() {
        let mut accounting = Accounting::new(100);
        accounting.take(60);
        assert!(accounting.fits_now(40) && !accounting.fits_later(41));
        accounting.announce_release(60);
        assert!(
            !accounting.fits_now(41) && accounting.fits_later(100) && !accounting.fits_later(101)
        );
        assert_eq!((accounting.used(), accounting.out_of_memory(1).free), (0, 100));
        accounting.take_when_free(1, 70);
        accounting.take_when_free(2, 30);
        assert!(accounting.is_waiting(1) && accounting.is_waiting(2) && !accounting.fits_later(1));
        accounting.complete_announced(60);
        accounting.release(60);
        assert!(!accounting.is_waiting(1) && !accounting.is_waiting(2));
        assert_eq!((accounting.used(), accounting.peak()), (100, 100));
    }

    /// A small promise does not overtake a large one, which could otherwise wait forever.
    #[test]
    fn promises_are_fulfilled_in_order() {
        let mut accounting = Accounting::new(100);
        accounting.take(50);
        accounting.announce_release(50);
        accounting.take_when_free(1, 80);
        accounting.take_when_free(2, 10);
        assert!(!accounting.fits_now(1));
        assert!(accounting.is_waiting(1) && accounting.is_waiting(2));
        accounting.complete_announced(50);
        accounting.release(50);
        assert!(!accounting.is_waiting(1) && !accounting.is_waiting(2));
    }

    /// Runs allocations and frees of random streams in random order between the streams. Every promise is fulfilled,
    /// and the bytes in use never exceed the capacity.
    #[test]
    fn every_promise_is_fulfilled_in_any_stream_order() {
        let mut seed = 7_u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..300 {
            let mut accounting = Accounting::new(100);
            let mut streams = vec![VecDeque::<(bool, u64, u64)>::new(); 4];
            // Live allocations with their streams. Each is freed on the stream of its allocation, after it.
            let mut live = Vec::new();
            for address in 0..60 {
                let (stream, bytes) = (next(4) as usize, 1 + next(60));
                while !accounting.fits_later(bytes) {
                    let (stream, address, bytes) =
                        live.swap_remove(next(live.len() as u64) as usize);
                    accounting.announce_release(bytes);
                    let queue: &mut VecDeque<_> = &mut streams[stream];
                    queue.push_back((false, address, bytes));
                }
                accounting.take_when_free(address, bytes);
                streams[stream].push_back((true, address, bytes));
                live.push((stream, address, bytes));
            }
            while streams.iter().any(|stream| !stream.is_empty()) {
                let can = |stream: &VecDeque<(bool, u64, u64)>| {
                    stream.front().is_some_and(|(alloc, address, _)| {
                        !(*alloc && accounting.is_waiting(*address))
                    })
                };
                let ready: Vec<_> = (0..4).filter(|index| can(&streams[*index])).collect();
                assert!(!ready.is_empty(), "stuck");
                let one = ready[next(ready.len() as u64) as usize];
                if let Some((false, _, bytes)) = streams[one].pop_front() {
                    accounting.complete_announced(bytes);
                    accounting.release(bytes);
                }
                assert!(accounting.used <= 100);
            }
        }
    }
}
