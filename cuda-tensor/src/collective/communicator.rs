//! `Communicator`: a group of devices that exchange tensors.

use std::{sync::Arc, task::Context};

use cuda_async::{
    DeviceOp, IntoDeviceOp,
    context::ExecutionContext,
    internals::may_wait,
    join_all,
    op::{Op, Submit, Submitted},
    ops::Either,
    value,
};
use cuda_core::{Device, Error, ExpectedShape, Limit, Misuse, Quantity, Result};

use super::{Reduction, plain};
use crate::{Number, Tensor, TensorOps};

/// A group of devices that exchange tensors. Clones are the same group.
///
/// Its operations take one tensor of each device, in the order of the devices, and give one tensor on each device. With
/// the feature `cudarc`, a group of GPUs uses NCCL where it is installed. Other groups use copies between devices and
/// kernels of this crate, and add in the order of the devices.
///
/// A collective completes when it is complete on all devices. It may run on a stream of any device, but cannot be part
/// of a graph.
#[derive(Clone)]
pub struct Communicator(Arc<Group>);

struct Group {
    devices: Vec<Device>,
    #[cfg(feature = "cudarc")]
    nccl: Option<super::nccl::Nccl>,
}

impl Communicator {
    /// Creates a group of distinct devices. Blocks the thread: NCCL takes about a second to connect GPUs.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are no devices, [`Error::Misuse`] if one is listed twice; or an error of a device
    /// or of NCCL.
    pub fn new(devices: &[Device]) -> Result<Self> {
        let what = "a communicator";
        Limit::AtLeast(1).check(what, Quantity::Devices, devices.len() as u64)?;
        let twice = devices.iter().enumerate().find(|(at, device)| devices[..*at].contains(device));
        if let Some((_, device)) = twice {
            return Err(Misuse::NamedTwice { object: what.into(), name: device.to_string() }.into());
        }
        Ok(Self(Arc::new(Group {
            #[cfg(feature = "cudarc")]
            nccl: super::nccl::Nccl::new(devices)?,
            devices: devices.to_vec(),
        })))
    }

    /// Returns the devices, in their order.
    pub fn devices(&self) -> &[Device] {
        &self.0.devices
    }

    /// Returns whether the group uses NCCL.
    pub fn uses_nccl(&self) -> bool {
        #[cfg(feature = "cudarc")]
        return self.0.nccl.is_some();
        #[cfg(not(feature = "cudarc"))]
        false
    }

    /// Reduces the tensors, which must have one shape, and gives the result on each device. NCCL reduces in place.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is not one tensor for each device, [`Error::Shape`] if the shapes differ;
    /// [`Error::WrongDevice`] if a tensor is not on its device; [`Error::NeedsHostData`] in a graph; or an error of a
    /// device.
    pub fn all_reduce<T: Number>(
        &self,
        tensors: Vec<Tensor<T>>,
        reduction: Reduction,
    ) -> impl DeviceOp<Output = Vec<Tensor<T>>> + use<T> {
        let group = self.clone();
        self.prepared("all_reduce", tensors).then(move |tensors| {
            #[cfg(feature = "cudarc")]
            let tensors = match group.0.nccl.as_ref() {
                Some(nccl) => match nccl.all_reduce(tensors, reduction) {
                    Ok(call) => return call.into_op().boxed(),
                    Err(tensors) => tensors,
                },
                None => tensors,
            };
            plain::all_reduce(group.0.devices.clone(), tensors, reduction).boxed()
        })
    }

    /// Collects the tensors, which must have one shape, on each device. The results have an additional first dimension:
    /// the index of the device.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce).
    pub fn all_gather<T: Number>(
        &self,
        tensors: Vec<Tensor<T>>,
    ) -> impl DeviceOp<Output = Vec<Tensor<T>>> + use<T> {
        let group = self.clone();
        self.prepared("all_gather", tensors).then(move |tensors| {
            #[cfg(feature = "cudarc")]
            let tensors = match group.0.nccl.as_ref() {
                Some(nccl) => match nccl.all_gather(tensors) {
                    Ok(call) => return call.into_op().boxed(),
                    Err(tensors) => tensors,
                },
                None => tensors,
            };
            plain::all_gather(group.0.devices.clone(), tensors).boxed()
        })
    }

