//! `zeros`, `uninitialised`: fresh device memory.

use std::task::{Context, Poll, ready};

use cuda_core::{DeviceBuffer, Element, Error, Result, Stream};

use crate::{
    context::{Credit, ExecutionContext, MemoryWait},
    op::{Op, Submit},
};

/// Steps of [`zeros`] and [`uninitialised`].
pub struct Allocate<T> {
    len: Option<usize>,
    allocate: fn(&Stream, usize) -> Result<DeviceBuffer<T>>,
    wait: MemoryWait,
    credit: Credit,
}

impl<T> Allocate<T> {
    const fn new(len: usize, allocate: fn(&Stream, usize) -> Result<DeviceBuffer<T>>) -> Self {
        Self { len: Some(len), allocate, wait: MemoryWait::new(), credit: Credit::new() }
    }
}

impl<T> Clone for Allocate<T> {
    fn clone(&self) -> Self {
        let (wait, credit) = (MemoryWait::new(), Credit::new());
        Self { len: self.len, allocate: self.allocate, wait, credit }
    }
}

/// A new device buffer of `len` zeroes.
///
/// ```
/// use cuda_async::prelude::*;
/// assert_eq!(zeros::<f64>(2).then(to_host).sync()?, [0.0, 0.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn zeros<T: Element>(len: usize) -> Op<Allocate<T>> {
    Op::new(Allocate::new(len, DeviceBuffer::zeroed))
}

/// A new device buffer of `len` elements with unspecified values, for a kernel that writes all of them: saves
/// what [`zeros`] costs.
///
/// ```
/// use cuda_async::{prelude::*, uninitialised};
/// assert_eq!(uninitialised::<f32>(5).then(to_host).sync()?.len(), 5);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn uninitialised<T: Element>(len: usize) -> Op<Allocate<T>> {
    Op::new(Allocate::new(len, DeviceBuffer::uninitialised))
}

impl<T: Element> Submit for Allocate<T> {
    type Output = DeviceBuffer<T>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let (len, allocate) = (self.len.ok_or(Error::AlreadyEnded)?, self.allocate);
        ready!(cx.poll_credit(&mut self.credit, task))?;
        let allocated =
            ready!(cx.poll_allocation(&mut self.wait, task, |stream| allocate(stream, len)));
        self.len = None;
        Poll::Ready(allocated)
    }
}
