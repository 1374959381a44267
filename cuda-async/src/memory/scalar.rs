//! `DeviceScalar`: one value in device memory, and its operations.

use std::{
    sync::Arc,
    task::{Context, Poll, ready},
};

use cuda_core::{
    Device, DeviceBuffer, Element, Error, Pinning, Result, ScalarMemory, Slice, SliceMut,
};

use crate::{
    context::{CreditWait, ExecutionContext, MemoryWait},
    memory::{
        download::{ToHost, to_host},
        source::BufferTarget,
    },
    op::{Op, Submit, Submitted},
    ops::{DeviceOp, Mapped, TryMapOutput},
};

/// One value in device memory, at an address that does not change. Clones are the same value.
///
/// A kernel takes it as a pointer: `&DeviceScalar<T>` or a clone to read it, [`writable`](DeviceScalar::writable) to
/// write it. A declared kernel takes these for a parameter `&[T]` and `&mut [T]`. [`set`](DeviceScalar::set) takes a
/// shared handle, so the value can be set between launches of a graph. Each launch reads the value that was set last.
///
/// ```
/// use cuda_async::{memory::{DeviceScalar, copy}, prelude::*};
/// let x = DeviceScalar::new(1.5f32).sync()?;
/// let graph = zeros::<f32>(1).then(|y| copy(x.clone(), y)).map(|(_, y)| y).graph()?;
/// assert_eq!(graph.launch().then(to_host).sync()?, [1.5]);
/// graph.update(x.set(2.5))?;
/// assert_eq!(graph.launch().then(to_host).sync()?, [2.5]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
pub struct DeviceScalar<T>(ScalarMemory<T>);

impl<T: Element> DeviceScalar<T> {
    /// Allocates a scalar with a value.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or an error of the device.
    #[allow(clippy::new_ret_no_self)] // an operation gives it
    pub fn new(value: T) -> Op<NewScalar<T>> {
        let begins = State::Allocating(value, CreditWait::new(), MemoryWait::new());
        Op::new(NewScalar(begins))
    }

    /// Sets the value, after all earlier uses and before all later ones. A value of one, two or four bytes travels in
    /// the command. A larger one is uploaded.
    ///
    /// Inside a graph the value is part of the graph: every launch sets it again.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] on another device, or an error of the device.
    pub fn set(&self, value: T) -> Op<SetScalar<T>> {
        Op::new(SetScalar::new(self.clone(), value))
    }

    /// Reads the value. Waits, without blocking an executor thread, until the value has arrived.
    ///
    /// # Errors
    /// The errors of [`to_host`].
    pub fn read(&self) -> Op<ReadScalar<T>> {
        to_host(self.clone()).try_map(first as fn(Vec<T>) -> Result<T>)
    }

    /// Returns the scalar as memory to write: an argument that a kernel reads and writes, and a target of copies, fills
    /// and uploads.
    pub fn writable(&self) -> ScalarMut<T> {
        ScalarMut(self.clone())
    }

    /// Returns a slice of the value, for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        self.0.as_slice()
    }
}

impl<T> DeviceScalar<T> {
    /// Returns the device of the scalar.
    pub fn device(&self) -> &Device {
        self.0.device()
    }

    pub(crate) fn buffer(&self) -> &Arc<DeviceBuffer<T>> {
        self.0.buffer()
    }

    pub(crate) fn memory(&self) -> &ScalarMemory<T> {
        &self.0
    }
}

fn first<T: Element>(values: Vec<T>) -> Result<T> {
    values.first().copied().ok_or(Error::AlreadyEnded)
}

impl<T> Clone for DeviceScalar<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> std::fmt::Debug for DeviceScalar<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ty = std::any::type_name::<T>();
        write!(f, "DeviceScalar({ty} on {})", self.device().info().address)
    }
}

