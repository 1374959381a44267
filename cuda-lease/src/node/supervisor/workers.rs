//! Workers of one slot: spare ones that wait for a lease, and the ends of those in use.

use std::{net::Shutdown, os::unix::net::UnixStream, sync::Arc, thread};

use cuda_core::{Error, Provider, Result};
use tokio::sync::oneshot;

use crate::node::worker::Worker;

/// Starts the workers of a slot.
#[derive(Clone)]
pub(super) enum Launcher {
    /// Threads of this process, for tests. A kernel that never ends cannot be killed.
    InProcess(Arc<dyn Provider>),
}

/// A worker, seen from the supervisor.
pub(super) struct WorkerHandle {
    /// The sockets, until a session takes them.
    sockets: Option<(UnixStream, UnixStream)>,
    /// The same sockets, to shut them down.
    stop: (UnixStream, UnixStream),
    ended: oneshot::Receiver<()>,
}

impl Launcher {
    /// Starts a worker whose device is open.
    pub(super) async fn launch(&self) -> Result<WorkerHandle> {
        match self {
            Launcher::InProcess(provider) => {
                let provider = provider.clone();
                let launched = tokio::task::spawn_blocking(move || in_process(&*provider));
                let failed = |error| Error::host("failed to start a worker", &error);
                launched.await.map_err(failed)?
            }
        }
    }
}

fn in_process(provider: &dyn Provider) -> Result<WorkerHandle> {
    let failed = |error: std::io::Error| Error::host("failed to start a worker", &error);
    let worker = Worker::open(provider, 0)?;
    let (commands, commands_of_worker) = UnixStream::pair().map_err(failed)?;
    let (bulk, bulk_of_worker) = UnixStream::pair().map_err(failed)?;
    let stop = (commands.try_clone().map_err(failed)?, bulk.try_clone().map_err(failed)?);
    let (end, ended) = oneshot::channel();
    let serve = move || {
        if let Err(error) = worker.serve(commands_of_worker, bulk_of_worker) {
            tracing::error!(%error, "a worker failed");
        }
        _ = end.send(());
    };
    thread::Builder::new().name("lease-commands".into()).spawn(serve).map_err(failed)?;
    Ok(WorkerHandle { sockets: Some((commands, bulk)), stop, ended })
}

impl WorkerHandle {
    /// Takes the sockets: commands and bulk data.
    pub(super) fn take_sockets(&mut self) -> Option<(UnixStream, UnixStream)> {
        self.sockets.take()
    }

    /// Kills the worker, and waits until it is gone.
    pub(super) async fn kill(self) {
        _ = self.stop.0.shutdown(Shutdown::Both);
        _ = self.stop.1.shutdown(Shutdown::Both);
        _ = self.ended.await;
    }
}
