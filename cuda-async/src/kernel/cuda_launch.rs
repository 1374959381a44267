//! `cuda_launch!` and `cuda_launch_async!`: launches with named arguments.

use cuda_core::{Arguments, Function, LaunchConfig, Module, Result, Stream};

use crate::kernel::arguments::KernelArgs;

/// Launches a kernel of a module on a stream at once, and returns when the launch is enqueued.
///
/// ```standalone_crate
/// use cuda_async::{cuda_launch, open_blocking, prelude::*};
/// # const PTX: &str = include_str!("../../../kernels/vecadd.ptx");
/// let device = open_blocking("cpu")?;
/// let (module, stream) = (device.load_ptx_blocking(PTX)?, device.new_stream()?);
/// let a = h2d(vec![1.0f32; 100]).sync_on(&stream)?;
/// let b = h2d(vec![2.0f32; 100]).sync_on(&stream)?;
/// let mut c = zeros::<f32>(100).sync_on(&stream)?;
/// // SAFETY: `vecadd(a, b, c, n)` reads a and b and writes c, all below n.
/// unsafe {
///     cuda_launch! {
///         kernel: vecadd,
///         stream: stream,
///         module: module,
///         config: LaunchConfig::for_num_elems(100),
///         args: [slice(a), slice(b), slice_mut(c), 100u32]
///     }
/// }?;
/// assert_eq!(to_host(c).sync_on(&stream)?, [3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// The keys are those of NVIDIA's `cuda-oxide`, in this order:
/// - `kernel`: the name, as an identifier, a path (its last segment) or a string. Without the key `module`, an
///   expression of type [`Function`](crate::Function).
/// - `stream`: a [`Stream`](crate::Stream). `module`: a [`Module`](crate::Module). `config`: a
///   [`LaunchConfig`](crate::LaunchConfig).
/// - `cluster_dim`: the blocks of a cluster, as `(x, y, z)`; see
///   [`LaunchConfig::cluster`](crate::LaunchConfig::cluster). May be omitted.
/// - `cooperative`: whether all blocks run at the same time; see
///   [`LaunchConfig::cooperative`](crate::LaunchConfig::cooperative). May be omitted.
/// - `args`: in the order of the kernel's parameters. `slice(x)` borrows a buffer that the kernel reads, `slice_mut(x)`
///   one that it writes. Any other expression is a [`KernelArg`](crate::kernel::KernelArg). Write `slice_mut(*x)` if
///   `x` is itself an exclusive borrow of a buffer, and `&x` or `&mut x` for a tensor.
///
/// A slice passes its address alone. Kernels that `cuda-oxide` compiles also take its length: write `slice(x),
/// x.len()`.
///
/// The value is a `Result<()>`. The launch runs after earlier uses of the buffers, on any stream, and later uses run
/// after the launch.
///
/// # Errors
/// [`Error::NoSuchKernel`](crate::Error::NoSuchKernel), or an error of the launch.
///
/// # Safety
/// The requirements of [`launch`](crate::launch()). The macro calls an `unsafe` function, so it must stand in an
/// `unsafe` block.
#[macro_export]
macro_rules! cuda_launch {
    (kernel: $kernel:ident $(:: $part:ident)*, stream: $stream:expr, module: $module:expr, config: $config:expr, $(cluster_dim: $cluster:expr,)? $(cooperative: $cooperative:expr,)? args: [$($args:tt)*] $(,)?) => {
        $crate::kernel::launch_named(
            &$module, stringify!($kernel $(:: $part)*), &$stream, $crate::__launch_config!($config $(, cluster $cluster)? $(, cooperative $cooperative)?), &$crate::__launch_args!(borrowed $($args)*),
        )
    };
    (kernel: $kernel:literal, stream: $stream:expr, module: $module:expr, config: $config:expr, $(cluster_dim: $cluster:expr,)? $(cooperative: $cooperative:expr,)? args: [$($args:tt)*] $(,)?) => {
        $crate::kernel::launch_named(
            &$module, $kernel, &$stream, $crate::__launch_config!($config $(, cluster $cluster)? $(, cooperative $cooperative)?), &$crate::__launch_args!(borrowed $($args)*),
        )
    };
    (kernel: $kernel:expr, stream: $stream:expr, config: $config:expr, $(cluster_dim: $cluster:expr,)? $(cooperative: $cooperative:expr,)? args: [$($args:tt)*] $(,)?) => {
        $crate::kernel::launch_on(
            &$kernel, &$stream, $crate::__launch_config!($config $(, cluster $cluster)? $(, cooperative $cooperative)?), &$crate::__launch_args!(borrowed $($args)*),
        )
    };
}

