//! Connections to the node of a lease, and the terms with which the lease is requested.

use std::{net::SocketAddr, time::Duration};

use cuda_core::{Error, Result};

use crate::{
    client::{end::End, streams::requests::RequestStream},
    transport,
    wire::Allocate,
};

/// The time within which a lost connection is resumed if the user states no other.
pub(in crate::client) const RESUME_WINDOW: Duration = Duration::from_secs(10);

/// The address and the terms of a lease.
#[derive(Clone)]
pub(in crate::client) struct LeaseTerms {
    /// The address of the node as the user wrote it, for messages.
    pub(in crate::client) address: String,
    pub(in crate::client) socket: SocketAddr,
    pub(in crate::client) server_name: String,
    pub(in crate::client) tls: quinn::ClientConfig,
    pub(in crate::client) allocate: Allocate,
    /// The total time up to which the lease is renewed. `None`: it is not renewed.
    pub(in crate::client) renew_up_to: Option<Duration>,
    /// The maximum duration of an interruption of the connection.
    pub(in crate::client) resume_within: Duration,
}

/// Opens the socket for connections to a node.
///
/// # Errors
/// [`Error::Host`] if the system refuses the socket.
pub(in crate::client) fn endpoint(terms: &LeaseTerms) -> Result<quinn::Endpoint> {
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

/// Connects to a node, and opens the request stream.
pub(in crate::client) async fn connect(
    endpoint: &quinn::Endpoint,
    terms: &LeaseTerms,
) -> Result<(quinn::Connection, RequestStream), End> {
    let connection = endpoint.connect(terms.socket, &terms.server_name)?.await?;
    let stream = RequestStream::open(&connection).await?;
    Ok((connection, stream))
}
