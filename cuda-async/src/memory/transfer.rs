//! `upload_into`, `fill`, `copy`: writes to device memory that exists already.

use std::task::{Context, Poll, ready};

use cuda_core::{Error, Result};

use crate::{
    context::{Credit, ExecutionContext},
    memory::{copying::Copying, download::BufferSource, source::HostSource, target::BufferTarget},
    op::{Live, Op, Submit},
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
/// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
pub fn upload_into<B, S>(target: B, source: S) -> Op<UploadInto<B, S>>
where
    B: BufferTarget,
    S: HostSource<Element = B::Element>,
{
    Op::new(UploadInto(Live::new(Uploading::Idle(target, source, Credit::new()))))
}

/// The steps of [`upload_into`].
pub struct UploadInto<B, S: HostSource>(Live<Uploading<B, S>>);

enum Uploading<B, S: HostSource> {
    Idle(B, S, Credit),
    Copying(Copying<S, B>),
}

impl<B: BufferTarget, S: HostSource<Element = B::Element>> Submit for UploadInto<B, S> {
    type Output = B;

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<B>> {
        if let Uploading::Idle(target, source, credit) = self.0.get()? {
            let (here, there) = (target.as_slice_mut().len(), source.elements()?.len());
            if here != there {
                self.0.end();
                let detail = format!(
                    "{there} elements do not match the {here} elements of the target; both must have the same length"
                );
                return Poll::Ready(Err(Error::OutOfRange { what: "an upload".into(), detail }));
            }
            ready!(cx.poll_credit(credit, task))?;
            let Uploading::Idle(mut target, source, _) = self.0.take()? else {
                return Poll::Ready(Err(Error::AlreadyEnded));
            };
            match source.into_pinned() {
                Ok(pinned) => {
                    let upload = |stream: &_| target.as_slice_mut().upload(stream, 0, pinned);
                    return Poll::Ready(cx.enqueue(upload).map(|_| target));
                }
                Err(source) => self.0.set(Uploading::Copying(Copying::new(source, target))),
            };
        }
        let Uploading::Copying(copying) = self.0.get()? else {
            return Poll::Ready(Err(Error::AlreadyEnded));
        };
        let copied = ready!(copying.poll(task, cx));
        match self.0.take()? {
            Uploading::Copying(copying) => Poll::Ready(copied.map(|()| copying.target)),
            Uploading::Idle(..) => Poll::Ready(Err(Error::AlreadyEnded)),
        }
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
/// [`Error::Unsupported`] for elements that are not a repetition of one, two or four bytes, or an error of the device.
pub fn fill<B: BufferTarget>(target: B, value: B::Element) -> Op<Fill<B>> {
    Op::new(Fill { begins: Live::new((target, value)), credit: Credit::new() })
}

/// The steps of [`fill`].
pub struct Fill<B: BufferTarget> {
    begins: Live<(B, B::Element)>,
    credit: Credit,
}

impl<B: BufferTarget> Submit for Fill<B> {
    type Output = B;

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<B>> {
        ready!(cx.poll_credit(&mut self.credit, task))?;
        let (mut target, value) = self.begins.take()?;
        let filled = cx.enqueue(|stream| target.as_slice_mut().fill(stream, value));
        Poll::Ready(filled.map(|_| target))
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
/// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
pub fn copy<A, B>(from: A, into: B) -> Op<Copy<A, B>>
where
    A: BufferSource,
    B: BufferTarget<Element = A::Element>,
{
    Op::new(Copy { begins: Live::new((from, into)), credit: Credit::new() })
}

/// The steps of [`copy`].
pub struct Copy<A, B> {
    begins: Live<(A, B)>,
    credit: Credit,
}

impl<A: BufferSource, B: BufferTarget<Element = A::Element>> Submit for Copy<A, B> {
    type Output = (A, B);

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<(A, B)>> {
        ready!(cx.poll_credit(&mut self.credit, task))?;
        let (from, mut into) = self.begins.take()?;
        let copied = cx.enqueue(|stream| into.as_slice_mut().copy_from(stream, from.as_slice()));
        Poll::Ready(copied.map(|_| (from, into)))
    }
}
