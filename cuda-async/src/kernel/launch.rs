//! `launch`: runs a kernel, also one whose shape is known only when its arguments are ready.

use std::task::Context;

use cuda_core::{Arguments, Function, LaunchConfig, Result};

use crate::{
    context::{CreditWait, ExecutionContext},
    kernel::arguments::{BufferTuple, Buffers, KernelArgs},
    op::{Op, Submit, Submitted},
};

/// Runs a kernel. The output is the buffers among the arguments, each in the form in which it was given: a tuple, the
/// buffer itself if there is one, or `()`.
///
/// The number, the sizes and the kinds of the arguments are checked against the kernel's parameters at submission.
///
/// ```standalone_crate
/// use cuda_async::{launch, open_blocking, prelude::*};
/// const PTX: &str = include_str!("../../../kernels/vecadd.ptx"); // made by `nvcc -ptx vecadd.cu`
/// let device = open_blocking("cpu")?;
/// let vecadd = device.load_ptx_blocking(PTX)?.function("vecadd")?;
/// let op = zip!(h2d(vec![1.0f32; 100]), h2d(vec![2.0f32; 100]), zeros::<f32>(100)).then(move |(a, b, c)| {
///     // SAFETY: `vecadd(a, b, c, n)` reads a and b and writes c, all below n.
///     unsafe { launch(&vecadd, LaunchConfig::for_num_elems(100), (a, b, c, 100u32)) }
/// });
/// let sum = op.then(|(_, _, c)| to_host(c)).sync_on(&device.new_stream()?)?;
/// assert_eq!(sum, vec![3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Safety
/// - The kernel accesses only its buffer arguments and the variables of its module, inside their bounds.
/// - It does not write arguments given as `Arc`, by shared reference, as `Slice` or as `SharedSlice`, nor
///   `__constant__` variables. A CPU device with `Checks::read_only` reports such a write as a fault.
/// - Launches that overlap do not race on a variable. From the first call of
///   [`Module::variable`](crate::Module::variable) for a variable on, the library orders the launches that use it. It
///   never orders those of modules from cubins.
///
/// These rules hold for every run of the launch. For a recorded launch, they hold for every replay, with the contents
/// of the buffers at that time.
#[inline]
pub unsafe fn launch<A: KernelArgs>(
    function: &Function,
    config: LaunchConfig,
    args: A,
) -> Op<LaunchOp<A>> {
    // SAFETY: the kernel accesses only its buffer arguments and the variables of its module as this function requires,
    // and `LaunchOp::new` requires the same.
    Op::new(unsafe { LaunchOp::new(function.clone(), config, args, false) })
}

/// The steps of [`launch`].
#[derive(Clone)]
pub struct LaunchOp<A> {
    function: Function,
    config: LaunchConfig,
    args: A,
    credit: CreditWait,
    /// Whether the kernel is declared. Then the launch is refused if an argument has another name that the kernel may
    /// write through.
    is_declared: bool,
}

impl<A> LaunchOp<A> {
    /// Creates the steps of a launch.
    ///
    /// # Safety
    /// The requirements of [`launch`].
    #[inline]
    pub(super) unsafe fn new(
        function: Function,
        config: LaunchConfig,
        args: A,
        is_declared: bool,
    ) -> Self {
        Self { function, config, args, credit: CreditWait::new(), is_declared }
    }
}

/// Enqueues a launch.
///
/// # Safety
/// The requirements of [`launch`].
#[inline(always)]
unsafe fn enqueue<A: KernelArgs>(
    function: &Function,
    config: LaunchConfig,
    args: &A,
    is_declared: bool,
    cx: &ExecutionContext,
) -> Result<()> {
    cx.enqueue(|stream| {
        let mut arguments = Arguments::new();
        if is_declared {
            arguments.require_unaliased();
        }
        args.push_all(&mut arguments);
        // SAFETY: with these arguments, the kernel stays inside its buffers, writes none that it only reads, and does
        // not race on variables. `args` holds the buffers until the launch is enqueued. A buffer that is dropped
        // afterwards is freed behind the launch.
        unsafe { function.launch(stream, config, &arguments) }
    })
    .map(drop)
}

impl<A: KernelArgs> Submit for LaunchOp<A> {
    type Output = Buffers<A>;

    #[inline(always)] // so the operation is destructured where it was made, and never moved
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        let Self { function, config, args, mut credit, is_declared } = self;
        if !cx.waits().has_credit() && cx.poll_credit(&mut credit, task)?.is_pending() {
            return Ok(Submitted::Pending(Self { function, config, args, credit, is_declared }));
        }
        // SAFETY: `LaunchOp::new` is unsafe and requires that the kernel keeps the rules of `launch` with these
        // arguments.
        unsafe { enqueue(&function, config, &args, is_declared, cx) }?;
        Ok(Submitted::Ready(buffers(args)))
    }
}

/// The output of a launch.
#[inline(always)]
pub(super) fn buffers<A: KernelArgs>(args: A) -> Buffers<A> {
    args.give_back(()).bare()
}

/// The steps of [`launch_unless_empty`].
#[derive(Clone)]
pub struct Prepared<A>(State<A>);

#[derive(Clone)]
enum State<A> {
    Launch(LaunchOp<A>),
    /// There are no elements, so nothing runs.
    Empty(A),
}

/// Runs a declared kernel as [`launch`](crate::launch) does, and takes the function by value. The launch is refused if
/// an argument has another name that the kernel may write through.
///
/// # Safety
/// The requirements of [`launch`](crate::launch).
#[inline]
pub unsafe fn launch_given<A: KernelArgs>(
    function: Function,
    config: LaunchConfig,
    args: A,
) -> Op<LaunchOp<A>> {
    // SAFETY: the kernel keeps the rules of `launch` with these arguments, as this function requires.
    Op::new(unsafe { LaunchOp::new(function, config, args, true) })
}

/// Runs a declared kernel as [`launch_given`] does. If `config` is `None`, there are no elements: nothing is launched,
/// and the output is the buffers.
///
/// # Safety
/// The requirements of [`launch`](crate::launch).
#[inline]
pub unsafe fn launch_unless_empty<A: KernelArgs>(
    function: Function,
    config: Option<LaunchConfig>,
    args: A,
) -> Op<Prepared<A>> {
    Op::new(Prepared(match config {
        // SAFETY: the kernel keeps the rules of `launch` with these arguments, as this function requires.
        Some(config) => State::Launch(unsafe { LaunchOp::new(function, config, args, true) }),
        None => State::Empty(args),
    }))
}

impl<A: KernelArgs> Submit for Prepared<A> {
    type Output = Buffers<A>;

    #[inline(always)] // as for `LaunchOp`
    fn submit(self, task: &mut Context<'_>, cx: &ExecutionContext) -> Result<Submitted<Self>> {
        Ok(match self.0 {
            State::Launch(launch) => {
                launch.submit(task, cx)?.map_pending(|launch| Self(State::Launch(launch)))
            }
            State::Empty(args) => Submitted::Ready(buffers(args)),
        })
    }
}
