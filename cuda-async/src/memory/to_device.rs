//! `to_device`: copies a buffer to another device.

use std::task::{Context, Poll};

use cuda_core::{Device, DeviceBuffer, Element, Error, PeerCopy, Pending, Result, Waiter};

use crate::{
    context::ExecutionContext,
    memory::{
        allocate::{Allocate, uninitialized},
        download::{BufferSource, to_host},
        upload::h2d,
    },
    op::{Op, Submit, Submitted},
    ops::{BoxedOp, DeviceOp, value},
};

/// Copies a device buffer to `device`. The operation may run on any device.
///
/// Between GPUs with peer access the bytes are copied directly (over NVLink if it is present). Otherwise they are
/// copied through the host. Later steps start when the copy has arrived. The operation waits for the copy without
/// blocking a thread.
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

    fn submit(mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        cx.waits().may_wait("to_device")?;
        let asked = self.asked.get_or_insert_with(|| self.from.reach(&self.to));
        Ok(match asked.poll(task)? {
            Poll::Ready(reached) => Submitted::Ready(reached),
            Poll::Pending => Submitted::Pending(self),
        })
    }
}

/// Copies directly into memory that is allocated on the other device. The device that holds the bytes copies.
fn across<'a, B: BufferSource + 'a>(
    buffer: B,
    from: &Device,
    to: &Device,
) -> impl DeviceOp<Output = DeviceBuffer<B::Element>> + use<'a, B> {
    let (from, len) = (from.clone(), buffer.as_slice().len());
    let cross = |place| Op::new(Cross(Moving::Idle(buffer, place)));
    Op::new(Destination(Place::Allocating(uninitialized(len).into_steps())))
        .on(to)
        .then(move |place| cross(place).on(&from))
}

/// The steps that allocate memory, and wait until no work uses it. An allocation may reuse the memory of a dropped
/// buffer, which earlier steps of this context still use. `settled()` is not enough: it waits only for submissions of
/// its own steps.
struct Destination<T: Element>(Place<T>);

enum Place<T: Element> {
    Allocating(Allocate<T>),
    /// The uses of the memory are complete when this submission is.
    Allocated(DeviceBuffer<T>, u64, Option<Waiter>),
}

impl<T: Element> Submit for Destination<T> {
    type Output = DeviceBuffer<T>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        cx.waits().may_wait("to_device")?;
        let (place, number, mut waiter) = match self.0 {
            Place::Allocating(allocate) => match allocate.submit(task, cx)? {
                Submitted::Ready(place) => (place, cx.last().unwrap_or_default(), None),
                Submitted::Pending(allocate) => {
                    return Ok(Submitted::Pending(Self(Place::Allocating(allocate))));
                }
            },
            Place::Allocated(place, number, waiter) => (place, number, waiter),
        };
        Ok(match cx.waits().poll_submission(number, &mut waiter, task)? {
            Poll::Ready(()) => Submitted::Ready(place),
            Poll::Pending => Submitted::Pending(Self(Place::Allocated(place, number, waiter))),
        })
    }
}

/// Copies on the same device.
fn duplicate<'a, B: BufferSource + 'a>(
    buffer: B,
) -> impl DeviceOp<Output = DeviceBuffer<B::Element>> + use<'a, B> {
    let len = buffer.as_slice().len();
    uninitialized::<B::Element>(len).then(move |place| Op::new(Duplicate(buffer, place)))
}

struct Duplicate<B: BufferSource>(B, DeviceBuffer<B::Element>);

impl<B: BufferSource> Submit for Duplicate<B> {
    type Output = DeviceBuffer<B::Element>;

    fn submit(self, _: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self(buffer, mut place) = self;
        cx.enqueue(|stream| place.copy_from(stream, buffer.as_slice()))?;
        Ok(Submitted::Ready(place))
    }
}

/// The steps of a copy into memory of another device. The output is available when the copy has arrived.
struct Cross<B: BufferSource>(Moving<B>);

enum Moving<B: BufferSource> {
    Idle(B, DeviceBuffer<B::Element>),
    Copying(PeerCopy<B::Element>, Option<Waiter>),
}

impl<B: BufferSource<Element: Element>> Submit for Cross<B> {
    type Output = DeviceBuffer<B::Element>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        cx.waits().may_wait("to_device")?;
        let (mut copy, mut waiter) = match self.0 {
            Moving::Idle(buffer, place) => {
                (cx.enqueue(|stream| buffer.as_slice().copy_to_peer(stream, place))?, None)
            }
            Moving::Copying(copy, waiter) => (copy, waiter),
        };
        if cx.waits().poll_submission(copy.ticket().number, &mut waiter, task)?.is_pending() {
            return Ok(Submitted::Pending(Self(Moving::Copying(copy, waiter))));
        }
        copy.try_take().unwrap_or(Err(Error::AlreadyEnded)).map(Submitted::Ready)
    }
}