    /// Reduces the tensors, which must have one shape, and gives each device its part of the result: the first
    /// dimension of the result is divided among the devices.
    ///
    /// # Errors
    /// The errors of [`all_reduce`](Self::all_reduce), and [`Error::OutOfRange`] if the first dimension is not a
    /// multiple of the number of devices.
    pub fn reduce_scatter<T: Number>(
        &self,
        tensors: Vec<Tensor<T>>,
        reduction: Reduction,
    ) -> impl DeviceOp<Output = Vec<Tensor<T>>> + use<T> {
        let group = self.clone();
        let ranks = self.devices().len();
        self.prepared("reduce_scatter", tensors).then(move |tensors| {
            let what = "a reduce-scatter, which divides the first dimension among the devices";
            let shape = tensors.first().map(|tensor| tensor.shape()).unwrap_or_default();
            Limit::AtLeast(1).check(what, Quantity::Dimensions, shape.len() as u64)?;
            Limit::MultipleOf(ranks as u64).check(what, Quantity::Size, shape[0] as u64)?;
            #[cfg(feature = "cudarc")]
            let tensors = match group.0.nccl.as_ref() {
                Some(nccl) => match nccl.reduce_scatter(tensors, reduction) {
                    Ok(call) => return Ok(call.into_op().boxed()),
                    Err(tensors) => tensors,
                },
                None => tensors,
            };
            Ok(plain::reduce_scatter(group.0.devices.clone(), tensors, reduction).boxed())
        })
    }

    /// Checks the tensors, and copies those that are not a whole buffer in row-major order. `collective` is the name of
    /// the operation.
    fn prepared<T: Number>(
        &self,
        collective: &'static str,
        tensors: Vec<Tensor<T>>,
    ) -> impl DeviceOp<Output = Vec<Tensor<T>>> + use<T> {
        let devices = self.devices().to_vec();
        Op::new(MayWait(collective)).then(move |()| {
            check(&devices, &tensors)?;
            if tensors.iter().all(is_whole) {
                return Ok(Either::Left(value(tensors)));
            }
            let contiguous = tensors.into_iter().zip(devices).map(|(tensor, device)| {
                let contiguous = match is_whole(&tensor) {
                    true => Either::Left(value(tensor)),
                    false => Either::Right(tensor.dup().on(&device)),
                };
                contiguous.into_op()
            });
            Ok(Either::Right(join_all(contiguous.collect::<Vec<_>>())))
        })
    }
}

/// The steps that check whether the run can wait, as every collective does. The error names the collective.
struct MayWait(&'static str);

impl Submit for MayWait {
    type Output = ();

    fn submit(self, _: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        may_wait(cx, self.0).map(Submitted::Ready)
    }
}

/// Returns whether the elements are all elements of the buffer, in row-major order.
fn is_whole<T: Number>(tensor: &Tensor<T>) -> bool {
    tensor.is_contiguous() && tensor.buffer().len() == tensor.len()
}

fn check<T: Number>(devices: &[Device], tensors: &[Tensor<T>]) -> Result<()> {
    let limit = Limit::Exactly(devices.len() as u64);
    limit.check("a collective", Quantity::Tensors, tensors.len() as u64)?;
    for (at, (tensor, device)) in tensors.iter().zip(devices).enumerate() {
        if tensor.device() != device {
            return Err(Error::WrongDevice {
                what: format!("tensor {at} of a collective").into(),
                lives_on: tensor.device().info().address.clone(),
                used_on: device.info().address.clone(),
            });
        }
        if tensor.shape() != tensors[0].shape() {
            let operation = format!("tensor {at} of a collective").into();
            let (given, first) = (tensor.shape().into(), tensors[0].shape().into());
            return Err(Error::Shape { operation, given, expected: ExpectedShape::Same(first) });
        }
    }
    Ok(())
}

impl std::fmt::Debug for Communicator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Communicator").field("devices", &self.0.devices).finish_non_exhaustive()
    }
}
