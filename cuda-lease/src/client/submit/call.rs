//! Runs a job on one lease.

use bytes::Bytes;
use cuda_core::{Element, LaunchConfig, Limit, Quantity, Result, protocol::Status};

use super::{
    channel::Channel,
    exchange::{Target, perform},
    job::Job,
};
use crate::wire::TraceContext;

/// A stateless submit: a [`Job`] and the lease that runs it. [`Lease::submit`](crate::Lease::submit) makes one.
#[derive(Clone)]
#[must_use = "a submit does nothing until `launch`"]
pub struct Submit<'a> {
    channel: &'a Channel,
    target: Target,
    job: Job,
}

/// The result of a stateless submit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Submitted {
    /// [`Status::Ok`]. Every other status is an error of the call.
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

macro_rules! settings {
    ($($(#[$doc:meta])* pub fn $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name(mut self, $($arg: $ty),*) -> Self {
            self.job = self.job.$name($($arg),*);
            self
        }
    )*};
}

impl<'a> Submit<'a> {
    pub(crate) fn new(channel: &'a Channel, target: Target, job: Job) -> Self {
        Self { channel, target, job }
    }

    settings! {
        /// Sets the number of blocks of a one-dimensional launch. The default is 1.
        pub fn grid(blocks: u32);
        /// Sets the number of threads of a block of a one-dimensional launch. The default is 1.
        pub fn block(threads: u32);
        /// Sets the whole shape of the launch.
        pub fn config(config: LaunchConfig);
        /// Sets the dynamic shared memory of a block in bytes.
        pub fn shared_bytes(bytes: u32);
        /// Adds the bytes of an argument, such as a struct that is passed by value.
        pub fn arg_bytes(bytes: &[u8]);
        /// Sets the bytes that the start of the region has before the launch. At most 64 MiB.
        pub fn input_bytes(bytes: impl Into<Bytes>);
        /// Sets the size of the region in bytes. See [`Job::region_bytes`].
        pub fn region_bytes(bytes: u64);
        /// Sets the offset of the output in the region, in bytes. The default is 0.
        pub fn output_offset(bytes: u64);
        /// Sets the maximum number of bytes of the output, at most 64 MiB. The default is 0: no output.
        pub fn max_output(bytes: u64);
        /// Sets a callback for the progress of the input. See [`Job::on_sent`].
        pub fn on_sent(progress: impl Fn(u64) + Send + Sync + 'static);
        /// Sets the span that the submit belongs to. See [`Job::trace_parent`].
        pub fn trace_parent(parent: TraceContext);
    }

    /// Adds an argument behind the pointer of the region.
    pub fn arg<T: Element>(mut self, value: &T) -> Self {
        self.job = self.job.arg(value);
        self
    }

    /// Sets the values that the start of the region has before the launch. At most 64 MiB.
    pub fn input<T: Element>(mut self, values: &[T]) -> Self {
        self.job = self.job.input(values);
        self
    }

    /// Returns the number of bytes of the input.
    pub fn input_len(&self) -> usize {
        self.job.input.len()
    }

    /// Runs the kernel, and blocks the calling thread until its output is here.
    ///
    /// The image travels by its hash. Its bytes follow if the node does not have them, which takes one more round trip.
    /// The submits of a lease run one after the other. If the connection is lost, the job is repeated on the next one.
    ///
    /// # Errors
    /// [`Error::Remote`](cuda_core::Error::Remote) with the status of the node: `LoadFailed` with the compiler's log,
    /// `LaunchFailed` (launch shape, arguments, faults), `WriteFailed` or `ReadFailed` if input or output lie outside the
    /// region, `CapacityExceeded` if the region exceeds the free memory of the lease or too many submits wait, or the
    /// status with which the lease ended (`LeaseExpired`, `Revoked` and so on).
    /// [`Error::Disconnected`](cuda_core::Error::Disconnected) if the node cannot be reached any more.
    pub fn launch_blocking(self) -> Result<Submitted> {
        self.channel.wait(perform(self.channel.clone(), self.target, self.job)?)?
    }

    /// Runs the kernel on any executor, without blocking the calling thread. The job is sent at the first poll. Dropping the
    /// future does not stop the kernel.
    ///
    /// # Errors
    /// The errors of [`launch_blocking`](Self::launch_blocking).
    pub async fn launch(self) -> Result<Submitted> {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let work = perform(self.channel.clone(), self.target, self.job)?;
        self.channel.check()?;
        self.channel.spawn(work, move |submitted| _ = sender.send(submitted));
        receiver.await.unwrap_or_else(|_| Err(self.channel.ended(true)))
    }
}

impl std::fmt::Debug for Submit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Submit").field("lease", &self.target.lease).field("job", &self.job).finish()
    }
}
