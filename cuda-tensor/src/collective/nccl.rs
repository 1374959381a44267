//! Collectives with NCCL (feature `cudarc`).

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_async::{
    context::ExecutionContext,
    internals::poll_submission_on,
    op::{Op, Submit, Submitted},
};
use cuda_core::{
    Access, Device, DeviceBuffer, Error, ForeignCall, RawStream, Result, Stream, Waiter,
};
use cudarc::nccl::sys;

use super::Reduction;
use crate::{
    Number, Tensor, TensorError,
    libraries::nccl::{Collective, Communicators, Group, data_type},
};

/// A group of GPUs that NCCL connects.
#[derive(Clone)]
pub(super) struct Nccl(Arc<Connected>);

struct Connected {
    group: Communicators,
    /// The stream of each GPU that runs the collectives. One stream keeps their order.
    streams: Vec<Stream>,
}

impl Nccl {
    /// Connects the devices, if all of them are GPUs of this process and NCCL is installed. Blocks.
    ///
    /// # Errors
    /// The error of NCCL or of a device.
    pub(super) fn new(devices: &[Device]) -> Result<Option<Self>> {
        let gpu = |device: &Device| device.info().address.strip_prefix("cuda:")?.parse().ok();
        let Some(gpus) = devices.iter().map(gpu).collect::<Option<Vec<u32>>>() else {
            return Ok(None);
        };
        let Some(group) = Communicators::new(&gpus)? else { return Ok(None) };
        let streams = devices.iter().map(Device::new_stream).collect::<Result<_>>()?;
        Ok(Some(Self(Arc::new(Connected { group, streams }))))
    }

    /// Prepares an all-reduce in place. Gives the tensors back if NCCL has no such element type.
    pub(super) fn all_reduce<T: Number>(
        &self,
        tensors: Vec<Tensor<T>>,
        reduction: Reduction,
    ) -> Result<Call<T>, Vec<Tensor<T>>> {
        let collective = Collective::AllReduce(operation(reduction));
        self.call(collective, tensors, |tensor| (tensor.len(), None))
    }

    /// Prepares an all-gather. Gives the tensors back if NCCL has no such element type.
    pub(super) fn all_gather<T: Number>(
        &self,
        tensors: Vec<Tensor<T>>,
    ) -> Result<Call<T>, Vec<Tensor<T>>> {
        let ranks = tensors.len();
        self.call(Collective::AllGather, tensors, |tensor| {
            let shape = [ranks].into_iter().chain(tensor.shape().iter().copied());
            (tensor.len(), Some(shape.collect()))
        })
    }

    /// Prepares a reduce-scatter. Gives the tensors back if NCCL has no such element type.
    pub(super) fn reduce_scatter<T: Number>(
        &self,
        tensors: Vec<Tensor<T>>,
        reduction: Reduction,
    ) -> Result<Call<T>, Vec<Tensor<T>>> {
        let ranks = tensors.len();
        let collective = Collective::ReduceScatter(operation(reduction));
        self.call(collective, tensors, |tensor| {
            let mut shape = tensor.shape().to_vec();
            if let Some(first) = shape.first_mut() {
                *first /= ranks;
            }
            (tensor.len() / ranks, Some(shape))
        })
    }

    fn call<T: Number>(
        &self,
        collective: Collective,
        tensors: Vec<Tensor<T>>,
        sizes: impl FnOnce(&Tensor<T>) -> (usize, Option<Vec<usize>>),
    ) -> Result<Call<T>, Vec<Tensor<T>>> {
        match (data_type(T::NAME), tensors.first()) {
            (Some(of_type), Some(first)) => {
                let (count, target) = sizes(first);
                Ok(Call { nccl: self.clone(), collective, of_type, count, target, tensors })
            }
            _ => Err(tensors),
        }
    }
}

fn operation(reduction: Reduction) -> sys::ncclRedOp_t {
    match reduction {
        Reduction::Sum => sys::ncclRedOp_t::ncclSum,
        Reduction::Product => sys::ncclRedOp_t::ncclProd,
        Reduction::Max => sys::ncclRedOp_t::ncclMax,
        Reduction::Min => sys::ncclRedOp_t::ncclMin,
    }
}

/// A collective that is not submitted yet.
pub(super) struct Call<T: Number> {
    nccl: Nccl,
    collective: Collective,
    of_type: sys::ncclDataType_t,
    count: usize,
    /// The shape of the results. `None` if NCCL writes them into the tensors.
    target: Option<Vec<usize>>,
    tensors: Vec<Tensor<T>>,
}

impl<T: Number> Call<T> {
    /// Creates the operation that runs it.
    pub(super) fn into_op(self) -> Op<Steps<T>> {
        Op::new(Steps::Idle(self))
    }

