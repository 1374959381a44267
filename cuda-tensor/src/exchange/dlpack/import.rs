//! `Tensor::from_dlpack`: imports tensors of other frameworks.

use std::{
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use cuda_async::{
    DeviceOp, ExecutionContext, IntoDeviceOp,
    internals::{LargeCopy, is_large},
    memory::{HostSource, h2d, uninitialized},
    op::{Op, Submit, Submitted},
    ops::Either,
    value, with_context,
};
use cuda_core::{
    DeviceBuffer, Error, Limit, Misuse, Quantity, Result, internals::sync::HelperThread,
};

use super::{
    abi::{DL_CPU, DL_CUDA, DL_CUDA_HOST},
    managed::{ManagedTensor, check_elements, malformed},
};
use crate::{
    element::DType,
    error::TensorError,
    shape::{Dims, Layout, len_of},
    tensor::Tensor,
};

impl<T: DType> Tensor<T> {
    /// Imports a DLPack tensor. Needs the feature `dlpack`.
    ///
    /// A tensor on a GPU (`kDLCUDA`) becomes a tensor in the same memory, without a copy. Run the operation on that GPU
    /// and outside of a graph. Work on the tensor comes after the commands that were enqueued on the stream of the
    /// operation before it ran.
    ///
    /// A tensor on the host (`kDLCPU`, `kDLCUDAHost`) is copied to the device of the operation, in row-major order.
    ///
    /// A thread of this library calls the deleter once: after the copy, or, for memory of a GPU, when the tensor is
    /// dropped and the last work on it is complete. It also calls the deleter if the operation fails or is dropped.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps, dlpack::ManagedTensor};
    /// # let raw = Tensor::<u8>::arange(0..6).then(|x| x.into_dlpack()).sync()?.into_raw();
    /// // SAFETY: `raw` is valid and is used once.
    /// let managed = unsafe { ManagedTensor::from_raw(raw) }?;
    /// // SAFETY: no other code uses the memory, and no work on it is in flight.
    /// let x = unsafe { Tensor::<u8>::from_dlpack(managed) };
    /// assert_eq!(x.sum().item().sync()?, 15);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// # Errors
    /// - A [`TensorError`] if the elements are of another type, the address is null, a size is negative, the strides
    ///   are too large, or the device is neither a CUDA GPU nor the host. Also for memory of a GPU that is read-only.
    /// - [`Error::OutOfRange`] if the elements are misaligned, [`Error::Shape`] if there are too many.
    /// - [`Error::WrongDevice`] if the memory is on a GPU, and the operation runs on another device.
    /// - [`Error::Misuse`] for memory of a GPU in a recording, if a stride is negative, or if two indices have the same
    ///   element, except in a dimension with a stride of 0.
    /// - [`Error::OutOfMemory`], [`Error::OutOfHostMemory`], [`Error::Host`] if a helper thread cannot start, or an
    ///   error of the device.
    ///
    /// # Safety
    /// - Each command on the memory that other code has enqueued is complete, or is on the stream of the operation.
    /// - Until the deleter is called, other code does not write the memory. It reads the memory only while no operation
    ///   writes the tensor.
    pub unsafe fn from_dlpack(tensor: ManagedTensor) -> impl DeviceOp<Output = Self> {
        let owner = Owner(Some(tensor));
        with_context(move |cx| import(&cx, owner))
    }
}

fn import<T: DType>(
    cx: &ExecutionContext,
    owner: Owner,
) -> Result<impl IntoDeviceOp<Output = Tensor<T>> + use<T>> {
    let source = Source::of::<T>(owner.tensor()?)?;
    let device = owner.tensor()?.device();
    let on_gpu = match device.device_type {
        DL_CUDA => true,
        DL_CPU | DL_CUDA_HOST => false,
        other => {
            return Err(TensorError::DeviceType { device_type: other }.into());
        }
    };
    let layout = match on_gpu {
        true => source.layout_in_place(owner.tensor()?)?,
        false => Layout::contiguous(&source.shape[..])?,
    };
    let (lives_on, used_on) = (format!("cuda:{}", device.device_id), &cx.device().info().address);
    if on_gpu && lives_on != *used_on {
        let (what, used_on) = ("a DLPack tensor".into(), used_on.clone());
        return Err(Error::WrongDevice { what, lives_on, used_on });
    }
    if source.len == 0 {
        let none = uninitialized(0).map(|buffer| Tensor::of(buffer, layout));
        return Ok(Either::Left(none));
    }
    Ok(Either::Right(if on_gpu {
        Either::Left(value(in_place(cx, owner, layout)?))
    } else {
        let uploaded = Op::new(Gather::<T>::Idle(owner, source)).then(h2d);
        Either::Right(uploaded.map(|buffer| Tensor::of(buffer, layout)))
    }))
}

/// Returns a tensor in the memory of a DLPack tensor on this GPU.
fn in_place<T: DType>(cx: &ExecutionContext, owner: Owner, layout: Layout) -> Result<Tensor<T>> {
    let (address, len) = (owner.tensor()?.data() as u64, layout.span().len());
    // SAFETY: the memory is valid until `owner` calls the deleter. The caller of `from_dlpack` promises the order of
    // other work.
    let buffer = cx.enqueue(|stream| unsafe {
        DeviceBuffer::from_raw_parts(stream, address, len, Box::new(owner))
    })?;
    Ok(Tensor::of(buffer, layout))
}

/// A tensor whose deleter runs on the helper thread, because it may block on a lock of another framework.
struct Owner(Option<ManagedTensor>);

impl Owner {
    fn tensor(&self) -> Result<&ManagedTensor> {
        self.0.as_ref().ok_or(Error::AlreadyEnded)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let tensor = self.0.take();
        // If the thread cannot start, the task is dropped, which calls the deleter here.
        _ = helper().run(move || drop(tensor));
    }
}

/// Returns the thread that calls deleters and frees memory that was lent. It may block.
pub(super) fn helper() -> &'static HelperThread {
    static HELPER: OnceLock<HelperThread> = OnceLock::new();
    HELPER.get_or_init(|| HelperThread::new("cuda-dlpack"))
}

