//! The leases of a node.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use cuda_core::{DeviceInfo, Error, Provider, protocol::Status};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::{blobs::Blobs, session::Session};
use crate::{
    node::worker::Worker,
    wire::{Allocate, Granted, Limits, Renewed},
};

pub(super) type Refusal = (Status, String);

/// Temporary: replaced by the lease table.
pub(super) struct Leases {
    provider: Box<dyn Provider>,
    in_flight: u64,
    device: DeviceInfo,
    blobs: Arc<Blobs>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    leases: FxHashMap<u64, Lease>,
}

struct Lease {
    expires: Instant,
    limits: Limits,
    session: Option<Arc<Session>>,
    worker: Option<Worker>,
}

impl Leases {
    pub(super) fn new(provider: Box<dyn Provider>, in_flight: u64) -> cuda_core::Result<Self> {
        let device = provider.devices()?.into_iter().next().ok_or_else(|| Error::NoDevice {
            address: provider.scheme().into(),
            available: "none".into(),
        })?;
        Ok(Self { in_flight, provider, device, blobs: Arc::default(), state: Mutex::default() })
    }

    pub(super) fn allocate(&self, request: &Allocate) -> Result<Granted, Refusal> {
        let worker = Worker::open(&*self.provider, 0)
            .map_err(|error| (Status::Internal, error.to_string()))?;
        let limits = Limits {
            submissions_in_flight: self.in_flight,
            host_bytes_in_flight: 64 << 20,
            memory: request.min_vram,
            streams: 1024,
            module_bytes: 64 << 20,
        };
        let mut state = self.state.lock();
        state.next += 1;
        let lease = state.next;
        let time = Duration::from_secs(request.lease_secs.into());
        let entry =
            Lease { expires: Instant::now() + time, limits, session: None, worker: Some(worker) };
        state.leases.insert(lease, entry);
        Ok(Granted {
            lease,
            token: Bytes::from_static(b"token"),
            generation: 1,
            expires_in_ms: time.as_millis() as u64,
            device: self.device.clone(),
            limits,
        })
    }

    pub(super) fn renew(&self, lease: u64, secs: u32) -> Result<Renewed, Refusal> {
        let mut state = self.state.lock();
        let lease = state.leases.get_mut(&lease).ok_or_else(unknown)?;
        let time = Duration::from_secs(secs.into());
        lease.expires = Instant::now() + time;
        Ok(Renewed {
            token: Bytes::from_static(b"token"),
            generation: 1,
            expires_in_ms: time.as_millis() as u64,
        })
    }

    pub(super) fn free(&self, lease: u64) -> Result<(), Refusal> {
        let lease = self.state.lock().leases.remove(&lease).ok_or_else(unknown)?;
        if let Some(session) = lease.session {
            session.shut_down();
        }
        Ok(())
    }

    /// The session of a lease. The first call starts it.
    pub(super) fn session(&self, lease: u64, epoch: u32) -> Result<Arc<Session>, Refusal> {
        let mut state = self.state.lock();
        let lease = state.leases.get_mut(&lease).ok_or_else(unknown)?;
        if let Some(session) = &lease.session {
            return match session.epoch == epoch {
                true => Ok(session.clone()),
                false => Err((Status::BadRequest, "the lease has another session".into())),
            };
        }
        let internal = |error: std::io::Error| (Status::Internal, error.to_string());
        let worker = lease.worker.take().ok_or_else(unknown)?;
        let (commands, commands_of_worker) =
            std::os::unix::net::UnixStream::pair().map_err(internal)?;
        let (bulk, bulk_of_worker) = std::os::unix::net::UnixStream::pair().map_err(internal)?;
        std::thread::Builder::new()
            .name("lease-commands".into())
            .spawn(move || worker.serve(commands_of_worker, bulk_of_worker))
            .map_err(internal)?;
        let address = self.device.address.clone();
        let session =
            Session::start(epoch, (commands, bulk), lease.limits, self.blobs.clone(), address)
                .map_err(internal)?;
        lease.session = Some(session.clone());
        Ok(session)
    }

    pub(super) fn running(&self, lease: u64) -> Option<Arc<Session>> {
        self.state.lock().leases.get(&lease)?.session.clone()
    }
}

fn unknown() -> Refusal {
    (Status::NotFound, "there is no such lease; acquire a new one".into())
}
