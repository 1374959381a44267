//! `Tensor`: a device buffer with a shape.

use std::{marker::PhantomData, ops::RangeBounds, sync::Arc};

use cuda_async::memory::BufferSource;
use cuda_core::{Device, DeviceBuffer, Error, MemoryConflict, Result};

use crate::{
    element::DType,
    shape::{IntoShape, Layout, of_operation},
};

/// A tensor: device memory of elements of one type, with a shape.
///
/// A tensor owns its memory, as a [`DeviceBuffer`] does. [`view`](Tensor::view) borrows it, and
/// [`into_shared`](Tensor::into_shared) shares it. The functions that change the shape (`reshape`, `transpose`,
/// `slice`, ..) submit nothing: they return the same memory with another [`Layout`]. Operations on existing tensors are
/// in [`TensorOps`](crate::TensorOps).
///
/// If one of these functions fails, it drops the tensor and its memory. Call it on `x.view()` to keep the tensor.
///
/// ```
/// use cuda_async::prelude::*;
/// use cuda_tensor::{Tensor, TensorOps};
///
/// let x = Tensor::from_host(vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]).sync()?;
/// assert_eq!(x.view().sum_dim(0).to_host_vec().sync()?, [5.0, 7.0, 9.0]);
/// let columns = x.transpose(0, 1)?; // no copy
/// assert_eq!(columns.shape(), [3, 2]);
/// assert_eq!(columns.to_host_vec().sync()?, [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub struct Tensor<T: DType, B = DeviceBuffer<<T as DType>::Stored>> {
    buffer: B,
    layout: Layout,
    element: PhantomData<fn() -> T>,
}

/// A borrowed tensor.
pub type TensorView<'a, T> = Tensor<T, &'a DeviceBuffer<<T as DType>::Stored>>;

/// An exclusively borrowed tensor, which operations may write.
pub type TensorViewMut<'a, T> = Tensor<T, &'a mut DeviceBuffer<<T as DType>::Stored>>;

/// A tensor that shares its memory with others. Clones are cheap.
pub type SharedTensor<T> = Tensor<T, Arc<DeviceBuffer<<T as DType>::Stored>>>;

impl<T: DType> Tensor<T> {
    /// Creates a tensor from a buffer that holds its elements in row-major order.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the shape has another number of elements. [`Error::Misuse`] for a variable of a module,
    /// because other handles share its memory. The buffer is then dropped.
    pub fn from_buffer(buffer: DeviceBuffer<T::Stored>, shape: impl IntoShape) -> Result<Self> {
        let layout = Layout::contiguous(shape)?;
        if buffer.is_variable() {
            return Err(Error::memory("a tensor", MemoryConflict::Variable));
        }
        layout.check_len(buffer.len())?;
        Ok(Self::of(buffer, layout))
    }

    /// Converts into the buffer. The buffer of a view holds all elements of the original tensor, in the original order;
    /// see [`layout`](Tensor::layout).
    pub fn into_buffer(self) -> DeviceBuffer<T::Stored> {
        self.buffer
    }

    /// Borrows the tensor exclusively.
    pub fn view_mut(&mut self) -> TensorViewMut<'_, T> {
        Tensor::of(&mut self.buffer, self.layout.clone())
    }

    /// Converts into a tensor that shares its memory with its clones.
    pub fn into_shared(self) -> SharedTensor<T> {
        Tensor::of(Arc::new(self.buffer), self.layout)
    }
}

impl<T: DType> SharedTensor<T> {
    /// Converts into the buffer. The buffer of a view holds all elements of the original tensor, in the original order;
    /// see [`layout`](Tensor::layout).
    pub fn into_buffer(self) -> Arc<DeviceBuffer<T::Stored>> {
        self.buffer
    }

    /// Converts into a tensor that owns its memory, if no other handle uses the memory.
    ///
    /// # Errors
    /// Returns the shared tensor if other handles use its memory.
    pub fn into_owned(self) -> Result<Tensor<T>, Self> {
        match Arc::try_unwrap(self.buffer) {
            Ok(buffer) => Ok(Tensor::of(buffer, self.layout)),
            Err(shared) => Err(Tensor::of(shared, self.layout)),
        }
    }
}

