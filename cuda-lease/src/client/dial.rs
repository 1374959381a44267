//! Connections to the node of a lease, and the terms with which the lease is requested.

use std::{net::SocketAddr, time::Duration};

use cuda_core::{Error, Result};

use super::{control::ControlStream, end::End};
use crate::{transport, wire::Allocate};

/// The time within which a lost connection is resumed if the user states no other.
pub(super) const RESUME_WINDOW: Duration = Duration::from_secs(10);

/// The address and the terms of a lease.
#[derive(Clone)]
pub(super) struct LeaseTerms {
    /// The address of the node as the user wrote it, for messages.
    pub(super) address: String,
    pub(super) socket: SocketAddr,
    pub(super) server_name: String,
    pub(super) tls: quinn::ClientConfig,
    pub(super) allocate: Allocate,
    /// The total time up to which the lease is renewed. `None`: it is not renewed.
    pub(super) renew_up_to: Option<Duration>,
    /// The maximum duration of an interruption of the connection.
    pub(super) resume_within: Duration,
}

/// Opens the socket for connections to a node.
///
/// # Errors
/// [`Error::Host`] if the system refuses the socket.
pub(super) fn endpoint(terms: &LeaseTerms) -> Result<quinn::Endpoint> {
    let any: SocketAddr = match terms.socket {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0u16; 8], 0).into(),
    };
    let endpoint = transport::endpoint(any, None);
    let mut endpoint =
        endpoint.map_err(|error| Error::host("failed to open a UDP socket", &error))?;
    endpoint.set_default_client_config(terms.tls.clone());
    Ok(endpoint)
}

/// Connects to a node, and opens the control stream.
pub(super) async fn connect(
    endpoint: &quinn::Endpoint,
    terms: &LeaseTerms,
) -> Result<(quinn::Connection, ControlStream), End> {
    let connection = endpoint.connect(terms.socket, &terms.server_name)?.await?;
    let control = ControlStream::open(&connection).await?;
    Ok((connection, control))
}
