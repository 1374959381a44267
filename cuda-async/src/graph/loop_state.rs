//! `LoopState`: the device memory that each pass of a loop gives to the next.

use std::sync::Arc;

use cuda_core::{DeviceBuffer, Element, SharedSlice, protocol::Region};

use crate::memory::DeviceScalar;

/// Device memory that every pass of [`repeat_while`](crate::graph::repeat_while) takes and gives back: buffers,
/// scalars, and tuples and vectors of them. Host values are no loop state, because a loop on the device cannot change
/// them.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be handed from one pass of a loop to the next",
    note = "device memory can: `DeviceBuffer<T>`, `Arc<DeviceBuffer<T>>`, `DeviceScalar<T>`, and tuples and vectors of them; host values are the same in every pass, so capture them"
)]
pub trait LoopState: Send {
    /// Calls `each` with the position of every buffer.
    fn positions(&self, each: &mut dyn FnMut(Region));
}

macro_rules! buffers {
    ($($buffer:ty: $self:ident => $slice:expr;)*) => {$(
        impl<T: Element> LoopState for $buffer {
            fn positions(&$self, each: &mut dyn FnMut(Region)) {
                each($slice.region());
            }
        }
    )*};
}

buffers! {
    DeviceBuffer<T>: self => self.as_slice();
    &mut DeviceBuffer<T>: self => self.as_slice();
    Arc<DeviceBuffer<T>>: self => self.as_slice();
    SharedSlice<T>: self => self.as_slice();
    DeviceScalar<T>: self => self.as_slice();
}

impl<S: LoopState> LoopState for Vec<S> {
    fn positions(&self, each: &mut dyn FnMut(Region)) {
        self.iter().for_each(|it| it.positions(each));
    }
}

macro_rules! tuples {
    ($($($name:ident $index:tt)*;)*) => {$(
        impl<$($name: LoopState),*> LoopState for ($($name,)*) {
            #[allow(unused_variables)]
            fn positions(&self, each: &mut dyn FnMut(Region)) {
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
