//! The reasons for which a handshake was refused, in words that say what to do.

use cuda_core::protocol::Status;
use quinn::{ConnectionError, TransportErrorCode};

use super::end::{End, Refusal};

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
pub(super) fn refusal(error: &ConnectionError) -> Option<End> {
    let (code, is_by_node) = match error {
        ConnectionError::ConnectionClosed(close) => (close.error_code, true),
        ConnectionError::TransportError(error) => (error.code, false),
        _ => return None,
    };
    let alert = alert_of(code)?;
    let (status, detail) = if is_by_node { by_node(alert)? } else { by_client(alert, error)? };
    Some(End::Refused(status, detail))
}

/// QUIC has a range of 256 codes for the alerts of TLS (RFC 9001, section 4.8).
fn alert_of(code: TransportErrorCode) -> Option<u8> {
    u64::from(code).checked_sub(0x100)?.try_into().ok()
}

/// The node refused this client.
fn by_node(alert: u8) -> Option<Refusal> {
    let detail = match alert {
        alert::CERTIFICATE_REQUIRED => {
            "the node requires a client certificate; set the client's certificate and its key"
        }
        alert::CERTIFICATE_EXPIRED => "the certificate of this client has expired; get a new one",
        alert::CERTIFICATE_REVOKED => "the certificate of this client was revoked; get a new one",
        alert::UNKNOWN_CA | alert::DECRYPT_ERROR => {
            "the node does not trust the authority that signed the certificate of this client; get one from the authority of the node's `--client-ca`"
        }
        alert::BAD_CERTIFICATE
        | alert::UNSUPPORTED_CERTIFICATE
        | alert::CERTIFICATE_UNKNOWN
        | alert::ACCESS_DENIED => {
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
        alert::BAD_CERTIFICATE
        | alert::UNSUPPORTED_CERTIFICATE
        | alert::CERTIFICATE_REVOKED
        | alert::CERTIFICATE_EXPIRED
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
