//! Tensors as arguments of kernels: of a program's own kernels, whole or as a [`Partition`], and of those of this
//! crate.
//!
//! The kernels of this crate take a tensor from its first element on ([`Read`], [`Returned`], [`Written`],
//! [`InPlace`]), or with its strides ([`StridedIndex`]). [`vector_config`] and [`element_config`] are the shapes of
//! their launches.

use bytemuck::{Pod, Zeroable};
use cuda_async::{
    internals::{ArcBuffer, buffer_forms},
    kernel::{BufferTuple, ByValue, KernelArg, KernelInput, KernelOutput},
    memory::BufferSource,
};
use cuda_core::{Access, Arguments, ExpectedShape, LaunchConfig, Result, Slice};

use crate::{
    element::{DType, Number},
    forms::{Sealed, TensorInput, TensorOutput},
    shape::{Dims, IntoShape, Layout, MAX_RANK, merge_dims, shape_error},
    tensor::{SharedTensor, Tensor, TensorView, TensorViewMut},
};

/// A tensor that is divided into tiles of one shape. A kernel takes it as output, with a block for each tile. The last
/// tile of a dimension may extend past its end, so the kernel must check its indices.
///
/// ```standalone_crate
/// use cuda_async::{launch, prelude::*};
/// use cuda_tensor::{Tensor, TensorOps};
/// # let device = cuda_async::open_blocking("cpu")?;
/// # let stream = device.new_stream()?;
/// # let scale = device.load_ptx_blocking(include_str!("../../kernels/basic.ptx"))?.function("scale")?;
/// let x = Tensor::<f32>::ones(1000).sync_on(&stream)?.partition(256)?;
/// assert_eq!(x.tiles(), [4]);
/// let config = x.launch_config(256);
/// // SAFETY: `scale(x, factor, n)` writes x, all below n.
/// let x = unsafe { launch(&scale, config, (x, 2.0f32, 1000u32)) }.map(|x| x.unpartition());
/// assert_eq!(x.to_host_vec().sync_on(&stream)?, [2.0; 1000]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Partition<O> {
    tensor: O,
    tile: Dims,
}

impl<T: DType, B> Tensor<T, B>
where
    Self: TensorOutput,
{
    /// Divides the tensor into tiles. [`unpartition`](Partition::unpartition) gives it back.
    ///
    /// # Errors
    /// The errors of [`Partition::new`].
    pub fn partition(self, tile: impl IntoShape) -> Result<Partition<Self>> {
        Partition::new(self, tile)
    }
}

impl<O: TensorOutput> Partition<O> {
    /// Divides a tensor, or an exclusive borrow of one, into tiles of the shape `tile`.
    ///
    /// # Errors
    /// [`Error::Shape`](cuda_core::Error::Shape) if the tile has another number of dimensions or a size of 0, or if
    /// there are more than three dimensions, which is the limit of a grid. The launch checks the number of tiles.
    pub fn new(tensor: O, tile: impl IntoShape) -> Result<Self> {
        let (shape, tile) = (tensor.layout().shape(), tile.dims());
        if shape.len() == tile.len() && tile.len() <= 3 && tile.iter().all(|size| *size > 0) {
            return Ok(Self { tile: tile.into(), tensor });
        }
        Err(shape_error(shape, ExpectedShape::TilesOf(tile.into())))
    }
}

impl<O: TensorInput> Partition<O> {
    /// Returns the shape of a tile.
    pub fn tile(&self) -> &[usize] {
        &self.tile
    }

    /// Returns the number of tiles along each dimension.
    pub fn tiles(&self) -> Vec<usize> {
        let sizes = self.tensor.layout().shape().iter().zip(&self.tile);
        sizes.map(|(size, tile)| size.div_ceil(*tile)).collect()
    }

    /// Returns the configuration with a block of `threads` threads for each tile. The first, second and third dimension
    /// of the tensor are `x`, `y` and `z` of the grid.
    pub fn launch_config(&self, threads: u32) -> LaunchConfig {
        let [x, y, z] = self.grid().map(|tiles| tiles.max(1));
        LaunchConfig::new(1, threads).grid(x, y, z)
    }

    /// Returns the number of tiles along each dimension of a grid.
    fn grid(&self) -> [u32; 3] {
        let tiles = self.tiles();
        // The launch refuses more tiles than a grid can have.
        let along = |dim: usize| {
            tiles.get(dim).map_or(1, |tiles| u32::try_from(*tiles).unwrap_or(u32::MAX))
        };
        [along(0), along(1), along(2)]
    }

    /// Returns the tensor.
    pub fn tensor(&self) -> &O {
        &self.tensor
    }

    /// Returns the tensor, and drops the division into tiles.
    pub fn unpartition(self) -> O {
        self.tensor
    }
}

impl<O> Sealed for Partition<O> {}

impl<O: TensorInput> TensorInput for Partition<O> {
    type Element = O::Element;

    fn layout(&self) -> &Layout {
        self.tensor.layout()
    }

    fn whole(&self) -> Slice<'_, <O::Element as DType>::Stored> {
        self.tensor.whole()
    }
}

