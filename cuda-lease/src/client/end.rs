//! The end of a connection, and the error that it means for the user. Errors of TLS say what to do.

use cuda_core::{Error, protocol::Status};
use quinn::{ConnectionError, TransportErrorCode};

use crate::{
    session::SessionError,
    transport::{BROKEN, CERTIFICATE_ENDED, OVER_CAPACITY, OVER_QUOTA, REFUSED, STOPPED},
    wire::WireError,
};

/// The reason of the node for not doing what was requested.
pub(super) type Refusal = (Status, String);

/// The end of a connection.
#[derive(Debug)]
pub(super) enum End {
    /// The connection was lost. It may be resumed.
    Lost(String),
    /// The node stopped. Its leases have ended.
    Stopped(String),
    /// The node refused a request about the session.
    Refused(Status, String),
    /// The tenant or the node has as many connections as it may have.
    Full(Status, String),
    /// The node broke the protocol.
    Broken(SessionError),
    /// The node closed a stream.
    Closed,
}

impl From<quinn::ConnectionError> for End {
    fn from(error: quinn::ConnectionError) -> Self {
        if let quinn::ConnectionError::ApplicationClosed(close) = &error {
            let reason = String::from_utf8_lossy(&close.reason).into_owned();
            match close.error_code {
                STOPPED if reason.is_empty() => {
                    return End::Stopped("the node closed the connection without a reason".into());
                }
                STOPPED => return End::Stopped(reason),
                // The lease goes on, and the files may have a renewed certificate.
                CERTIFICATE_ENDED => return End::Lost(reason),
                REFUSED => return End::Refused(Status::Unauthorized, reason),
                BROKEN => return End::Refused(Status::BadRequest, reason),
                OVER_QUOTA => return End::Full(Status::QuotaExceeded, reason),
                OVER_CAPACITY => return End::Full(Status::CapacityExceeded, reason),
                _ => {}
            }
        }
        if let quinn::ConnectionError::ConnectionClosed(close) = &error
            && close.error_code == TransportErrorCode::CONNECTION_REFUSED
        {
            return End::Lost("the node takes no more connections; try again later".into());
        }
        if is_ended_handshake(&error) {
            return End::Lost(
                "the node ended the handshake, because it has too many or this one took too long; try again later"
                    .into(),
            );
        }
        tls_refusal(&error).unwrap_or_else(|| End::Lost(describe(&error)))
    }
}

/// Whether the node ended the handshake in favor of another one: before its first step it refuses the connection. After it,
/// an error of the application stands for each error code of the node (RFC 9000, section 10.2.3).
pub(super) fn is_ended_handshake(error: &ConnectionError) -> bool {
    matches!(error, ConnectionError::ConnectionClosed(close)
        if [TransportErrorCode::APPLICATION_ERROR, TransportErrorCode::CONNECTION_REFUSED].contains(&close.error_code))
}

impl From<quinn::WriteError> for End {
    fn from(error: quinn::WriteError) -> Self {
        match error {
            quinn::WriteError::ConnectionLost(lost) => lost.into(),
            // The node stopped the stream: the reason follows.
            quinn::WriteError::Stopped(_) => End::Closed,
            other => End::Lost(describe(&other)),
        }
    }
}

impl From<quinn::ReadError> for End {
    fn from(error: quinn::ReadError) -> Self {
        match error {
            quinn::ReadError::ConnectionLost(lost) => lost.into(),
            quinn::ReadError::Reset(_) => End::Closed,
            other => End::Lost(describe(&other)),
        }
    }
}

impl From<quinn::ConnectError> for End {
    fn from(error: quinn::ConnectError) -> Self {
        End::Lost(describe(&error))
    }
}

/// The message of an error and of its causes.
fn describe(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |cause| cause.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

impl From<SessionError> for End {
    fn from(error: SessionError) -> Self {
        End::Broken(error)
    }
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        End::Broken(error.into())
    }
}

/// The error of a lease that could not be acquired.
pub(super) fn unavailable(address: &str, end: End) -> Error {
    let address = address.to_owned();
    match end {
        End::Refused(status, detail) | End::Full(status, detail) => {
            Error::Remote { address, status, detail }
        }
        end => Error::Unreachable { address, cause: cause(end) },
    }
}

/// The error of a lease that was lost.
pub(super) fn lost(address: &str, end: End) -> Error {
    let address = address.to_owned();
    match end {
        End::Refused(status, detail) if status.ends_lease() => {
            Error::Remote { address, status, detail }
        }
        end => Error::Disconnected { address, cause: cause(end), may_have_run: true },
    }
}

/// The error that lost the lease, for an operation that was not sent.
pub(super) fn not_submitted(lost: Error) -> Error {
    match lost {
        Error::Disconnected { address, cause, .. } => {
            Error::Disconnected { address, cause, may_have_run: false }
        }
        error => error,
    }
}

/// The cause of an end, for a message.
pub(super) fn cause(end: End) -> String {
    match end {
        End::Lost(cause) | End::Stopped(cause) => cause,
        // The message of the error has the advice too.
        End::Refused(status, detail) | End::Full(status, detail) => {
            format!("{status}: {}", detail.trim_end_matches("; acquire a new lease"))
        }
        End::Broken(error) => format!("the node broke the protocol: {error}"),
        End::Closed => "the node closed the session".into(),
    }
}