    /// Submits it on all GPUs.
    fn start(self) -> Result<InFlight<T>> {
        let streams = &self.nccl.0.streams;
        let mut group = self.nccl.0.group.lock();
        if group.is_broken() {
            return Err(TensorError::BrokenCommunicator.into());
        }
        let results = match &self.target {
            None => None,
            Some(shape) => {
                let len = shape.iter().product();
                let allocate = |stream| {
                    let buffer = DeviceBuffer::<T::Stored>::uninitialized(stream, len)?;
                    Tensor::from_buffer(buffer, &shape[..])
                };
                Some(streams.iter().map(allocate).collect::<Result<Vec<_>>>()?)
            }
        };
        let ranks = (0..streams.len()).map(|rank| {
            let from = self.tensors[rank].buffer().as_slice();
            let call = ForeignCall::new();
            let call = match &results {
                None => call.uses(from, Access::Write),
                Some(results) => call
                    .uses(from, Access::Read)
                    .uses(results[rank].buffer().as_slice(), Access::Write),
            };
            (call, &streams[rank])
        });
        let (mut raws, mut addresses) = (Vec::new(), Vec::new());
        let mut numbers = Vec::new();
        let (collective, of_type, count) = (self.collective, self.of_type, self.count);
        let enqueue = |group: &mut Group, raws: &[RawStream], addresses: &[[u64; 2]]| {
            // SAFETY: the tensors have the shapes of the collective and are owned here.
            unsafe { group.call(collective, of_type, count, raws, addresses) }
        };
        nest(
            &mut ranks.collect(),
            &mut raws,
            &mut addresses,
            &mut numbers,
            &mut |raws, addresses| enqueue(&mut group, raws, addresses),
        )?;
        drop(group);
        numbers.reverse();
        let results = results.unwrap_or(self.tensors);
        Ok(InFlight { nccl: self.nccl, results, numbers, waiter: None })
    }
}

/// Enqueues a collective on the streams of all GPUs, with the addresses of its source and its target on each.
type Enqueue<'a> = dyn FnMut(&[RawStream], &[[u64; 2]]) -> Result<()> + 'a;

/// Opens a foreign call on the stream of each GPU, one inside the other, and calls `enqueue` in the innermost one. Adds
/// the numbers of the submissions, that of the last GPU first.
fn nest(
    ranks: &mut Vec<(ForeignCall<'_>, &Stream)>,
    raws: &mut Vec<RawStream>,
    addresses: &mut Vec<[u64; 2]>,
    numbers: &mut Vec<u64>,
    enqueue: &mut Enqueue<'_>,
) -> Result<()> {
    if ranks.is_empty() {
        return enqueue(raws, addresses);
    }
    let (call, stream) = ranks.remove(0);
    // SAFETY: the innermost call enqueues work on all of the streams that uses only the memory of their calls. The
    // inner calls are on streams of other devices. The group is locked, so no other thread submits to these streams,
    // and the locks of their orders are taken in one sequence.
    let ticket = unsafe {
        call.submit(stream, |raw, own| {
            raws.push(raw);
            // In place there is one address.
            let (Some(from), Some(to)) = (own.first(), own.last()) else {
                return Err(Error::AlreadyEnded);
            };
            addresses.push([*from, *to]);
            nest(ranks, raws, addresses, numbers, enqueue)
        })
    }?;
    numbers.push(ticket.number);
    Ok(())
}

/// The steps of a collective.
pub(super) enum Steps<T: Number> {
    Idle(Call<T>),
    InFlight(InFlight<T>),
}

/// A collective in flight.
pub(super) struct InFlight<T: Number> {
    nccl: Nccl,
    results: Vec<Tensor<T>>,
    /// The numbers of the submissions that are not known to be complete, one for the stream of each GPU. They are
    /// removed from the end.
    numbers: Vec<u64>,
    waiter: Option<Waiter>,
}

impl<T: Number> Submit for Steps<T> {
    type Output = Vec<Tensor<T>>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let mut in_flight = match self {
            Self::Idle(call) => call.start()?,
            Self::InFlight(in_flight) => in_flight,
        };
        Ok(match in_flight.poll(task, cx)? {
            Poll::Ready(()) => Submitted::Ready(in_flight.results),
            Poll::Pending => Submitted::Pending(Self::InFlight(in_flight)),
        })
    }
}

impl<T: Number> InFlight<T> {
    /// Ready when the collective is complete on all GPUs.
    fn poll(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<()>> {
        while let Some(number) = self.numbers.last() {
            let stream = &self.nccl.0.streams[self.numbers.len() - 1];
            ready!(poll_submission_on(cx, stream, *number, &mut self.waiter, task))?;
            self.numbers.pop();
            self.waiter = None;
        }
        Poll::Ready(Ok(()))
    }
}
