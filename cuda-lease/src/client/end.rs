//! The end of a connection, and the error that it means for the user.

use cuda_core::{Error, protocol::Status};

use super::tls_refusal;
use crate::{
    session::SessionError,
    transport::{BROKEN, STOPPED},
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
    /// The node broke the protocol.
    Broken(SessionError),
    /// The node closed a stream.
    Closed,
}

impl From<quinn::ConnectionError> for End {
    fn from(error: quinn::ConnectionError) -> Self {
        match error {
            quinn::ConnectionError::ApplicationClosed(close) if close.error_code == BROKEN => {
                let reason = String::from_utf8_lossy(&close.reason).into_owned();
                End::Refused(Status::BadRequest, reason)
            }
            quinn::ConnectionError::ApplicationClosed(close) if close.error_code == STOPPED => {
                End::Stopped(String::from_utf8_lossy(&close.reason).into_owned())
            }
            other => tls_refusal::refusal(&other).unwrap_or_else(|| End::Lost(describe(&other))),
        }
    }
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
        End::Refused(status, detail) => Error::Remote { address, status, detail },
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

/// The cause of an end, for a message.
pub(super) fn cause(end: End) -> String {
    match end {
        End::Lost(cause) | End::Stopped(cause) => cause,
        // The message of the error has the advice too.
        End::Refused(status, detail) => {
            format!("{status}: {}", detail.trim_end_matches("; acquire a new lease"))
        }
        End::Broken(error) => format!("the node broke the protocol: {error}"),
        End::Closed => "the node closed the session".into(),
    }
}
