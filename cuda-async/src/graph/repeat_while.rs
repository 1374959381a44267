//! `repeat_while`: a loop that decides on a value in device memory, and `LoopState`, the device memory that each pass
//! gives to the next.

use std::{sync::Arc, task::Context};

use cuda_core::{
    DeviceBuffer, Element, Error, Misuse, Result, SharedSlice, Slice, internals::Recording,
    protocol::Region,
};
use smallvec::SmallVec;

use crate::{
    context::ExecutionContext,
    memory::{DeviceScalar, ScalarMut, ToHost, to_host},
    op::{IntoDeviceOp, Op, Submit, Submitted},
    run::blocking,
};

/// Repeats an operation while a value in device memory is not 0. The value is read before each pass, and the operation
/// writes it.
///
/// `body` makes the operation of a pass from the memory in `state`, and the operation gives the same memory back.
/// Inside a graph the loop is a node: `body` is called once, and the device repeats its work without the host, also
/// over a lease. Outside a graph the host reads the value before each pass, without blocking an executor thread, and
/// calls `body` for each pass. So `body` has to make the same operation in every pass.
///
/// ```standalone_crate
/// use cuda_async::{graph::{DeviceScalar, repeat_while}, prelude::*};
/// let go = DeviceScalar::new(1u32).sync()?;
/// let ptx = include_str!("../../../kernels/loops.ptx");
/// let count_down = cuda_async::default_device()?.load_ptx_blocking(ptx)?.function("count_down")?;
/// let x = h2d([5u32]).sync()?;
/// let op = repeat_while(&go, x, |x| {
///     // SAFETY: count_down(go, x) decrements x, of one element, and writes the new value to go.
///     unsafe { launch(&count_down, LaunchConfig::new(1, 1), (go.writable(), x)) }.map(|(_, x)| x)
/// });
/// assert_eq!(op.then(to_host).sync()?, [0]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Errors
/// [`Error::Misuse`] if a pass gives other memory back than it took, or a tensor of another shape.
/// [`Error::NeedsHostData`] in [`async_on`](crate::DeviceOp::async_on) outside a graph. Inside a graph
/// [`Error::Unsupported`] on a device without loops. Otherwise the error of a step.
pub fn repeat_while<S, F, O>(
    condition: &DeviceScalar<u32>,
    state: S,
    body: F,
) -> Op<RepeatWhile<S, F, O::Steps>>
where
    S: LoopState,
    F: FnMut(S) -> O + Send,
    O: IntoDeviceOp<Output = S>,
{
    let next = Next::Read(state, to_host(condition.clone()).into_steps());
    Op::new(RepeatWhile { condition: condition.clone(), body, next })
}

/// The steps of [`repeat_while`].
pub struct RepeatWhile<S, F, P> {
    condition: DeviceScalar<u32>,
    body: F,
    next: Next<S, P>,
}

enum Next<S, P> {
    /// Reads the condition.
    Read(S, ToHost<DeviceScalar<u32>>),
    /// Runs a pass. The positions are those of the state that it took.
    Run(P, Vec<Position>),
}

fn positions<S: LoopState>(state: &S) -> Vec<Position> {
    let mut positions = Vec::new();
    state.positions(&mut |position| positions.push(position));
    positions
}

impl<S, F, O, P> Submit for RepeatWhile<S, F, P>
where
    S: LoopState,
    F: FnMut(S) -> O + Send,
    O: IntoDeviceOp<Output = S, Steps = P>,
    P: Submit<Output = S>,
{
    type Output = S;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        if cx.is_recording() {
            return self.record(cx).map(Submitted::Ready);
        }
        let Self { condition, mut body, mut next } = self;
        loop {
            next = match next {
                Next::Read(state, read) => match read.submit(task, cx)? {
                    Submitted::Ready(value) if value == [0] => return Ok(Submitted::Ready(state)),
                    Submitted::Ready(_) => {
                        let taken = positions(&state);
                        Next::Run(body(state).into_op().into_steps(), taken)
                    }
                    Submitted::Pending(read) => {
                        let next = Next::Read(state, read);
                        return Ok(Submitted::Pending(Self { condition, body, next }));
                    }
                },
                Next::Run(pass, taken) => match pass.submit(task, cx)? {
                    Submitted::Ready(state) => {
                        check(&taken, &positions(&state))?;
                        Next::Read(state, to_host(condition.clone()).into_steps())
                    }
                    Submitted::Pending(pass) => {
                        let next = Next::Run(pass, taken);
                        return Ok(Submitted::Pending(Self { condition, body, next }));
                    }
                },
            };
        }
    }
}

impl<S, F, O, P> RepeatWhile<S, F, P>
where
    S: LoopState,
    F: FnMut(S) -> O + Send,
    O: IntoDeviceOp<Output = S, Steps = P>,
    P: Submit<Output = S>,
{
    /// Records the loop as a node.
    fn record(mut self, cx: &ExecutionContext) -> Result<S> {
        let Next::Read(state, _) = self.next else { return Err(Error::AlreadyEnded) };
        let stream = cx.enqueue(Recording::start_body)?;
        let taken = positions(&state);
        let pass = (self.body)(state).into_op().into_steps();
        let state = blocking::submit_only(pass, stream.clone())?;
        check(&taken, &positions(&state))?;
        let body = Recording::end(&stream)?;
        cx.enqueue(|stream| body.record_repeat(stream, self.condition.memory()))?;
        Ok(state)
    }
}

/// Checks that a pass gave back what it took.
fn check(taken: &[Position], given: &[Position]) -> Result<()> {
    if taken == given {
        return Ok(());
    }
    let other_shape = taken.iter().zip(given).find(|(taken, given)| taken.shape() != given.shape());
    Err(Error::Misuse(other_shape.map_or(Misuse::LoopMemory, |(taken, given)| Misuse::LoopShape {
        taken: taken.shape().into(),
        given: given.shape().into(),
    })))
}

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