/// Adds the address of the first element. A kernel receives no strides, so a tensor that is not contiguous is refused.
fn push_contiguous<'a, I: TensorInput>(
    tensor: &'a I,
    access: Access,
    arguments: &mut Arguments<'a>,
) {
    if !tensor.layout().is_contiguous() {
        arguments.refuse(format!(
            "a tensor of shape {:?} has the strides {:?}, and a kernel needs the elements in row-major order without gaps; copy it first, with `dup()`",
            tensor.layout().shape(),
            tensor.layout().strides()
        ));
    }
    push(tensor, access, arguments);
}

macro_rules! kernel_args {
    ($([$($generics:tt)*] $form:ty: $access:ident;)*) => {$(
        impl<$($generics)*> KernelArg for $form
        where
            Self: TensorInput,
        {
            type GivenBack<Rest: BufferTuple> = Rest::Prepend<Self>;

            fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
                push_contiguous(self, Access::$access, arguments);
            }

            fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<Self> {
                rest.prepend(self)
            }
        }
    )*};
}

kernel_args! {
    [T: DType] Tensor<T>: Write;
    [T: DType] &mut Tensor<T>: Write;
    [T: DType] TensorViewMut<'_, T>: Write;
    [T: DType] &Tensor<T>: Read;
    [T: DType] TensorView<'_, T>: Read;
    [T: DType] SharedTensor<T>: Read;
    [T: DType] &SharedTensor<T>: Read;
    [O: TensorInput] Partition<O>: Write;
}

buffer_forms! {
    [T: DType, B: BufferSource<Element = T::Stored>] Tensor<T, B>: |this| this.len(), shape this.shape();
    [T: DType, B: BufferSource<Element = T::Stored> + Sync] &Tensor<T, B>: |this| this.len(), shape this.shape();
    [T: DType, B: BufferSource<Element = T::Stored>] &mut Tensor<T, B>: |this| this.len(), shape this.shape();
    [O: TensorInput] Partition<O>: |this| this.layout().len(), shape this.layout().shape(),
        tiles Some((this.tile(), this.grid()));
}

// SAFETY: pushes the elements of the tensor, whose number it states.
unsafe impl<T: DType, B: BufferSource<Element = T::Stored> + Sync> ArcBuffer for Tensor<T, B> {
    type Stored = T::Stored;

    fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push_contiguous(self, Access::Read, arguments);
    }

    fn elements(&self) -> usize {
        self.len()
    }

    fn size(&self, dimension: usize) -> Option<usize> {
        self.shape().get(dimension).copied()
    }
}

macro_rules! outputs {
    ($([$($generics:tt)*] $form:ty, $stored:ty;)*) => {$(
        // SAFETY: pushes the elements of the tensor, whose number it states. It is their only handle: `from_buffer`
        // takes no variable.
        unsafe impl<$($generics)*> KernelOutput<$stored> for $form {}
    )*};
}

/// A kernel receives numbers unchanged, and `bool`s as bytes. Each number type has one tensor type, so the compiler
/// infers the type of a lazy tensor from the declaration of the kernel.
macro_rules! inputs_and_outputs {
    ($([$($generics:tt)*] $ty:ty, $stored:ty;)*) => {$(
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for Tensor<$ty> {
            fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
                push_contiguous(self, Access::Read, arguments);
            }
        }
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for TensorViewMut<'_, $ty> {
            fn push_read<'a>(&'a self, arguments: &mut Arguments<'a>) {
                push_contiguous(self, Access::Read, arguments);
            }
        }
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for &Tensor<$ty> {}
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for TensorView<'_, $ty> {}
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for SharedTensor<$ty> {}
        // SAFETY: pushes the elements of the tensor, whose number it states.
        unsafe impl<$($generics)*> KernelInput<$stored> for &SharedTensor<$ty> {}

        outputs! {
            [$($generics)*] Tensor<$ty>, $stored;
            [$($generics)*] &mut Tensor<$ty>, $stored;
            [$($generics)*] TensorViewMut<'_, $ty>, $stored;
            [$($generics)*] Partition<Tensor<$ty>>, $stored;
            [$($generics)*] Partition<&mut Tensor<$ty>>, $stored;
            [$($generics)*] Partition<TensorViewMut<'_, $ty>>, $stored;
        }
    )*};
}

inputs_and_outputs! {
    [T: Number] T, T;
    [] bool, u8;
}

/// A tensor that a kernel of this crate reads from its first element on. The launch drops it.
pub(crate) struct Read<I>(pub(crate) I);

/// A tensor that a kernel of this crate reads from its first element on. The launch gives it back.
pub(crate) struct Returned<I>(pub(crate) I);

/// A tensor that a kernel of this crate writes from its first element on. The launch gives it back.
pub(crate) struct Written<O>(pub(crate) O);

/// The operands of `y = f(y, x)`. A kernel of this crate reads `y` and `x` and writes `y`: each thread writes the
/// elements that it has read. The launch gives `y` back.
pub(crate) struct InPlace<O, I>(pub(crate) O, pub(crate) I);

