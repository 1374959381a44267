//! `zeros`: fresh device memory.

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
