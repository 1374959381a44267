//! `to_device`: from device to device.

use std::task::{Context, Poll, ready};

use cuda_core::{Crossing, Device, DeviceBuffer, Element, Error, Result, Waiter};

use crate::{
    context::ExecutionContext,
    memory::{
        allocate::uninitialised,
        download::{BufferSource, to_host},
        upload::h2d,
    },
    op::{Live, Op, Submit},
    ops::{BoxedOp, DeviceOp, offload::Offload, value},
};

/// A copy of a device buffer on `device`, whatever device the operation itself runs on.
///
/// Between GPUs that reach each other the bytes go from one memory to the other (over NVLink, where there is one);
/// elsewhere they go through the host. What is behind it goes on when the copy has arrived: an edge
/// between devices is a wait on the host, which costs no thread.
///
/// ```
/// use cuda_async::{cuda_cpu::CpuProvider, open, prelude::*};
/// let first = open("cpu")?;
/// let second = Device::open(&CpuProvider::default(), 0)?; // a device of its own
/// let op = h2d(vec![1, 2]).on(&first).then(|x| to_device(x, &second));
/// let there = op.inspect(|x| assert!(*x.device() == second)); // it stays there: what comes next goes `on` it
/// assert_eq!(there.then(|x| to_host(x).on(&second)).sync()?, [1, 2]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// Out of memory there, or what either device met.
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

/// Whether the bytes can go directly. Asks the driver once, on a helper thread.
fn reach(from: &Device, to: &Device) -> BoxedOp<'static, bool> {
    let (from, to) = (from.clone(), to.clone());
    match from.known_to_reach(&to) {
        Some(reached) => value(reached).boxed(),
        None => Op::new(Offload::new(move || from.reach(&to).wait())).boxed(),
    }
}

/// The direct way: into memory that is ready there, by the device where the bytes are.
fn across<'a, B: BufferSource + 'a>(
    buffer: B,
    from: &Device,
    to: &Device,
) -> impl DeviceOp<Output = DeviceBuffer<B::Element>> + use<'a, B> {
    let (from, len) = (from.clone(), buffer.as_slice().len());
    let cross =
        |place| Op::new(Cross { begins: Some((buffer, place)), crossing: None, waiter: None });
    uninitialised::<B::Element>(len).settled().on(to).then(move |place| cross(place).on(&from))
}

/// A copy on the same device.
fn duplicate<'a, B: BufferSource + 'a>(
    buffer: B,
) -> impl DeviceOp<Output = DeviceBuffer<B::Element>> + use<'a, B> {
    let len = buffer.as_slice().len();
    uninitialised::<B::Element>(len)
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

/// A copy into memory of another device, which is handed on when it has arrived.
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
        cx.may_wait()?;
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