/// The operands of `y = f(y, number)`: `y`, no address of a number, and `y`. Each thread of a kernel of this crate
/// writes the elements that it has read. The launch gives `y` back.
pub(crate) struct InPlaceAlone<O>(pub(crate) O);

/// Adds the address of the first element.
fn push<'a, I: TensorInput>(tensor: &'a I, access: Access, arguments: &mut Arguments<'a>) {
    match tensor.memory() {
        Ok(memory) => arguments.part(memory, access),
        Err(error) => arguments.refuse(error.to_string()),
    };
}

impl<I: TensorInput> KernelArg for Read<I> {
    type GivenBack<Rest: BufferTuple> = Rest;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push(&self.0, Access::Read, arguments);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest {
        rest
    }
}

impl<I: TensorInput> KernelArg for Returned<I> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<I>;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push(&self.0, Access::Read, arguments);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<I> {
        rest.prepend(self.0)
    }
}

impl<O: TensorOutput> KernelArg for Written<O> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<O>;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push(&self.0, Access::Write, arguments);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<O> {
        rest.prepend(self.0)
    }
}

impl<O: TensorOutput, I: TensorInput> KernelArg for InPlace<O, I> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<O>;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push(&self.0, Access::Read, arguments);
        push(&self.1, Access::Read, arguments);
        push(&self.0, Access::Write, arguments);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<O> {
        rest.prepend(self.0)
    }
}

impl<O: TensorOutput> KernelArg for InPlaceAlone<O> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<O>;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        push(&self.0, Access::Read, arguments);
        arguments.value(&NO_ADDRESS);
        push(&self.0, Access::Write, arguments);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<O> {
        rest.prepend(self.0)
    }
}

/// The address of a number that is an argument and not in device memory.
pub(crate) const NO_ADDRESS: u64 = 0;

/// `StridedIndex` of `strided_index.cuh`: the offsets of the elements of `N` operands of one shape.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct StridedIndex<const N: usize> {
    n: u64,
    rank: u64,
    shape: [u64; MAX_RANK],
    strides: [[u64; MAX_RANK]; N],
}

// SAFETY: all fields are `u64`s or arrays of them, in C layout, so there is no padding and every bit pattern is valid.
unsafe impl<const N: usize> Zeroable for StridedIndex<N> {}
// SAFETY: all fields are `u64`s or arrays of them, in C layout, so there is no padding and every bit pattern is valid.
unsafe impl<const N: usize> Pod for StridedIndex<N> {}

impl<const N: usize> StridedIndex<N> {
    /// Returns the offsets for `shape` in row-major order. `strides` are those of the operands.
    pub(crate) fn new(shape: &[usize], strides: [&[usize]; N]) -> ByValue<Self> {
        let mut walk = Self::zeroed();
        walk.n = shape.iter().product::<usize>() as u64;
        for (dim, (size, of_operands)) in merge_dims(shape, strides).into_iter().enumerate() {
            walk.rank += 1;
            walk.shape[dim] = size as u64;
            for (operand, stride) in of_operands.into_iter().enumerate() {
                walk.strides[operand][dim] = stride as u64;
            }
        }
        ByValue(walk)
    }

    /// Returns the configuration for a kernel on operands of `T`. A thread loads `packs` packs at once, if there is one
    /// row or each row has whole packs.
    pub(crate) fn config<T: DType>(&self, packs: usize) -> LaunchConfig {
        let StridedIndex { n, rank, shape, .. } = *self;
        let lanes = (16 / size_of::<T::Stored>()) as u64;
        let has_packs = rank == 1 || (rank > 1 && shape[rank as usize - 1].is_multiple_of(lanes));
        // `n` was computed from a `usize`.
        if has_packs { vector_config::<T>(n as usize, packs) } else { element_config(n as usize) }
    }
}

/// The number of threads of a block.
const BLOCK_THREADS: usize = 256;

/// Returns the configuration for `n` elements of `T` in packs of 16 bytes. A thread loads `packs` packs at once;
/// `packs` is a power of two. A block has `BLOCK_THREADS / packs` threads, and takes [`BLOCK_THREADS`] packs in each
/// pass.
pub(crate) fn vector_config<T: DType>(n: usize, packs: usize) -> LaunchConfig {
    let threads = BLOCK_THREADS / packs;
    let block = BLOCK_THREADS * (16 / size_of::<T::Stored>());
    // The kernel reads elements that do not fill a block one by one. There are enough threads for one each.
    let blocks = n.div_ceil(block).max(n.min(block).div_ceil(threads));
    LaunchConfig::new(blocks.clamp(1, MAX_BLOCKS) as u32, threads as u32)
}

/// The maximum number of blocks of a launch. Larger tensors take several passes.
pub(crate) const MAX_BLOCKS: usize = 1 << 24;

/// Returns the configuration with a thread for each of `n` elements. Above 2^32 elements, each thread takes several.
pub(crate) fn element_config(n: usize) -> LaunchConfig {
    LaunchConfig::new(n.div_ceil(BLOCK_THREADS).clamp(1, MAX_BLOCKS) as u32, BLOCK_THREADS as u32)
}
