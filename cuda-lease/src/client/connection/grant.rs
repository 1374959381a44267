//! The token and the expiry of a lease.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;

use crate::wire::{Granted, Renew, Renewed};

/// The current state of a lease that was granted. A renewal changes it.
pub(in crate::client) struct Grant {
    pub(in crate::client) lease: u64,
    token: Mutex<Bytes>,
    generation: AtomicU32,
    expires: Mutex<Instant>,
}

impl Grant {
    pub(in crate::client) fn new(granted: &Granted) -> Self {
        Self {
            lease: granted.lease,
            token: Mutex::new(granted.token.clone()),
            generation: AtomicU32::new(granted.generation),
            expires: Mutex::new(Instant::now() + Duration::from_millis(granted.expires_in_ms)),
        }
    }

    pub(in crate::client) fn token(&self) -> Bytes {
        self.token.lock().clone()
    }

    pub(in crate::client) fn expires_in(&self) -> Duration {
        self.expires.lock().saturating_duration_since(Instant::now())
    }

    pub(in crate::client) fn generation(&self) -> u32 {
        self.generation.load(Ordering::Relaxed)
    }

    /// The body of the request that renews the lease for `lease_secs` seconds from now on.
    pub(super) fn renew_request(&self, lease_secs: u32) -> Vec<u8> {
        let renew = Renew { lease: self.lease, token: self.token(), lease_secs };
        let mut body = Vec::new();
        renew.encode(&mut body);
        body
    }

    /// Takes the reply to a renewal.
    pub(super) fn renewed(&self, renewed: &Renewed) {
        *self.token.lock() = renewed.token.clone();
        self.generation.store(renewed.generation, Ordering::Relaxed);
        *self.expires.lock() = Instant::now() + Duration::from_millis(renewed.expires_in_ms);
    }
}