/// A scalar as memory of one element that operations write: an argument that a kernel reads and writes, and a
/// [`BufferTarget`]. An operation gives it back.
///
/// All handles of a scalar are the same memory. So a declared kernel that writes a scalar refuses it as another
/// argument.
///
/// ```
/// use cuda_async::{graph::{DeviceScalar, repeat_while}, memory::copy, prelude::*};
///
/// cuda_async::kernels! {
///     #[ptx = "../kernels/loops.ptx"]
///     unsafe struct Loops; // SAFETY: `count_down` reads and writes the first element of each buffer.
///
///     /// Decrements x, and writes the new value to `go`.
///     #[config(grid = 1, block = 1)]
///     safe fn count_down(go: &mut [u32], x: &mut [u32]) where go.len() > 0, x.len() > 0;
/// }
///
/// let loops = Loops::for_device(&cuda_async::default_device()?)?;
/// let go = DeviceScalar::new(1u32).sync()?;
/// let pass = |x| loops.count_down(go.writable(), x).map(|(_, x)| x);
/// let x = h2d([5u32]).then(|x| repeat_while(&go, x, pass)).then(to_host).sync()?;
/// assert_eq!(x, [0]);
///
/// let (_, go) = copy(h2d([7u32]).sync()?, go.writable()).sync()?;
/// assert_eq!(go.scalar().read().sync()?, 7);
/// # Ok::<(), cuda_async::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ScalarMut<T>(DeviceScalar<T>);

impl<T> ScalarMut<T> {
    /// Returns the scalar.
    pub fn scalar(&self) -> &DeviceScalar<T> {
        &self.0
    }

    pub(crate) fn buffer(&self) -> &Arc<DeviceBuffer<T>> {
        self.0.buffer()
    }
}

impl<T: Element> BufferTarget for ScalarMut<T> {
    type Element = T;

    fn as_slice_mut(&mut self) -> SliceMut<'_, T> {
        self.0.0.as_slice_mut()
    }
}

/// The steps of [`DeviceScalar::read`].
pub type ReadScalar<T> = Mapped<ToHost<DeviceScalar<T>>, TryMapOutput<fn(Vec<T>) -> Result<T>>>;

/// The steps of [`DeviceScalar::new`].
pub struct NewScalar<T: Element>(State<T>);

enum State<T: Element> {
    Allocating(T, CreditWait, MemoryWait),
    Setting(DeviceScalar<T>, SetScalar<T>),
}

impl<T: Element> Submit for NewScalar<T> {
    type Output = DeviceScalar<T>;

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let (scalar, set) = match self.0 {
            State::Allocating(value, mut credit, mut wait) => {
                let Poll::Ready(memory) = allocate(&mut credit, &mut wait, task, cx)? else {
                    return Ok(Submitted::Pending(Self(State::Allocating(value, credit, wait))));
                };
                let scalar = DeviceScalar(memory);
                let set = SetScalar::new(scalar.clone(), value);
                (scalar, set)
            }
            State::Setting(scalar, set) => (scalar, set),
        };
        Ok(match set.submit(task, cx)? {
            Submitted::Ready(()) => Submitted::Ready(scalar),
            Submitted::Pending(set) => Submitted::Pending(Self(State::Setting(scalar, set))),
        })
    }
}

fn allocate<T: Element>(
    credit: &mut CreditWait,
    wait: &mut MemoryWait,
    task: &mut Context<'_>,
    cx: &ExecutionContext,
) -> Poll<Result<ScalarMemory<T>>> {
    ready!(cx.poll_credit(credit, task))?;
    cx.waits().poll_allocation(wait, task, ScalarMemory::uninitialized)
}

/// The steps of [`DeviceScalar::set`].
pub struct SetScalar<T: Element> {
    scalar: DeviceScalar<T>,
    value: T,
    credit: CreditWait,
    pinning: Option<Pinning<T>>,
}

impl<T: Element> SetScalar<T> {
    fn new(scalar: DeviceScalar<T>, value: T) -> Self {
        Self { scalar, value, credit: CreditWait::new(), pinning: None }
    }
}

impl<T: Element> Submit for SetScalar<T> {
    type Output = ();

    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Submitted::poll(self, |steps| steps.poll(task, cx))
    }
}

impl<T: Element> SetScalar<T> {
    fn poll(&mut self, task: &mut Context<'_>, cx: &ExecutionContext) -> Poll<Result<()>> {
        ready!(cx.poll_credit(&mut self.credit, task))?;
        let (DeviceScalar(memory), value) = (&self.scalar, self.value);
        if cx.enqueue(|stream| memory.set(stream, value).transpose())?.is_none() {
            let mut host = ready!(cx.waits().poll_pinned(&mut self.pinning, 1, task))?;
            host.fill(value);
            cx.enqueue(|stream| memory.upload(stream, host))?;
        }
        Poll::Ready(Ok(()))
    }
}
