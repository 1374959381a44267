//! The settings of a node that can change while it runs: certificates, lists of revoked certificates, and quotas.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime},
};

use cuda_core::{Error, Result};
use cuda_lease::authority::{ClientIdentity, ClientVerifier, IdentityError, ServerTls};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{leases::Leases, packet_parts};
use crate::quotas::Quotas;

/// The longest time between two checks of a certificate. The clock of the machine may be set meanwhile.
const LONGEST: Duration = Duration::from_secs(60);

/// Reads the files of a node again, and puts their contents into force.
pub(super) struct Reload {
    pub(super) tls: ServerTls,
    pub(super) listen: SocketAddr,
    pub(super) quotas: Option<PathBuf>,
    pub(super) endpoint: quinn::Endpoint,
    /// The configuration of the endpoint. A reload replaces its cryptography only: the key for the tokens of a Retry
    /// stays.
    pub(super) config: watch::Sender<quinn::ServerConfig>,
    pub(super) verifier: watch::Sender<ClientVerifier>,
    pub(super) leases: Arc<Leases>,
    /// Held by the reload that runs, so that none puts files into force that it read before those of a later one.
    pub(super) running: Mutex<()>,
}

impl Reload {
    /// Reads all files, then puts all of them into force. Leases go on. A connection whose certificate is no longer valid
    /// is closed.
    ///
    /// # Errors
    /// [`Error`] names the file that cannot be used. Then nothing changes.
    pub(super) fn run(&self) -> Result<()> {
        let done = self.read_all();
        match &done {
            Ok(()) => tracing::info!(
                "certificates and quotas were read again, and the audit log was opened again"
            ),
            Err(error) => tracing::error!(%error, "nothing was reloaded"),
        }
        done
    }

    fn read_all(&self) -> Result<()> {
        let _running = self.running.lock();
        let read = self.tls.config_for(self.listen);
        let (read, verifier) =
            read.map_err(|error| Error::setting("the certificates of the node", error))?;
        let quotas = self.quotas.as_deref().map(Quotas::read).transpose()?;
        let audit = self.leases.audit().open_again()?;
        let mut config = self.config.borrow().clone();
        config.crypto = packet_parts::limit(read.crypto);
        // First the configuration: a handshake that begins now is not verified by the earlier authorities.
        self.config.send_replace(config.clone());
        self.endpoint.set_server_config(Some(config));
        self.verifier.send_replace(verifier);
        if let Some(quotas) = quotas {
            self.leases.set_quotas(quotas);
        }
        self.leases.audit().switch(audit);
        Ok(())
    }
}

/// Waits until the certificate of a connected client is no longer valid, and returns the reason. `verifier` sees each
/// reload since the handshake began.
pub(super) async fn end_of_certificate(
    client: &ClientIdentity,
    mut verifier: watch::Receiver<ClientVerifier>,
) -> IdentityError {
    loop {
        let now = SystemTime::now();
        let left = client.next_end(now).and_then(|end| end.duration_since(now).ok());
        let sleep = tokio::time::sleep(left.unwrap_or(LONGEST).min(LONGEST));
        tokio::select! {
            () = sleep => {}
            Ok(()) = verifier.changed() => {}
        }
        let current = verifier.borrow_and_update().clone();
        if let Err(ended) = current.recheck(client) {
            return ended;
        }
    }
}
