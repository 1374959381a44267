//! Runs a job on one lease.

use bytes::Bytes;
use cuda_core::{Element, Limit, Quantity, Result, protocol::Status};

use super::{channel::Channel, exchange::perform, job::Job};
use crate::wire::TraceContext;

/// A stateless submit: a [`Job`] with the lease that runs it. [`Lease::submit`](crate::Lease::submit) makes one.
pub type Submit<'a> = Job<&'a Channel>;

/// The result of a stateless submit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submitted {
    /// The status of the run: always [`Status::Ok`], because the call returns every other status as an error.
    pub exit_code: Status,
    /// The bytes of the region from the output offset on.
    pub output: Bytes,
    /// The text that the kernel printed. A GPU's driver writes such text to the standard output of the node instead.
    pub text: String,
}

impl Submitted {
    /// Returns the output as values of a type.
    ///
    /// ```
    /// # use cuda_lease::Submitted;
    /// # fn of(submitted: Submitted) -> cuda_core::Result<()> {
    /// let sums: Vec<f32> = submitted.output_as()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::OutOfRange`](cuda_core::Error::OutOfRange) if the number of bytes is not a multiple of the size of `T`.
    pub fn output_as<T: Element>(&self) -> Result<Vec<T>> {
        let (length, size) = (self.output.len() as u64, size_of::<T>() as u64);
        Limit::MultipleOf(size).check("the output of a submit", Quantity::Bytes, length)?;
        Ok(bytemuck::pod_collect_to_vec(&self.output))
    }
}

impl Job {
    /// Returns the job with the lease that runs it. `trace` is the span that it belongs to if the job states none.
    pub(crate) fn with_lease(
        self,
        channel: &Channel,
        lease: u64,
        token: Bytes,
        trace: Option<TraceContext>,
    ) -> Submit<'_> {
        let mut payload = self.payload;
        let request = &mut payload.request;
        (request.lease, request.token, request.trace) = (lease, token, request.trace.or(trace));
        Job { payload, lease: channel }
    }
}

impl Submit<'_> {
    /// Runs the kernel, and blocks the calling thread until its output has arrived.
    ///
    /// The submit names the image by its hash. If the node does not have the image, the client sends it, which takes
    /// one more round trip. The submits of a lease run one after the other. If the connection is lost, the job is
    /// repeated on the next one.
    ///
    /// # Errors
    /// [`Error::Remote`](cuda_core::Error::Remote) with the status of the node: `BadRequest` for an input above its
    /// limit, `LoadFailed` with the compiler's log, `LaunchFailed` (launch shape, arguments, faults), `WriteFailed` for
    /// an input that lies outside the region, `ReadFailed` for an output that lies outside it or is above its limit,
    /// `CapacityExceeded` if the region exceeds the free memory of the lease or too many submits wait, or the status
    /// with which the lease ended (`LeaseExpired`, `Revoked` and so on).
    /// [`Error::Disconnected`](cuda_core::Error::Disconnected) if the node cannot be reached any more.
    pub fn launch_blocking(self) -> Result<Submitted> {
        self.lease.wait(perform(self.lease.clone(), self.payload)?)?
    }

    /// Runs the kernel on any executor, without blocking the calling thread. The job is sent at the first poll.
    /// Dropping the future does not stop the kernel.
    ///
    /// # Errors
    /// The errors of [`launch_blocking`](Self::launch_blocking).
    pub async fn launch(self) -> Result<Submitted> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = perform(self.lease.clone(), self.payload)?;
        self.lease.check()?;
        self.lease.spawn(work, move |submitted| _ = sender.send(submitted));
        receiver.await.unwrap_or_else(|_| Err(self.lease.ended(true)))
    }
}
