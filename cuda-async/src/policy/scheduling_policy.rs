//! `SchedulingPolicy`: chooses the stream of an operation.

use std::sync::Arc;

use cuda_core::{Result, Stream};

/// Chooses the stream for an operation. Any thread may ask at any time.
pub trait SchedulingPolicy: Send + Sync {
    /// The stream for the next operation.
    ///
    /// # Errors
    /// What the device says if it has no stream to give.
    fn place(&self) -> Result<Stream>;

    /// How many submissions on its streams are not known to be complete, for [`Devices`](crate::policy::Devices) to compare; a policy that
    /// cannot tell says none.
    fn load(&self) -> u64 {
        0
    }
}

impl<P: SchedulingPolicy + ?Sized> SchedulingPolicy for Arc<P> {
    fn place(&self) -> Result<Stream> {
        (**self).place()
    }

    fn load(&self) -> u64 {
        (**self).load()
    }
}
