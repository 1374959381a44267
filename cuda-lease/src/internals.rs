//! Items that only the crate `cuda-node` uses. They may change in any release.

pub use crate::message;

/// The QUIC settings that client and node share.
pub mod transport {
    pub use crate::transport::*;
}
