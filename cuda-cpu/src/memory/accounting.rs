//! How many bytes are taken, and by what.
//!
//! Memory that is freed in stream order counts as free from when that was *announced*, as in a GPU's stream-ordered pool:
//! what is promised then, and does not fit yet, *waits*. Whoever waits is let in in the order of the promises, when
//! enough has been given back. So what is really taken never exceeds the capacity, and nobody waits for ever: what
//! was announced before a promise is enough for it and for all promises before it, and waits for none that came later.

use std::collections::VecDeque;

use super::error::OutOfMemory;

#[derive(Debug)]
pub(super) struct Room {
    capacity: u64,
    /// Bytes that are taken now.
    used: u64,
    /// Bytes, taken or waiting, that will be given back.
    leaving: u64,
    peak: u64,
    /// Addresses and sizes, both in the order of the promises.
    waiting: VecDeque<(u64, u64)>,
    waiting_bytes: u64,
}

impl Room {
    pub(super) fn new(capacity: u64) -> Self {
        let waiting = VecDeque::new();
        Self { capacity, used: 0, leaving: 0, peak: 0, waiting, waiting_bytes: 0 }
    }

    pub(super) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes that are spoken for: taken, or waiting, and not announced to leave.
    pub(super) fn used(&self) -> u64 {
        (self.used + self.waiting_bytes).saturating_sub(self.leaving)
    }

    /// The most that was ever taken.
    pub(super) fn peak(&self) -> u64 {
        self.peak
    }

    /// What somebody is told for whom there is no room.
    pub(super) fn full(&self, requested: u64) -> OutOfMemory {
        let free = self.capacity.saturating_sub(self.used());
        OutOfMemory { requested, free, total: self.capacity }
    }

    /// Whether `bytes` fit now, beside everything that waits.
    pub(super) fn fits_now(&self, bytes: u64) -> bool {
        let taken = self.used.saturating_add(self.waiting_bytes);
        taken.checked_add(bytes).is_some_and(|all| all <= self.capacity)
    }

    /// Whether `bytes` fit once everything has left that was announced.
    pub(super) fn fits_later(&self, bytes: u64) -> bool {
        self.used().checked_add(bytes).is_some_and(|all| all <= self.capacity)
    }

    /// Takes bytes that fit.
    pub(super) fn take(&mut self, bytes: u64) {
        self.used += bytes;
        self.peak = self.peak.max(self.used);
    }

    /// Takes bytes for an address above all earlier ones as soon as there is room. They fit, now or later.
    pub(super) fn take_when_free(&mut self, address: u64, bytes: u64) {
        if self.fits_now(bytes) {
            return self.take(bytes);
        }
        self.waiting.push_back((address, bytes));
        self.waiting_bytes += bytes;
    }

    /// Whether the bytes of this address are still to be taken.
    pub(super) fn is_waiting(&self, address: u64) -> bool {
        self.waiting.front().is_some_and(|(first, _)| address >= *first)
    }

    /// `bytes` are given back some day.
    pub(super) fn announce(&mut self, bytes: u64) {
        self.leaving += bytes;
    }

    /// What was announced happens now.
    pub(super) fn announced_leave(&mut self, bytes: u64) {
        self.leaving = self.leaving.saturating_sub(bytes);
    }

    /// Gives back bytes that were taken, and lets in who waits.
    pub(super) fn give_back(&mut self, bytes: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leaves_is_free_and_taken_until_it_has_left() {
        let mut room = Room::new(100);
        room.take(60);
        assert!(room.fits_now(40) && !room.fits_later(41));
        room.announce(60);
        assert!(!room.fits_now(41) && room.fits_later(100) && !room.fits_later(101));
        assert_eq!((room.used(), room.full(1).free), (0, 100));
        room.take_when_free(1, 70);
        room.take_when_free(2, 30);
        assert!(room.is_waiting(1) && room.is_waiting(2) && !room.fits_later(1));
        room.announced_leave(60);
        room.give_back(60);
        assert!(!room.is_waiting(1) && !room.is_waiting(2));
        assert_eq!((room.used(), room.peak()), (100, 100));
    }

    /// A small promise does not overtake a large one, for which there might then never be room.
    #[test]
    fn who_waits_is_let_in_in_order() {
        let mut room = Room::new(100);
        room.take(50);
        room.announce(50);
        room.take_when_free(1, 80);
        room.take_when_free(2, 10);
        assert!(!room.fits_now(1));
        assert!(room.is_waiting(1) && room.is_waiting(2));
        room.announced_leave(50);
        room.give_back(50);
        assert!(!room.is_waiting(1) && !room.is_waiting(2));
    }

    /// Allocations and frees on random streams, run in random order between the streams: nobody is stuck, and
    /// no more is taken than there is.
    #[test]
    fn whatever_the_order_everyone_gets_room() {
        let mut seed = 7_u64;
        let mut next = move |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..300 {
            let mut room = Room::new(100);
            let mut streams = vec![VecDeque::<(bool, u64, u64)>::new(); 4];
            // Where each live allocation was made: it is freed on the same stream, behind it.
            let mut live = Vec::new();
            for address in 0..60 {
                let (stream, bytes) = (next(4) as usize, 1 + next(60));
                while !room.fits_later(bytes) {
                    let (stream, address, bytes) =
                        live.swap_remove(next(live.len() as u64) as usize);
                    room.announce(bytes);
                    let queue: &mut VecDeque<_> = &mut streams[stream];
                    queue.push_back((false, address, bytes));
                }
                room.take_when_free(address, bytes);
                streams[stream].push_back((true, address, bytes));
                live.push((stream, address, bytes));
            }
            while streams.iter().any(|stream| !stream.is_empty()) {
                let can = |stream: &VecDeque<(bool, u64, u64)>| {
                    stream
                        .front()
                        .is_some_and(|(alloc, address, _)| !(*alloc && room.is_waiting(*address)))
                };
                let ready: Vec<_> = (0..4).filter(|index| can(&streams[*index])).collect();
                assert!(!ready.is_empty(), "stuck");
                let one = ready[next(ready.len() as u64) as usize];
                if let Some((false, _, bytes)) = streams[one].pop_front() {
                    room.announced_leave(bytes);
                    room.give_back(bytes);
                }
                assert!(room.used <= 100);
            }
        }
    }
}
