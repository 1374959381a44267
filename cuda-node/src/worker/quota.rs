//! The memory quota of a lease: one counter for the session and the stateless submits.
//!
//! Whether memory fits is decided in the order in which the client allocates and frees, so it does not depend on the
//! speed of the device: memory counts as free from the arrival of its free. But until that free is complete, the device
//! has the memory. So a charge that fits may have to wait for the memory of earlier ones. The bytes that the device has
//! never exceed the limit.
//!
//! Charges that wait get memory in their order. A small one does not overtake a large one, which could otherwise wait
//! forever. The frees that arrived before a charge suffice for it and for all earlier charges, and they wait for nothing
//! that arrived later. So every charge gets its memory.

use std::{collections::VecDeque, sync::Arc};

use cuda_core::{Error, Result, protocol::Status};
use parking_lot::{Condvar, Mutex};

/// Counts memory of a lease.
#[derive(Debug)]
pub(super) struct Quota {
    /// The end of messages: the kind of the memory and an advice. Empty for device memory.
    kind: &'static str,
    limit: u64,
    accounts: Mutex<Accounts>,
    /// A charge that waited has its memory.
    has_memory: Condvar,
}

#[derive(Debug, Default)]
struct Accounts {
    /// The bytes of charges that are not freed.
    used: u64,
    /// The bytes of charges that have their memory.
    taken: u64,
    /// The charges that wait for memory, in order: their numbers, and the bytes that they do not have.
    waiting: VecDeque<(u64, u64)>,
    /// The number of the last charge.
    last: u64,
}

/// Bytes of a [`Quota`] in use. Dropping it gives them back.
#[derive(Debug)]
pub(super) struct Charge {
    quota: Arc<Quota>,
    bytes: u64,
    number: u64,
    is_freed: bool,
}

impl Quota {
    /// Creates a quota of `limit` bytes.
    pub(super) fn new(kind: &'static str, limit: u64) -> Self {
        let (accounts, has_memory) = Default::default();
        Self { kind, limit, accounts, has_memory }
    }

    /// Returns the limit and the bytes in use, without those that are [freed](Charge::free).
    pub(super) fn limit_and_used(&self) -> (u64, u64) {
        (self.limit, self.accounts.lock().used)
    }

    /// Takes `bytes` bytes until the returned value is dropped. If others have freed them, and the frees are not
    /// complete, the charge [waits](Charge::waits) for them.
    ///
    /// # Errors
    /// Fewer bytes are free.
    pub(super) fn charge(self: &Arc<Self>, bytes: u64) -> Result<Charge> {
        let mut accounts = self.accounts.lock();
        if bytes > self.limit - accounts.used {
            drop(accounts);
            return Err(self.shortage(bytes));
        }
        accounts.used += bytes;
        accounts.last += 1;
        let number = accounts.last;
        accounts.waiting.push_back((number, bytes));
        accounts.fulfill(self.limit);
        drop(accounts);
        Ok(Charge { quota: self.clone(), bytes, number, is_freed: false })
    }

    /// Checks the counts. Returns the bytes of charges that have their memory, and the number of those that wait.
    #[cfg(test)]
    pub(super) fn check(&self) -> (u64, usize) {
        let accounts = self.accounts.lock();
        assert!(accounts.used <= self.limit && accounts.taken <= self.limit);
        (accounts.taken, accounts.waiting.len())
    }

    /// The error for `bytes` bytes that are not free.
    pub(super) fn shortage(&self, bytes: u64) -> Error {
        let (Self { kind, limit, .. }, free) = (self, self.limit - self.accounts.lock().used);
        let detail =
            format!("{bytes} bytes requested; the lease has {free} free of {limit} bytes{kind}");
        Error::Remote {
            address: "the lease".into(),
            status: Status::of_shortage(bytes, *limit),
            detail,
        }
    }
}

impl Accounts {
    /// Gives memory to the charges that wait. Returns whether there were any that got it.
    fn fulfill(&mut self, limit: u64) -> bool {
        let before = self.waiting.len();
        while let Some((_, bytes)) = self.waiting.front().copied()
            && bytes <= limit - self.taken
        {
            self.waiting.pop_front();
            self.taken += bytes;
        }
        self.waiting.len() < before
    }

    /// The position of a charge among those that wait.
    fn position(&self, number: u64) -> Option<usize> {
        self.waiting.binary_search_by_key(&number, |(number, _)| *number).ok()
    }
}

impl Charge {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether the bytes are memory that others have freed, and whose free is not complete.
    pub(super) fn waits(&self) -> bool {
        self.quota.accounts.lock().position(self.number).is_some()
    }

    /// Blocks until the charge does not [wait](Self::waits).
    pub(super) fn block(&self) {
        let mut accounts = self.quota.accounts.lock();
        while accounts.position(self.number).is_some() {
            self.quota.has_memory.wait(&mut accounts);
        }
    }

    /// The free of the memory has arrived: other charges count the bytes as free. They get the memory when this charge
    /// is dropped, at the completion of the free.
    pub(super) fn free(&mut self) {
        if !std::mem::replace(&mut self.is_freed, true) {
            self.quota.accounts.lock().used -= self.bytes;
        }
    }

    /// Takes memory over from a charge that is [freed](Self::free), if this one is the first that waits. Returns the bytes
    /// that it took.
    pub(super) fn take_over(&self, freed: &mut Charge) -> u64 {
        let mut accounts = self.quota.accounts.lock();
        let Some((number, missing)) = accounts.waiting.front_mut() else { return 0 };
        if *number != self.number || !freed.is_freed {
            return 0;
        }
        let bytes = freed.bytes.min(*missing);
        *missing -= bytes;
        freed.bytes -= bytes;
        if accounts.fulfill(self.quota.limit) {
            self.quota.has_memory.notify_all();
        }
        bytes
    }