/// Returns an operation that launches a kernel of a module. It is [`cuda_launch!`](crate::cuda_launch) without a
/// stream: nothing happens until the operation runs.
///
/// ```standalone_crate
/// use cuda_async::{cuda_launch_async, open_blocking, prelude::*};
/// # const PTX: &str = include_str!("../../../kernels/vecadd.ptx");
/// # let device = open_blocking("cpu")?;
/// let module = device.load_ptx_blocking(PTX)?;
/// let op = zip!(h2d(vec![1.0f32; 100]), h2d(vec![2.0f32; 100]), zeros::<f32>(100)).then(move |(a, b, c)| {
///     // SAFETY: `vecadd(a, b, c, n)` reads a and b and writes c, all below n.
///     unsafe {
///         cuda_launch_async! {
///             kernel: vecadd,
///             module: module,
///             config: LaunchConfig::for_num_elems(100),
///             args: [slice(a), slice(b), slice_mut(c), 100u32]
///         }
///     }
/// });
/// let sum = op.then(|(_a, _b, c)| to_host(c)).sync_on(&device.new_stream()?)?;
/// assert_eq!(sum, [3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// The keys are those of [`cuda_launch!`](crate::cuda_launch). `slice(x)` takes a
/// [`KernelInput`](crate::kernel::KernelInput) and `slice_mut(x)` a [`KernelOutput`](crate::kernel::KernelOutput), in
/// any form: write `slice(&x)` to borrow. The output is the buffers, each in the form in which it was given, as for
/// [`launch`](crate::launch()). A missing kernel is an error of the operation.
///
/// # Safety
/// The requirements of [`cuda_launch!`](crate::cuda_launch).
#[macro_export]
macro_rules! cuda_launch_async {
    (kernel: $kernel:ident $(:: $part:ident)*, module: $module:expr, config: $config:expr, $(cluster_dim: $cluster:expr,)? $(cooperative: $cooperative:expr,)? args: [$($args:tt)*] $(,)?) => {
        $crate::__launch_async!(
            $crate::kernel::named(&$module, stringify!($kernel $(:: $part)*));
            $crate::__launch_config!($config $(, cluster $cluster)? $(, cooperative $cooperative)?); $($args)*
        )
    };
    (kernel: $kernel:literal, module: $module:expr, config: $config:expr, $(cluster_dim: $cluster:expr,)? $(cooperative: $cooperative:expr,)? args: [$($args:tt)*] $(,)?) => {
        $crate::__launch_async!($crate::kernel::named(&$module, $kernel); $crate::__launch_config!($config $(, cluster $cluster)? $(, cooperative $cooperative)?); $($args)*)
    };
    (kernel: $kernel:expr, config: $config:expr, $(cluster_dim: $cluster:expr,)? $(cooperative: $cooperative:expr,)? args: [$($args:tt)*] $(,)?) => {
        $crate::launch(&$kernel, $crate::__launch_config!($config $(, cluster $cluster)? $(, cooperative $cooperative)?), $crate::__launch_args!(owned $($args)*))
    };
}

/// The operation of [`cuda_launch_async!`](crate::cuda_launch_async) with a module.
#[doc(hidden)]
#[macro_export]
macro_rules! __launch_async {
    ($function:expr; $config:expr; $($args:tt)*) => {
        // No closure: arguments may use `?`.
        $crate::op::IntoDeviceOp::into_op(match $function {
            ::core::result::Result::Ok(function) => ::core::result::Result::Ok(
                $crate::launch(&function, $config, $crate::__launch_args!(owned $($args)*)),
            ),
            ::core::result::Result::Err(error) => ::core::result::Result::Err(error),
        })
    };
}

