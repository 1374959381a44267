//! Credit: how much a stream may have in flight, and the waits until there is less.

use super::stream::Stream;
use crate::{
    order::Waiter,
    protocol::{Error, Result},
};

impl Stream {
    /// Returns the bytes of host memory that the copies in flight use. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let a = DeviceBuffer::uploaded(&stream, device.pinned::<u8>(1 << 10)?)?;
    /// assert!(stream.host_bytes_in_flight() <= device.capabilities().host_bytes_in_flight);
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn host_bytes_in_flight(&self) -> u64 {
        self.timeline().retention.bytes() as u64
    }

    /// Returns whether the stream has credit to submit more work. It has credit while fewer submissions, and fewer
    /// bytes of host memory, are in flight than its device allows ([`Capabilities`](crate::protocol::Capabilities)).
    /// Does not ask the device.
    ///
    /// Submitting more is no error, but a driver may then block the thread that enqueues, and host memory is used without
    /// a limit.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// assert!(stream.has_credit()); // nothing is in flight
    /// # Ok::<(), Error>(())
    /// ```
    #[inline]
    pub fn has_credit(&self) -> bool {
        let capabilities = &self.device().core().capabilities;
        self.in_flight() < capabilities.submissions_in_flight
            && self.host_bytes_in_flight() < capabilities.host_bytes_in_flight
    }

    /// Returns a waiter that is ready when at most half of each limit of the stream is in flight. Work that is
    /// submitted after this call does not count.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// use std::task::{Context, Poll, Waker};
    /// let mut waiter = stream.credit_waiter()?;
    /// // In a task, with the waker of the task. Nothing is in flight, so it is ready.
    /// assert!(matches!(waiter.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(()))));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`waiter`](Self::waiter).
    pub fn credit_waiter(&self) -> Result<Waiter> {
        self.waiter(self.half_of_credit())
    }

    /// The number of the submission to wait for. When it is complete, at most half of each limit is in flight. Work
    /// that is submitted after this call does not count.
    fn half_of_credit(&self) -> u64 {
        let capabilities = &self.device().core().capabilities;
        let submissions = self.submitted().saturating_sub(capabilities.submissions_in_flight / 2);
        let bytes = usize::try_from(capabilities.host_bytes_in_flight / 2).unwrap_or(usize::MAX);
        submissions.max(self.timeline().retention.leaves_at_most(bytes))
    }

    /// Blocks the calling thread until the stream [has credit](Self::has_credit). Failures of the work that it waits for
    /// are no error here: the work may belong to others.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// let mut buffer = DeviceBuffer::<u8>::zeroed(&stream, 16)?;
    /// for value in 0..200 {
    ///     stream.wait_for_credit()?; // without it, this loop could use any amount of host memory
    ///     buffer.upload(&stream, 0, PinnedBuffer::copied_from(&device, &[value; 16])?)?;
    /// }
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device. [`Error::Misuse`] inside the [output function](crate::Device::set_output) of the device.
    pub fn wait_for_credit(&self) -> Result<()> {
        while !self.has_credit() {
            self.device().check_may_wait()?;
            self.device().core().synchronize(self.timeline(), self.half_of_credit())?;
        }
        Ok(())
    }

    /// Checks that the device is not lost. Does not ask the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// stream.check_not_lost()?; // an error from the fault on, until the device is reset
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The error that lost the device.
    pub fn check_not_lost(&self) -> Result<()> {
        self.progress().ended().map_or(Ok(()), Err)
    }

    /// Checks that the stream [has credit](Self::has_credit), for a caller that cannot wait for it. Asks the device,
    /// without blocking, if the progress that is known leaves no credit.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// match stream.check_credit() {
    ///     Ok(()) => println!("submit the next batch"),
    ///     Err(error @ Error::Busy { .. }) => println!("refuse the request: {error}"),
    ///     Err(lost) => return Err(lost),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Busy`], or the error that lost the device.
    pub fn check_credit(&self) -> Result<()> {
        if self.has_credit() || self.is_recording() {
            return Ok(());
        }
        self.query()?;
        if self.has_credit() { Ok(()) } else { Err(self.busy()) }
    }

    #[cold]
    fn busy(&self) -> Error {
        let capabilities = &self.device().core().capabilities;
        let (in_flight, limit) = (self.in_flight(), capabilities.submissions_in_flight);
        if in_flight >= limit {
            return Error::Busy { unit: "submissions", in_flight, limit };
        }
        let in_flight = self.host_bytes_in_flight();
        let limit = capabilities.host_bytes_in_flight;
        Error::Busy { unit: "bytes of host memory", in_flight, limit }
    }
}
