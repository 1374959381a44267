//! `upload_into`, `fill`, `copy`: writes to device memory that exists already.

use std::task::{Context, Poll};

use cuda_core::Result;

use crate::{
    context::{CreditWait, ExecutionContext},
    memory::{
        download::BufferSource,
        source::{BufferTarget, HostSource},
        upload::{Copying, check_lengths},
    },
    op::{Op, Submit, Submitted},
};

/// Uploads host data into existing device memory of the same length, and gives the memory back.
///
/// ```
/// use cuda_async::{memory::upload_into, prelude::*};
/// let mut buffer = zeros::<u32>(4).sync()?;
/// let (first, second) = buffer.split_at_mut(2)?;
/// zip!(upload_into(first, [1, 2]), upload_into(second, vec![3, 4])).sync()?; // at the same time
/// assert_eq!(to_host(&buffer).sync()?, [1, 2, 3, 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfRange`](crate::Error::OutOfRange) if the lengths differ, or an error of the device.
pub fn upload_into<B, S>(target: B, source: S) -> Op<UploadInto<B, S>>
where
    B: BufferTarget,
    S: HostSource<Element = B::Element>,
{
    Op::new(UploadInto(Uploading::Idle(target, source, CreditWait::new())))
}

/// The steps of [`upload_into`].
pub struct UploadInto<B, S: HostSource>(Uploading<B, S>);

enum Uploading<B, S: HostSource> {
    Idle(B, S, CreditWait),
    Copying(Copying<S, B>),
}

impl<B: BufferTarget, S: HostSource<Element = B::Element>> Submit for UploadInto<B, S> {
    type Output = B;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let mut copying = match self.0 {
            Uploading::Idle(mut target, source, mut credit) => {
                check_lengths(target.as_slice_mut().len(), source.elements()?.len())?;
                if cx.poll_credit(&mut credit, task)?.is_pending() {
                    return Ok(Submitted::Pending(Self(Uploading::Idle(target, source, credit))));
                }
                match source.into_pinned() {
                    Ok(pinned) => {
                        check_lengths(target.as_slice_mut().len(), pinned.len())?;
                        cx.enqueue(|stream| target.as_slice_mut().upload(stream, 0, pinned))?;
                        return Ok(Submitted::Ready(target));
                    }
                    Err(source) => Copying::new(source, target),
                }
            }
            Uploading::Copying(copying) => copying,
        };
        Ok(match copying.poll(task, cx)? {
            Poll::Ready(()) => Submitted::Ready(copying.target),
            Poll::Pending => Submitted::Pending(Self(Uploading::Copying(copying))),
        })
    }
}

/// Writes `value` to every element, and gives the memory back.
///
/// ```
/// use cuda_async::{memory::fill, prelude::*};
/// let buffer = fill(zeros::<u32>(3).sync()?, 7).sync()?;
/// assert_eq!(to_host(buffer).sync()?, [7; 3]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Misuse::FillPattern`](cuda_core::Misuse::FillPattern) for elements that are not a repetition of one, two or four
/// bytes, or an error of the device.
pub fn fill<B: BufferTarget>(target: B, value: B::Element) -> Op<Fill<B>> {
    Op::new(Fill { target, value, credit: CreditWait::new() })
}

/// The steps of [`fill`].
pub struct Fill<B: BufferTarget> {
    target: B,
    value: B::Element,
    credit: CreditWait,
}

impl<B: BufferTarget> Submit for Fill<B> {
    type Output = B;

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        if cx.poll_credit(&mut self.credit, task)?.is_pending() {
            return Ok(Submitted::Pending(self));
        }
        cx.enqueue(|stream| self.target.as_slice_mut().fill(stream, self.value))?;
        Ok(Submitted::Ready(self.target))
    }
}

/// Copies device memory to device memory of the same length on the same device, and gives both back.
///
/// ```
/// use cuda_async::{memory::copy, prelude::*};
/// let (from, into) = zip!(h2d([1u8, 2]), zeros::<u8>(2)).sync()?;
/// let (_, into) = copy(from, into).sync()?;
/// assert_eq!(to_host(into).sync()?, [1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfRange`](crate::Error::OutOfRange) if the lengths differ, or an error of the device.
pub fn copy<A, B>(from: A, into: B) -> Op<Copy<A, B>>
where
    A: BufferSource,
    B: BufferTarget<Element = A::Element>,
{
    Op::new(Copy { from, into, credit: CreditWait::new() })
}

/// The steps of [`copy`].
pub struct Copy<A, B> {
    from: A,
    into: B,
    credit: CreditWait,
}

impl<A: BufferSource, B: BufferTarget<Element = A::Element>> Submit for Copy<A, B> {
    type Output = (A, B);

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        if cx.poll_credit(&mut self.credit, task)?.is_pending() {
            return Ok(Submitted::Pending(self));
        }
        let Self { from, mut into, .. } = self;
        cx.enqueue(|stream| into.as_slice_mut().copy_from(stream, from.as_slice()))?;
        Ok(Submitted::Ready((from, into)))
    }
}
