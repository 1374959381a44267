//! `LoopState`: the device memory that each pass of a loop gives to the next.

use std::sync::Arc;

use cuda_core::{DeviceBuffer, Element, SharedSlice, Slice, protocol::Region};
use smallvec::SmallVec;

use crate::memory::{DeviceScalar, ScalarMut};

/// The place and the shape of a buffer in the state of a loop. It is the same after each pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    region: Region,
    shape: SmallVec<[usize; 4]>,
    strides: SmallVec<[usize; 4]>,
}

impl Position {
    /// Returns the position of all elements of a slice.
    pub fn of_slice<T>(slice: Slice<'_, T>) -> Self {
        let len = slice.len();
        Self::of_view(slice, &[len], &[1])
    }

    /// Returns the position of a view that begins at the first element of a slice, with one size and one stride for
    /// each dimension.
    pub fn of_view<T>(slice: Slice<'_, T>, shape: &[usize], strides: &[usize]) -> Self {
        Self { region: slice.region(), shape: shape.into(), strides: strides.into() }
    }

    /// Returns the sizes of the dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
}

/// Device memory that every pass of [`repeat_while`](crate::graph::repeat_while) takes and gives back: buffers,
/// scalars, tensors, and tuples and vectors of them. Host values are not loop state, because a loop on the device
/// cannot change them.
///
/// A pass gives back the same memory with the same shape, and a view of a tensor as the same view. So a pass writes its
/// results into the state, for example with `TensorOps::memcpy` of `cuda-tensor`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed from one pass of a loop to the next",
    note = "device memory can: `DeviceBuffer<T>`, `Arc<DeviceBuffer<T>>`, `DeviceScalar<T>`, `Tensor<T>`, `SharedTensor<T>`, and tuples and vectors of them; host values are the same in every pass, so capture them"
)]
pub trait LoopState: Send {
    /// Calls `each` with the position of every buffer.
    fn positions(&self, each: &mut dyn FnMut(Position));
}

macro_rules! buffers {
    ($($buffer:ty: $self:ident => $slice:expr;)*) => {$(
        impl<T: Element> LoopState for $buffer {
            fn positions(&$self, each: &mut dyn FnMut(Position)) {
                each(Position::of_slice($slice));
            }
        }
    )*};
}

buffers! {
    DeviceBuffer<T>: self => self.as_slice();
    &mut DeviceBuffer<T>: self => self.as_slice();
    SharedSlice<T>: self => self.as_slice();
    DeviceScalar<T>: self => self.as_slice();
    ScalarMut<T>: self => self.scalar().as_slice();
}

impl<S: LoopState + Sync> LoopState for Arc<S> {
    fn positions(&self, each: &mut dyn FnMut(Position)) {
        S::positions(self, each);
    }
}

impl<S: LoopState> LoopState for Vec<S> {
    fn positions(&self, each: &mut dyn FnMut(Position)) {
        self.iter().for_each(|state| state.positions(each));
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt)*;)*) => {$(
        impl<$($name: LoopState),*> LoopState for ($($name,)*) {
            #[allow(unused_variables)]
            fn positions(&self, each: &mut dyn FnMut(Position)) {
                $(self.$index.positions(each);)*
            }
        }
    )*};
}

tuples! {
    ;
    A 0;
    A 0 B 1;
    A 0 B 1 C 2;
    A 0 B 1 C 2 D 3;
    A 0 B 1 C 2 D 3 E 4;
    A 0 B 1 C 2 D 3 E 4 F 5;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6;
    A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7;
}