/// The shape and the strides of a DLPack tensor, in elements, after [`Source::of`] has checked them.
struct Source {
    shape: Dims,
    strides: Vec<isize>,
    len: usize,
}

impl Source {
    /// Checks all properties of a tensor that do not depend on the device.
    fn of<T: DType>(tensor: &ManagedTensor) -> Result<Self> {
        check_elements::<T>(tensor.dtype())?;
        let shape = tensor.shape().iter().map(|size| usize::try_from(*size));
        let shape: Dims = shape.collect::<Result<_, _>>().map_err(|_| {
            malformed(format!("a size of the shape {:?} is negative or too large", tensor.shape()))
        })?;
        let len = len_of(&shape)?;
        let strides = match tensor.strides() {
            // No offset uses the stride of a dimension of one element, so producers may give any number.
            Some(strides) => {
                let used =
                    |(stride, size): (&i64, &usize)| if *size == 1 { 0 } else { *stride as isize };
                strides.iter().zip(&shape).map(used).collect()
            }
            None => {
                let contiguous = Layout::contiguous(&shape[..])?;
                contiguous.strides().iter().map(|stride| *stride as isize).collect()
            }
        };
        let this = Self { shape, strides, len };
        if len > 0 {
            this.check_address::<T>(tensor.data() as usize)?;
        }
        Ok(this)
    }

    fn check_address<T: DType>(&self, address: usize) -> Result<()> {
        let align = align_of::<T::Stored>();
        if address == 0 {
            let shape = &self.shape;
            let detail = format!("its address is null, but the shape {shape:?} has elements");
            return Err(malformed(detail));
        }
        let limit = Limit::MultipleOf(align as u64);
        limit.check("a DLPack tensor", Quantity::Address, address as u64)?;
        // The number of elements from the first to the farthest one, in both directions together.
        let far = self.shape.iter().zip(&self.strides).try_fold(1usize, |far, (size, stride)| {
            stride.unsigned_abs().checked_mul(size - 1)?.checked_add(far)
        });
        let bytes = far.and_then(|far| far.checked_mul(size_of::<T::Stored>()));
        if bytes.is_some_and(|bytes| bytes <= isize::MAX as usize) {
            return Ok(());
        }
        let (shape, strides) = (&self.shape, &self.strides);
        Err(malformed(format!(
            "the strides {strides:?} of the shape {shape:?} reach past any address"
        )))
    }

