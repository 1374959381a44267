//! Refusals of requests.

use cuda_core::protocol::Status;

/// A refusal: its status and its message.
pub(super) type Refusal = (Status, String);
