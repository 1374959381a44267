//! `zeros`, `uninitialized`: allocate device memory.

use std::task::{Context, Poll};

use cuda_core::{DeviceBuffer, Element, Result, Stream};

use crate::{
    context::{CreditWait, ExecutionContext, MemoryWait},
    op::{Op, Submit, Submitted},
};

/// The steps of [`zeros`] and [`uninitialized`].
pub struct Allocate<T> {
    len: usize,
    allocate: fn(&Stream, usize) -> Result<DeviceBuffer<T>>,
    wait: MemoryWait,
    credit: CreditWait,
}

impl<T> Allocate<T> {
    const fn new(len: usize, allocate: fn(&Stream, usize) -> Result<DeviceBuffer<T>>) -> Self {
        Self { len, allocate, wait: MemoryWait::new(), credit: CreditWait::new() }
    }
}

impl<T> Clone for Allocate<T> {
    fn clone(&self) -> Self {
        let (wait, credit) = (MemoryWait::new(), CreditWait::new());
        Self { len: self.len, allocate: self.allocate, wait, credit }
    }
}

/// Allocates a device buffer of `len` zeros.
///
/// ```
/// use cuda_async::prelude::*;
/// assert_eq!(zeros::<f64>(2).then(to_host).sync()?, [0.0, 0.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the device.
pub const fn zeros<T: Element>(len: usize) -> Op<Allocate<T>> {
    Op::new(Allocate::new(len, DeviceBuffer::zeroed))
}

/// Allocates a device buffer of `len` elements with unspecified values. Use it for a kernel that writes all of them: it
/// saves the fill of [`zeros`].
///
/// ```
/// use cuda_async::{prelude::*, uninitialized};
/// assert_eq!(uninitialized::<f32>(5).then(to_host).sync()?.len(), 5);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the device.
pub const fn uninitialized<T: Element>(len: usize) -> Op<Allocate<T>> {
    Op::new(Allocate::new(len, DeviceBuffer::uninitialized))
}

impl<T: Element> Submit for Allocate<T> {
    type Output = DeviceBuffer<T>;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        if cx.poll_credit(&mut self.credit, task)?.is_pending() {
            return Ok(Submitted::Pending(self));
        }
        let (len, allocate) = (self.len, self.allocate);
        match cx.waits().poll_allocation(&mut self.wait, task, |stream| allocate(stream, len))? {
            Poll::Ready(buffer) => Ok(Submitted::Ready(buffer)),
            Poll::Pending => Ok(Submitted::Pending(self)),
        }
    }
}
