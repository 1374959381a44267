//! Tensors as arguments of kernels.

use bytemuck::{Pod, Zeroable};
use cuda_async::kernel::{BufferTuple, ByValue, KernelArg};
use cuda_core::{Access, Arguments, LaunchConfig};

use crate::{
    element::dtype::DType,
    forms::{TensorInput, TensorOutput},
    shape::{layout::merge_dims, shape::MAX_RANK},
};

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
pub(crate) fn push<'a, I: TensorInput>(
    tensor: &'a I,
    access: Access,
    arguments: &mut Arguments<'a>,
) {
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
}

impl<const N: usize> StridedIndex<N> {
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
pub(crate) const BLOCK_THREADS: usize = 256;

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
