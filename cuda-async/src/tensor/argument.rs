//! Tensors as arguments of kernels.

use bytemuck::{Pod, Zeroable};
use cuda_core::{Access, Arguments, LaunchConfig};

use crate::{
    kernel::{BufferTuple, ByValue, KernelArg},
    tensor::{
        dtype::DType,
        forms::{TensorInput, TensorOutput},
        layout::merged,
        shape::MAX_RANK,
    },
};

/// A tensor that a kernel of this crate reads from its first element on. The launch drops it.
pub(super) struct Read<I>(pub(super) I);

/// A tensor that a kernel of this crate reads from its first element on. The launch gives it back.
pub(super) struct Kept<I>(pub(super) I);

/// A tensor that a kernel of this crate writes from its first element on. The launch gives it back.
pub(super) struct Written<O>(pub(super) O);

impl<I: TensorInput> KernelArg for Read<I> {
    type GivenBack<Rest: BufferTuple> = Rest;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.part(self.0.memory(), Access::Read);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest {
        rest
    }
}

impl<I: TensorInput> KernelArg for Kept<I> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<I>;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.part(self.0.memory(), Access::Read);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<I> {
        rest.prepend(self.0)
    }
}

impl<O: TensorOutput> KernelArg for Written<O> {
    type GivenBack<Rest: BufferTuple> = Rest::Prepend<O>;

    fn push<'a>(&'a self, arguments: &mut Arguments<'a>) {
        arguments.part(self.0.memory(), Access::Write);
    }

    fn give_back<Rest: BufferTuple>(self, rest: Rest) -> Rest::Prepend<O> {
        rest.prepend(self.0)
    }
}

/// `Walk` of `walk.cuh`: the positions of the elements of `N` operands of one shape.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Walk<const N: usize> {
    n: u64,
    rank: u64,
    shape: [u64; MAX_RANK],
    strides: [[u64; MAX_RANK]; N],
}

// SAFETY: all fields are `u64`s or arrays of them, in C layout, so there is no padding and every bit pattern is valid.
unsafe impl<const N: usize> Zeroable for Walk<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Pod for Walk<N> {}

impl<const N: usize> Walk<N> {
    /// The walk over `shape` in row-major order. `strides` are those of the operands.
    pub(super) fn new(shape: &[usize], strides: [&[usize]; N]) -> ByValue<Self> {
        let mut walk = Self::zeroed();
        walk.n = shape.iter().product::<usize>() as u64;
        for (dim, (size, of_operands)) in merged(shape, strides).into_iter().enumerate() {
            walk.rank += 1;
            walk.shape[dim] = size as u64;
            for (operand, stride) in of_operands.into_iter().enumerate() {
                walk.strides[operand][dim] = stride as u64;
            }
        }
        ByValue(walk)
    }
}

/// The threads of a block.
pub(super) const BLOCK: usize = 256;

/// Threads for `n` elements of `T` that are read in packs of 16 bytes.
pub(super) fn for_packs<T: DType>(n: usize) -> LaunchConfig {
    for_elements(n.div_ceil(16 / size_of::<T::Stored>()))
}

/// Threads for `n` elements. Each takes several if there are very many.
pub(super) fn for_elements(n: usize) -> LaunchConfig {
    LaunchConfig::new(n.div_ceil(BLOCK).clamp(1, 1 << 24) as u32, BLOCK as u32)
}