/// The alert codes of TLS 1.3 (RFC 8446, section 6) that are about certificates.
mod alert {
    pub(super) const BAD_CERTIFICATE: u8 = 42;
    pub(super) const UNSUPPORTED_CERTIFICATE: u8 = 43;
    pub(super) const CERTIFICATE_REVOKED: u8 = 44;
    pub(super) const CERTIFICATE_EXPIRED: u8 = 45;
    pub(super) const CERTIFICATE_UNKNOWN: u8 = 46;
    pub(super) const UNKNOWN_CA: u8 = 48;
    pub(super) const ACCESS_DENIED: u8 = 49;
    pub(super) const DECRYPT_ERROR: u8 = 51;
    pub(super) const CERTIFICATE_REQUIRED: u8 = 116;
    pub(super) const NO_APPLICATION_PROTOCOL: u8 = 120;
}

/// The end of a connection whose handshake was refused, or `None` for any other end.
fn tls_refusal(error: &ConnectionError) -> Option<End> {
    let (code, is_by_node) = match error {
        ConnectionError::ConnectionClosed(close) => (close.error_code, true),
        ConnectionError::TransportError(error) => (error.code, false),
        _ => return None,
    };
    let alert = alert_of(code)?;
    let (status, detail) =
        if is_by_node { by_node(alert, error)? } else { by_client(alert, error)? };
    Some(End::Refused(status, detail))
}

/// QUIC has a range of 256 codes for the alerts of TLS (RFC 9001, section 4.8).
fn alert_of(code: TransportErrorCode) -> Option<u8> {
    u64::from(code).checked_sub(0x100)?.try_into().ok()
}

/// The node refused this client. TLS has one alert for several reasons, so the text of the node decides between them.
fn by_node(alert: u8, error: &ConnectionError) -> Option<Refusal> {
    let text = error.to_string();
    let detail = match alert {
        alert::CERTIFICATE_REQUIRED => {
            "the node requires a client certificate; set the client's certificate and its key"
        }
        alert::CERTIFICATE_EXPIRED if text.contains("not valid yet") => {
            "the certificate of this client is not yet valid, by the clock of the node; wait until it is, or correct the clock that is wrong"
        }
        alert::CERTIFICATE_EXPIRED if text.contains("certificate expired") => {
            "the certificate of this client has expired, by the clock of the node; get a new one, or correct the clock that is wrong"
        }
        alert::CERTIFICATE_EXPIRED => {
            "the certificate of this client has expired or is not yet valid, by the clock of the node; get a new one, or correct the clock that is wrong"
        }
        alert::CERTIFICATE_REVOKED => "the certificate of this client was revoked; get a new one",
        alert::UNKNOWN_CA if text.contains("UnknownRevocationStatus") => {
            "the node has no list of revoked certificates of the authority that signed the certificate of this client; its operator adds the list with `--crl`"
        }
        alert::UNKNOWN_CA | alert::DECRYPT_ERROR => {
            "the node does not trust the authority that signed the certificate of this client; get one from the authority of the node's `--client-ca`"
        }
        alert::UNSUPPORTED_CERTIFICATE => {
            "the certificate of this client is not for clients; get one with the extended key usage clientAuth"
        }
        alert::CERTIFICATE_UNKNOWN => {
            let detail = format!("the node does not accept this client's certificate ({text})");
            return Some((Status::Unauthorized, detail));
        }
        alert::BAD_CERTIFICATE | alert::ACCESS_DENIED => {
            "the node does not accept this client's certificate; use a client certificate whose common name is the \
             tenant"
        }
        alert::NO_APPLICATION_PROTOCOL => return other_protocol(),
        _ => return None,
    };
    Some((Status::Unauthorized, detail.into()))
}

/// This client refused the node.
fn by_client(alert: u8, error: &ConnectionError) -> Option<Refusal> {
    match alert {
        alert::NO_APPLICATION_PROTOCOL => other_protocol(),
        alert::CERTIFICATE_EXPIRED => {
            let detail = format!(
                "the certificate of the node is not valid at this time ({error}); its operator renews it, or correct the clock of this machine"
            );
            Some((Status::Unauthorized, detail))
        }
        alert::BAD_CERTIFICATE
        | alert::UNSUPPORTED_CERTIFICATE
        | alert::CERTIFICATE_REVOKED
        | alert::CERTIFICATE_UNKNOWN
        | alert::UNKNOWN_CA
        | alert::DECRYPT_ERROR => {
            let detail = format!(
                "the certificate of the node is not trusted ({error}); set the authority that signed it, and use a host name that the certificate states"
            );
            Some((Status::Unauthorized, detail))
        }
        _ => None,
    }
}

fn other_protocol() -> Option<Refusal> {
    let detail = "the node does not speak `cuda-lease/1`; check host and port, and that client and node have \
                  compatible versions";
    Some((Status::UnsupportedVersion, detail.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_close_of_a_node_has_a_cause() {
        let closed = |error_code, reason: &'static str| {
            let reason = bytes::Bytes::from(reason);
            let close = quinn::ApplicationClose { error_code, reason };
            cause(ConnectionError::ApplicationClosed(close).into())
        };
        assert_eq!(closed(STOPPED, "the node stops"), "the node stops");
        assert_eq!(closed(STOPPED, ""), "the node closed the connection without a reason");
        let ended = closed(CERTIFICATE_ENDED, "the certificate of this client has expired");
        assert_eq!(ended, "the certificate of this client has expired");
        let full = quinn::ConnectionClose {
            error_code: TransportErrorCode::CONNECTION_REFUSED,
            frame_type: None,
            reason: bytes::Bytes::new(),
        };
        let end = End::from(ConnectionError::ConnectionClosed(full));
        assert!(matches!(&end, End::Lost(cause) if cause.contains("connections")), "{end:?}");
    }
}
