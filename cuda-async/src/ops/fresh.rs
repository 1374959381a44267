//! `zeros`, `uninitialised`: fresh device memory.

use std::{
    marker::PhantomData,
    task::{Context, Poll},
};

use cuda_core::{DeviceBuffer, Element, Error, Result};

use crate::{ExecutionContext, Op, Submit};

/// Steps of [`zeros`].
#[derive(Clone)]
pub struct Zeros<T> {
    len: Option<usize>,
    element: PhantomData<fn() -> T>,
}

/// A new device buffer of `len` zeroes.
///
/// ```
/// use cuda_async::prelude::*;
/// assert_eq!(zeros::<f64>(2).then(to_host).sync()?, [0.0, 0.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn zeros<T: Element>(len: usize) -> Op<Zeros<T>> {
    Op::new(Zeros { len: Some(len), element: PhantomData })
}

impl<T: Element> Submit for Zeros<T> {
    type Output = DeviceBuffer<T>;

    fn poll_submit(
        &mut self,
        _: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let len = self.len.take().ok_or(Error::AlreadyEnded)?;
        Poll::Ready(cx.enqueue(|stream| DeviceBuffer::zeroed(stream, len)))
    }
}

/// Steps of [`uninitialised`].
pub struct Uninitialised<T> {
    len: Option<usize>,
    element: PhantomData<fn() -> T>,
}

/// A new device buffer of `len` elements with unspecified values, for a kernel that writes all of them: saves
/// what [`zeros`] costs.
///
/// ```
/// use cuda_async::{prelude::*, uninitialised};
/// assert_eq!(uninitialised::<f32>(5).then(to_host).sync()?.len(), 5);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub const fn uninitialised<T: Element>(len: usize) -> Op<Uninitialised<T>> {
    Op::new(Uninitialised { len: Some(len), element: PhantomData })
}

impl<T: Element> Submit for Uninitialised<T> {
    type Output = DeviceBuffer<T>;

    fn poll_submit(
        &mut self,
        _: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let len = self.len.take().ok_or(Error::AlreadyEnded)?;
        Poll::Ready(cx.enqueue(|stream| DeviceBuffer::uninitialised(stream, len)))
    }
}