impl<T: DType, B: BufferSource<Element = T::Stored> + std::borrow::Borrow<DeviceBuffer<T::Stored>>>
    Tensor<T, B>
{
    /// Borrows the tensor.
    pub fn view(&self) -> TensorView<'_, T> {
        Tensor::of(self.buffer.borrow(), self.layout.clone())
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> &Device {
        self.buffer.borrow().device()
    }
}

impl<T: DType, B> Tensor<T, B> {
    pub(super) const fn of(buffer: B, layout: Layout) -> Self {
        Self { buffer, layout, element: PhantomData }
    }

    /// Returns the sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        self.layout.shape()
    }

    /// Returns the number of dimensions.
    pub fn rank(&self) -> usize {
        self.shape().len()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.layout.len()
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.layout.is_empty()
    }

    /// Returns the offsets of the elements in the buffer.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns whether the tensor is contiguous: its elements lie in row-major order without gaps. Kernels take only
    /// contiguous tensors. [`dup`](crate::TensorOps::dup) copies any tensor into one.
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// Returns the buffer. The buffer of a view holds all elements of the original tensor.
    pub fn buffer(&self) -> &B {
        &self.buffer
    }

    fn with(self, layout: Layout) -> Self {
        Self { layout, ..self }
    }

    /// Returns the same elements in another shape, in row-major order.
    ///
    /// # Errors
    /// [`Error::Shape`] if the number of elements differs, or if the tensor is a view that can have that shape only as
    /// a copy; see [`dup`](crate::TensorOps::dup).
    pub fn reshape(self, shape: impl IntoShape) -> Result<Self> {
        let layout = of_operation("reshape", self.layout.reshape(shape))?;
        Ok(self.with(layout))
    }

    /// Returns the tensor with dimensions `a` and `b` exchanged.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such dimension.
    pub fn transpose(self, a: usize, b: usize) -> Result<Self> {
        let layout = of_operation("transpose", self.layout.transpose(a, b))?;
        Ok(self.with(layout))
    }

    /// Returns the tensor with its dimensions in another order: dimension `i` of the result is `order[i]` of this
    /// tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if `order` does not name each dimension once.
    pub fn permute(self, order: &[usize]) -> Result<Self> {
        let layout = of_operation("permute", self.layout.permute(order))?;
        Ok(self.with(layout))
    }

    /// Returns the part of dimension `dim` in `range`. The memory of the other elements stays allocated.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such dimension, or the range is not inside it.
    pub fn slice(self, dim: usize, range: impl RangeBounds<usize>) -> Result<Self> {
        let layout = of_operation("slice", self.layout.slice(dim, range))?;
        Ok(self.with(layout))
    }

    /// Returns the part of the tensor at one index of dimension `dim`, without that dimension.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such dimension or index.
    pub fn index(self, dim: usize, index: usize) -> Result<Self> {
        let layout = of_operation("index", self.layout.index(dim, index))?;
        Ok(self.with(layout))
    }

    /// Returns the tensor without dimension `dim`, whose size is 1.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there is no such dimension, or its size is not 1.
    pub fn squeeze(self, dim: usize) -> Result<Self> {
        let layout = of_operation("squeeze", self.layout.squeeze(dim))?;
        Ok(self.with(layout))
    }

    /// Returns the tensor with a new dimension of size 1 before dimension `dim`, or at the end if `dim` is the number
    /// of dimensions.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `dim` is larger than the number of dimensions, or the tensor has the maximum number of
    /// dimensions.
    pub fn unsqueeze(self, dim: usize) -> Result<Self> {
        let layout = of_operation("unsqueeze", self.layout.unsqueeze(dim))?;
        Ok(self.with(layout))
    }

    /// Broadcasts the tensor to a larger shape, by the rules of NumPy: shapes are compared from the last dimension on,
    /// and a missing dimension or one of size 1 is repeated. An operation cannot write a broadcast tensor.
    ///
    /// # Errors
    /// [`Error::Shape`] if the tensor cannot be broadcast to the shape.
    pub fn broadcast(self, shape: impl IntoShape) -> Result<Self> {
        let layout = of_operation("broadcast", self.layout.broadcast(shape.dims()))?;
        Ok(self.with(layout))
    }
}

impl<T: DType, B: Clone> Clone for Tensor<T, B> {
    fn clone(&self) -> Self {
        Self::of(self.buffer.clone(), self.layout.clone())
    }
}

impl<T: DType, B> std::fmt::Debug for Tensor<T, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tensor<{}>({:?})", T::NAME, self.shape())
    }
}
