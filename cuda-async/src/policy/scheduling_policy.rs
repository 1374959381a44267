//! `SchedulingPolicy`: chooses the stream of an operation.

use std::sync::Arc;

use cuda_core::{Result, Stream};

/// A policy that chooses the stream on which an operation runs. Any thread may call it at any time.
#[diagnostic::on_unimplemented(
    note = "the policy for one stream of a device is `SingleStream::new(&device)?`"
)]
pub trait SchedulingPolicy: Send + Sync {
    /// Returns the stream for the next operation.
    ///
    /// # Errors
    /// The error of the device if it has no stream to lend.
    fn place(&self) -> Result<Stream>;

    /// Returns the number of submissions in flight on the policy's streams. [`Devices`](crate::policy::Devices)
    /// compares it. A policy that does not count returns 0.
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

impl<P: SchedulingPolicy + ?Sized> SchedulingPolicy for &P {
    fn place(&self) -> Result<Stream> {
        (**self).place()
    }

    fn load(&self) -> u64 {
        (**self).load()
    }
}