    /// Returns the layout of a tensor in the memory of `tensor`, which operations may write.
    fn layout_in_place(&self, tensor: &ManagedTensor) -> Result<Layout> {
        if tensor.is_read_only() {
            return Err(TensorError::ReadOnly.into());
        }
        let strides = self.strides.iter().map(|stride| usize::try_from(*stride));
        // A stride is negative.
        let unordered = |_| Misuse::NotRowMajor { object: "a DLPack tensor".into() };
        let strides: Dims = strides.collect::<Result<_, _>>().map_err(unordered)?;
        Layout::strided(&self.shape, &strides)
    }

    /// Returns whether the elements are in row-major order without gaps.
    fn is_row_major(&self) -> bool {
        let strides: Option<Dims> =
            self.strides.iter().map(|stride| usize::try_from(*stride).ok()).collect();
        let layout = strides.and_then(|strides| Layout::strided(&self.shape, &strides).ok());
        layout.is_some_and(|layout| layout.is_contiguous())
    }
}

/// Gives the elements on the host in row-major order. Elements in another order are copied. A large copy runs on a
/// helper thread, so that no poll takes long.
enum Gather<T: DType> {
    Idle(Owner, Source),
    Copying(Option<LargeCopy<Result<Vec<T::Stored>>>>),
}

impl<T: DType> Submit for Gather<T> {
    type Output = Elements<T>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let mut copying = match self {
            Self::Idle(owner, source) => {
                if source.is_row_major() {
                    let in_place = InPlace { owner, len: source.len };
                    return Ok(Submitted::Ready(Elements::InPlace(in_place)));
                }
                let large = is_large(source.len.saturating_mul(size_of::<T::Stored>()));
                let gather = move || gather::<T>(&owner, &source);
                if !large {
                    return gather().map(|elements| Submitted::Ready(Elements::Gathered(elements)));
                }
                Some(LargeCopy::start(gather)?)
            }
            Self::Copying(copying) => copying,
        };
        Ok(match LargeCopy::poll(&mut copying, task, cx)? {
            Poll::Ready(gathered) => Submitted::Ready(Elements::Gathered(gathered?)),
            Poll::Pending => Submitted::Pending(Self::Copying(copying)),
        })
    }
}

/// Copies the elements into row-major order.
///
/// # Errors
/// [`Error::OutOfHostMemory`]. A stride of 0 makes more elements than the producer has memory for.
fn gather<T: DType>(owner: &Owner, source: &Source) -> Result<Vec<T::Stored>> {
    let Source { shape, strides, len } = source;
    let tensor = owner.tensor()?;
    let first = tensor.data().cast::<T::Stored>().cast_const();
    let mut index = Dims::from_elem(0, shape.len());
    let mut offset = 0isize;
    let mut elements = Vec::new();
    elements.try_reserve_exact(*len).map_err(|_| Error::OutOfHostMemory {
        requested: (*len as u64).saturating_mul(size_of::<T::Stored>() as u64),
    })?;
    for _ in 0..*len {
        // SAFETY: `Source` has checked the address. The offset is that of an index inside the shape, so the caller of
        // `from_raw` promises that the element is valid.
        elements.push(unsafe { first.offset(offset).read() });
        for dim in (0..shape.len()).rev() {
            index[dim] += 1;
            offset += strides[dim];
            if index[dim] < shape[dim] {
                break;
            }
            offset -= strides[dim] * shape[dim] as isize;
            index[dim] = 0;
        }
    }
    Ok(elements)
}

/// The elements of a tensor on the host, in row-major order.
enum Elements<T: DType> {
    Gathered(Vec<T::Stored>),
    InPlace(InPlace),
}

/// Elements in the memory of another framework.
struct InPlace {
    owner: Owner,
    len: usize,
}

impl<T: DType> HostSource for Elements<T> {
    type Element = T::Stored;

    fn elements(&self) -> Result<&[T::Stored]> {
        match self {
            Self::Gathered(elements) => Ok(elements),
            Self::InPlace(InPlace { owner, len }) => {
                let first = owner.tensor()?.data().cast::<T::Stored>().cast_const();
                // SAFETY: `Source` has checked the address, and that the elements are in row-major order. The callers
                // of `from_raw` and `from_dlpack` promise that they are valid, and that other code does not write them.
                Ok(unsafe { std::slice::from_raw_parts(first, *len) })
            }
        }
    }

    fn into_shared(self) -> Result<Arc<dyn HostSource<Element = T::Stored> + Sync>, Self> {
        Ok(Arc::new(self))
    }
}
