//! `zeros`, `uninitialised`: fresh device memory.

use std::task::{Context, Poll};

use cuda_core::{DeviceBuffer, Element, Error, Result, Stream};

use crate::{ExecutionContext, Op, Submit};

/// Steps of [`zeros`] and [`uninitialised`].
#[derive(Clone)]
pub struct Fresh<T> {
    len: Option<usize>,
    allocate: fn(&Stream, usize) -> Result<DeviceBuffer<T>>,
}

/// A new device buffer of `len` zeroes.
///
/// ```
/// use cuda_async::prelude::*;
/// assert_eq!(zeros::<f64>(2).then(to_host).sync()?, [0.0, 0.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn zeros<T: Element>(len: usize) -> Op<Fresh<T>> {
    Op::new(Fresh { len: Some(len), allocate: DeviceBuffer::zeroed })
}

/// A new device buffer of `len` elements with unspecified values, for a kernel that writes all of them: saves
/// what [`zeros`] costs.
///
/// ```
/// use cuda_async::{prelude::*, uninitialised};
/// assert_eq!(uninitialised::<f32>(5).then(to_host).sync()?.len(), 5);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn uninitialised<T: Element>(len: usize) -> Op<Fresh<T>> {
    Op::new(Fresh { len: Some(len), allocate: DeviceBuffer::uninitialised })
}

impl<T: Element> Submit for Fresh<T> {
    type Output = DeviceBuffer<T>;

    fn poll_submit(
        &mut self,
        _: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let len = self.len.take().ok_or(Error::AlreadyEnded)?;
        Poll::Ready(cx.enqueue(|stream| (self.allocate)(stream, len)))
    }
}