    /// Gives a part of the bytes back.
    pub(super) fn shrink(&mut self, bytes: u64) {
        self.bytes -= bytes;
        let mut accounts = self.quota.accounts.lock();
        accounts.used -= bytes;
        accounts.taken -= bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Quota { limit, has_memory, .. } = &*self.quota;
        let mut accounts = self.quota.accounts.lock();
        if !self.is_freed {
            accounts.used -= self.bytes;
        }
        let waiting = accounts.position(self.number).and_then(|at| accounts.waiting.remove(at));
        accounts.taken -= self.bytes - waiting.map_or(0, |(_, missing)| missing);
        if accounts.fulfill(*limit) {
            has_memory.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charges_beyond_the_limit_are_refused_and_dropped_ones_come_back() {
        let quota = Arc::new(Quota::new("; an advice", 10));
        let is_refused = |bytes, words: &str| {
            let refused = quota.charge(bytes).unwrap_err().to_string();
            assert!(refused.contains(words), "{refused}");
        };
        let (first, second) = (quota.charge(4).unwrap(), quota.charge(6).unwrap());
        is_refused(1, "1 bytes requested; the lease has 0 free of 10 bytes; an advice");
        drop(second);
        assert_eq!((quota.limit_and_used(), first.bytes()), ((10, 4), 4));
        drop(first);
        is_refused(11, "10 free of 10");
    }

    #[test]
    fn freed_bytes_fit_at_once_and_are_there_when_their_free_is_complete() {
        let quota = Arc::new(Quota::new("", 10));
        let (mut first, second) = (quota.charge(8).unwrap(), quota.charge(2).unwrap());
        assert!(quota.charge(8).is_err());
        first.free();
        first.free();
        assert_eq!(quota.limit_and_used(), (10, 2));
        let (large, small) = (quota.charge(7).unwrap(), quota.charge(1).unwrap());
        assert!(large.waits() && small.waits() && quota.charge(1).is_err());
        // The small one does not overtake the large one.
        drop(second);
        assert!(large.waits() && small.waits());
        drop(first);
        assert!(!large.waits() && !small.waits());
        drop((large, small));
        assert_eq!((quota.limit_and_used().1, quota.accounts.lock().taken), (0, 0));
    }

    #[test]
    fn first_charge_that_waits_takes_memory_over() {
        let quota = Arc::new(Quota::new("", 10));
        let (mut first, mut other) = (quota.charge(6).unwrap(), quota.charge(4).unwrap());
        first.free();
        other.free();
        let (large, small) = (quota.charge(7).unwrap(), quota.charge(2).unwrap());
        assert_eq!(small.take_over(&mut first), 0);
        assert_eq!((large.take_over(&mut first), first.bytes(), large.waits()), (6, 0, true));
        assert_eq!((large.take_over(&mut other), other.bytes(), large.waits()), (1, 3, false));
        assert_eq!((small.take_over(&mut other), other.bytes(), small.waits()), (2, 1, false));
        drop((first, other));
        assert_eq!((quota.limit_and_used().1, quota.accounts.lock().taken), (9, 9));
        drop((large, small));
        assert_eq!((quota.limit_and_used().1, quota.accounts.lock().taken), (0, 0));
    }

    #[test]
    fn charge_that_is_dropped_while_it_waits_gives_back_what_it_has() {
        let quota = Arc::new(Quota::new("", 10));
        let (mut first, mut second) = (quota.charge(8).unwrap(), quota.charge(2).unwrap());
        first.free();
        second.free();
        let counts = || (quota.limit_and_used().1, quota.check());
        let charge = quota.charge(9).unwrap();
        assert_eq!(counts(), (9, (10, 1)));
        drop(charge);
        assert_eq!(counts(), (0, (10, 0)));
        let charge = quota.charge(9).unwrap();
        assert_eq!((charge.take_over(&mut first), charge.waits()), (8, true));
        drop(charge);
        assert_eq!(counts(), (0, (2, 0)));
        drop((first, second));
        assert_eq!(counts(), (0, (0, 0)));
    }

    /// Frees on random streams in random order between the streams: every charge gets its memory.
    #[test]
    fn every_charge_gets_its_memory() {
        let mut seed = 7_u64;
        let mut next = move |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) as usize % n
        };
        for _ in 0..200 {
            let quota = Arc::new(Quota::new("", 100));
            // Each charge is made and freed on its stream, in order.
            let mut live = Vec::new();
            let mut streams: [VecDeque<Charge>; 4] = Default::default();
            for _ in 0..60 {
                let bytes = 1 + next(60) as u64;
                let charge = loop {
                    match quota.charge(bytes) {
                        Ok(charge) => break charge,
                        Err(_) => {
                            let (stream, mut charge): (usize, Charge) =
                                live.swap_remove(next(live.len()));
                            charge.free();
                            streams[stream].push_back(charge);
                        }
                    }
                };
                live.push((next(4), charge));
            }
            while streams.iter().any(|stream| !stream.is_empty()) {
                let is_ready =
                    |stream: &usize| streams[*stream].front().is_some_and(|charge| !charge.waits());
                let ready: Vec<_> = (0..4).filter(is_ready).collect();
                assert!(!ready.is_empty(), "stuck");
                drop(streams[ready[next(ready.len())]].pop_front());
                assert!(quota.accounts.lock().taken <= 100);
            }
            assert!(live.iter().all(|(_, charge)| !charge.waits()));
        }
    }
}