/// The configuration of a launch with the keys behind `config`.
#[doc(hidden)]
#[macro_export]
macro_rules! __launch_config {
    ($config:expr $(, cluster $cluster:expr)? $(, cooperative $cooperative:expr)?) => {{
        let config: $crate::LaunchConfig = $config;
        $(let config = $crate::kernel::with_cluster(config, $cluster);)?
        $(let config = if $cooperative { config.cooperative() } else { config };)?
        config
    }};
}

/// The arguments of a launch, as nested pairs of an argument and the group of the remaining arguments.
#[doc(hidden)]
#[macro_export]
macro_rules! __launch_args {
    ($form:ident) => { () };
    (borrowed slice($buffer:expr) $(, $($rest:tt)*)?) => {
        ($crate::memory::BufferSource::as_slice(&$buffer), $crate::kernel::Group($crate::__launch_args!(borrowed $($($rest)*)?)))
    };
    (borrowed slice_mut($buffer:expr) $(, $($rest:tt)*)?) => {
        ($crate::memory::BufferTarget::as_slice_mut(&mut $buffer), $crate::kernel::Group($crate::__launch_args!(borrowed $($($rest)*)?)))
    };
    (owned slice($buffer:expr) $(, $($rest:tt)*)?) => {
        ($crate::kernel::Reads::new($buffer), $crate::kernel::Group($crate::__launch_args!(owned $($($rest)*)?)))
    };
    (owned slice_mut($buffer:expr) $(, $($rest:tt)*)?) => {
        ($crate::kernel::writes($buffer), $crate::kernel::Group($crate::__launch_args!(owned $($($rest)*)?)))
    };
    ($form:ident $value:expr $(, $($rest:tt)*)?) => {
        ($value, $crate::kernel::Group($crate::__launch_args!($form $($($rest)*)?)))
    };
}

/// Adds a cluster to a configuration, for the key `cluster_dim` of [`cuda_launch!`](crate::cuda_launch).
pub fn with_cluster(config: LaunchConfig, (x, y, z): (u32, u32, u32)) -> LaunchConfig {
    config.cluster(x, y, z)
}

/// Finds a kernel by its name, or by a path that ends with its name.
///
/// # Errors
/// The errors of [`Module::function`].
pub fn named(module: &Module, path: &str) -> Result<Function> {
    // `stringify!` may put spaces around `::`. A raw identifier such as `r#where` names `where`.
    let name = path.rsplit("::").next().unwrap_or(path).trim();
    module.function(name.strip_prefix("r#").unwrap_or(name))
}

/// Launches a kernel of a module on a stream, for [`cuda_launch!`](crate::cuda_launch).
///
/// # Errors
/// The errors of [`named`] and [`launch_on`].
///
/// # Safety
/// The requirements of [`launch`](crate::launch()).
pub unsafe fn launch_named<A: KernelArgs>(
    module: &Module,
    path: &str,
    stream: &Stream,
    config: LaunchConfig,
    args: &A,
) -> Result<()> {
    // SAFETY: the kernel of this name keeps the rules of `launch` with these arguments, as this function requires.
    unsafe { launch_on(&named(module, path)?, stream, config, args) }
}

/// Launches a kernel on a stream, for [`cuda_launch!`](crate::cuda_launch).
///
/// # Errors
/// An error of the launch.
///
/// # Safety
/// The requirements of [`launch`](crate::launch()).
pub unsafe fn launch_on<A: KernelArgs>(
    function: &Function,
    stream: &Stream,
    config: LaunchConfig,
    args: &A,
) -> Result<()> {
    let mut arguments = Arguments::new();
    args.push_all(&mut arguments);
    // SAFETY: the kernel keeps the rules of `launch` with these arguments, as this function requires. `args` holds the
    // buffers until the launch is enqueued.
    unsafe { function.launch(stream, config, &arguments) }.map(drop)
}
