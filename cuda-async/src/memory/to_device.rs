//! `to_device`: copies a buffer to another device.

use std::task::{Context, Poll, ready};

use cuda_core::{Crossing, Device, DeviceBuffer, Element, Error, Pending, Result, Waiter};

use crate::{
    context::ExecutionContext,
    memory::{
        allocate::{Allocate, uninitialized},
        download::{BufferSource, to_host},
        upload::h2d,
    },
    op::{Live, Op, Submit},
    ops::{BoxedOp, DeviceOp, value},
};

/// Copies a device buffer to `device`. The operation may run on any device.
///
/// Between GPUs with peer access the bytes are copied directly (over NVLink if it is present). Otherwise they are copied
/// through the host. Later steps start when the copy has arrived. The host waits for it without blocking a thread.
///
/// ```
/// use cuda_async::{cuda_cpu::CpuProvider, open_blocking, prelude::*};
/// let first = open_blocking("cpu")?;
/// let second = Device::open(&CpuProvider::default(), 0)?; // a device of its own
/// let op = h2d(vec![1, 2]).on(&first).then(|x| to_device(x, &second));
/// let there = op.inspect(|x| assert!(*x.device() == second)); // the buffer stays there, so later steps use `on`
/// assert_eq!(there.then(|x| to_host(x).on(&second)).sync()?, [1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::OutOfMemory`] of `device`; [`Error::NeedsHostData`] in [`async_on`](crate::DeviceOp::async_on) if a step
/// has to wait; or an error of either device.
pub fn to_device<'a, B: BufferSource + 'a>(
    buffer: B,
    device: &Device,
) -> BoxedOp<'a, DeviceBuffer<B::Element>> {
    let (from, to) = (buffer.as_slice().device().clone(), device.clone());
    if from == to {
        return duplicate(buffer).on(&to).boxed();
    }
    reach(&from, &to)
        .then(move |reached| match reached {
            true => across(buffer, &from, &to).boxed(),
            false => to_host(buffer).on(&from).then(move |host| h2d(host).on(&to)).boxed(),
        })
        .boxed()
}

/// Gives whether the devices have peer access. The driver is queried once.
fn reach(from: &Device, to: &Device) -> BoxedOp<'static, bool> {
    match from.known_to_reach(to) {
        Some(reached) => value(reached).boxed(),
        None => Op::new(Reach { from: from.clone(), to: to.clone(), asked: None }).boxed(),
    }
}

/// The steps that query whether a device can copy to another one.
struct Reach {
    from: Device,
    to: Device,
    asked: Option<Pending<bool>>,
}

impl Submit for Reach {
    type Output = bool;

    fn poll_submit(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<bool>> {
        cx.may_wait("to_device")?;
        self.asked.get_or_insert_with(|| self.from.reach(&self.to)).poll(task)
    }
}

/// Copies directly into memory that is allocated on the other device. The device that holds the bytes copies.
fn across<'a, B: BufferSource + 'a>(
    buffer: B,
    from: &Device,
    to: &Device,
) -> impl DeviceOp<Output = DeviceBuffer<B::Element>> + use<'a, B> {
    let (from, len) = (from.clone(), buffer.as_slice().len());
    let cross =
        |place| Op::new(Cross { begins: Some((buffer, place)), crossing: None, waiter: None });
    let place = Destination { allocate: uninitialized(len).into_steps(), allocated: None };
    Op::new(place).on(to).then(move |place| cross(place).on(&from))
}

/// The steps that allocate memory, and wait until no work uses it. An allocation may reuse the memory of a dropped
/// buffer, which earlier steps of this context still use. `settled()` is not enough: it waits only for submissions of
/// its own steps.
struct Destination<T: Element> {
    allocate: Allocate<T>,
    allocated: Option<Allocated<T>>,
}

/// Memory whose uses are complete when submission `number` is.
struct Allocated<T> {
    place: DeviceBuffer<T>,
    number: u64,
    waiter: Option<Waiter>,
}

impl<T: Element> Submit for Destination<T> {
    type Output = DeviceBuffer<T>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        cx.may_wait("to_device")?;
        if self.allocated.is_none() {
            let place = ready!(self.allocate.poll_submit(task, cx))?;
            let number = cx.last().unwrap_or_default();
            self.allocated = Some(Allocated { place, number, waiter: None });
        }
        let it = self.allocated.as_mut().ok_or(Error::AlreadyEnded)?;
        let complete = ready!(cx.poll_submission(it.number, &mut it.waiter, task));
        let allocated = self.allocated.take().ok_or(Error::AlreadyEnded)?;
        Poll::Ready(complete.map(|()| allocated.place))
    }
}

/// Copies on the same device.
fn duplicate<'a, B: BufferSource + 'a>(
    buffer: B,
) -> impl DeviceOp<Output = DeviceBuffer<B::Element>> + use<'a, B> {
    let len = buffer.as_slice().len();
    uninitialized::<B::Element>(len)
        .then(move |place| Op::new(Duplicate(Live::new((buffer, place)))))
}

struct Duplicate<B: BufferSource>(Live<(B, DeviceBuffer<B::Element>)>);

impl<B: BufferSource> Submit for Duplicate<B> {
    type Output = DeviceBuffer<B::Element>;

    fn poll_submit(
        &mut self,
        _: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        let (buffer, mut place) = self.0.take()?;
        cx.enqueue(|stream| place.copy_from(stream, buffer.as_slice()))?;
        Poll::Ready(Ok(place))
    }
}

/// The steps of a copy into memory of another device. The output is available when the copy has arrived.
struct Cross<B: BufferSource> {
    begins: Option<(B, DeviceBuffer<B::Element>)>,
    crossing: Option<Crossing<B::Element>>,
    waiter: Option<Waiter>,
}

impl<B: BufferSource<Element: Element>> Submit for Cross<B> {
    type Output = DeviceBuffer<B::Element>;

    fn poll_submit(
        &mut self,
        task: &mut Context<'_>,
        cx: &ExecutionContext,
    ) -> Poll<Result<Self::Output>> {
        cx.may_wait("to_device")?;
        if let Some((buffer, place)) = self.begins.take() {
            let crossing = cx.enqueue(|stream| buffer.as_slice().copy_to_peer(stream, place))?;
            self.crossing = Some(crossing);
        }
        let crossing = self.crossing.as_mut().ok_or(Error::AlreadyEnded)?;
        let number = crossing.ticket().number;
        let arrived = ready!(cx.poll_submission(number, &mut self.waiter, task));
        let taken = arrived.and_then(|()| crossing.try_take().unwrap_or(Err(Error::AlreadyEnded)));
        self.crossing = None;
        Poll::Ready(taken)
    }
}
