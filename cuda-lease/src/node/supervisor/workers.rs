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
    /// The socket of stateless submits, until the first one takes it.
    jobs: Option<UnixStream>,
    /// The same sockets, to shut them down.
    stop: [UnixStream; 3],
    ended: oneshot::Receiver<()>,
}

impl Launcher {
    /// Starts a worker whose device is open.
    pub(super) async fn launch(&self) -> Result<WorkerHandle> {
        match self {
            Launcher::InProcess(provider) => {
                let provider = provider.clone();
                let launched = tokio::task::spawn_blocking(move || in_process(provider));
                let failed = |error| Error::host("failed to start a worker", &error);
                launched.await.map_err(failed)?
            }
        }
    }
}

fn in_process(provider: Arc<dyn Provider>) -> Result<WorkerHandle> {
    let failed = |error: std::io::Error| Error::host("failed to start a worker", &error);
    let worker = Worker::open(&*provider, 0)?;
    let job_server = worker.jobs(provider, 0);
    let (commands, commands_of_worker) = UnixStream::pair().map_err(failed)?;
    let (bulk, bulk_of_worker) = UnixStream::pair().map_err(failed)?;
    let (jobs, jobs_of_worker) = UnixStream::pair().map_err(failed)?;
    let stop = [&commands, &bulk, &jobs].map(UnixStream::try_clone);
    let [first, second, third] = stop;
    let stop = [first.map_err(failed)?, second.map_err(failed)?, third.map_err(failed)?];
    let serve_jobs = move || job_server.serve(&jobs_of_worker);
    let job_thread = thread::Builder::new().name("lease-jobs".into());
    let job_thread = job_thread.spawn(serve_jobs).map_err(failed)?;
    let (end, ended) = oneshot::channel();
    let serve = move || {
        if let Err(error) = worker.serve(commands_of_worker, bulk_of_worker) {
            tracing::error!(%error, "a worker failed");
        }
        _ = job_thread.join();
        _ = end.send(());
    };
    thread::Builder::new().name("lease-commands".into()).spawn(serve).map_err(failed)?;
    Ok(WorkerHandle { sockets: Some((commands, bulk)), jobs: Some(jobs), stop, ended })
}

impl WorkerHandle {
    /// Takes the sockets: commands and bulk data.
    pub(super) fn take_sockets(&mut self) -> Option<(UnixStream, UnixStream)> {
        self.sockets.take()
    }

    /// Takes the socket of stateless submits.
    pub(super) fn take_jobs(&mut self) -> Option<UnixStream> {
        self.jobs.take()
    }

    /// Kills the worker, and waits until it is gone.
    pub(super) async fn kill(self) {
        for socket in &self.stop {
            _ = socket.shutdown(Shutdown::Both);
        }
        _ = self.ended.await;
    }
}
