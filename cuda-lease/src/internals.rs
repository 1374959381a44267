//! Items that only the crate `cuda-node` and tests use. They may change in any release.

use cuda_core::{Provider, Result};

pub use crate::message;
use crate::{LeaseBuilder, client};

/// Returns a provider whose device is a lease, for a test that wraps the backend.
///
/// # Errors
/// The errors of [`LeaseBuilder::acquire_blocking`] that need no connection.
pub fn provider(lease: &LeaseBuilder) -> Result<impl Provider + use<>> {
    client::lease_provider(lease)
}

/// The QUIC settings that client and node share.
pub mod transport {
    pub use crate::transport::*;
}
