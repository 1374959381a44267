//! `kernels!`: the documentation of the macro.

/// Declares the kernels of a PTX file as a struct that is loaded onto a device, with one launch method for each kernel. The
/// declaration is checked against the PTX **at compile time**.
///
/// ```
/// use cuda_async::{LaunchConfig, open, prelude::*};
///
/// cuda_async::kernels! {
///     /// Kernels on vectors.
///     #[ptx = "../kernels/vecadd.ptx"]
///     pub struct Vectors;
///
///     /// `c[i] = a[i] + b[i]` for each `i < n`.
///     ///
///     /// # Safety
///     /// The buffers have at least `n` elements.
///     unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
/// }
///
/// let device = open("cpu")?;
/// let vectors = Vectors::load(&device)?;
/// let op = zip!(h2d(vec![1.0f32; 100]), h2d(vec![2.0f32; 100]), zeros(100)).then(move |(a, b, c)| {
///     // SAFETY: each has 100 elements.
///     unsafe { vectors.vecadd(LaunchConfig::for_num_elems(100), a, b, c, 100) }
/// });
/// let sum = op.then(|(_, _, c)| to_host(c)).sync_on(&device.new_stream()?)?;
/// assert_eq!(sum, [3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # The struct
/// `#[ptx = ".."]` names the file: relative to the folder of the package's Cargo.toml, absolute, or `$OUT_DIR/..` for a
/// file that a build script made. The package is built again when the file changes. Other attributes and comments are kept.
///
/// The struct is `Clone` and `Debug`, and has
/// - `load(&Device) -> Result<Self>`,
/// - `for_device(&Device) -> Result<Self>`, which loads once for each device (see [`ModuleCache`](crate::kernel::ModuleCache)),
/// - `loaded()`, an operation that does the same on its device and blocks no executor thread,
/// - the text as `PTX: &str`.
///
/// # The kernels
/// A kernel is found by its name. `#[entry = "_Z5scalePfj"]` gives another name, for example one that a C++ compiler made
/// without `extern "C"`. The method takes a [`LaunchConfig`](crate::LaunchConfig) and the arguments, and returns a lazy
/// [`DeviceOp`](crate::DeviceOp). Its output holds the buffers, without the values, each in the form in which it was
/// given: a tuple, a single buffer, or `()`.
///
/// | declared | given | the PTX has |
/// |---|---|---|
/// | `&[T]` | [`KernelInput<T>`](crate::kernel::KernelInput): a buffer, an `Arc` or a borrow of it | `.u64`, `.b64`, a struct of 8 bytes |
/// | `&mut [T]` | [`KernelOutput<T>`](crate::kernel::KernelOutput): a buffer or an exclusive borrow of it | the same |
/// | an integer | itself | an integer of that size, signed or not; `.b32`; a struct of that size |
/// | `f32`, `f64`, `f16`, `bf16` | itself | the same; `.b32`; a struct of that size |
/// | `bool` | itself | an integer of one byte |
/// | any other type that is [`Pod`](crate::Element) | itself | anything of that size: structs by value |
///
/// A method is public unless the declaration has another visibility, like `pub(crate)`, before `unsafe fn`.
///
/// # Safety
/// The macro checks the types. It does not check the kernel's accesses: the caller is responsible for sizes, indices and
/// the launch shape. State the requirements in a `# Safety` section. Without one, the macro writes a general one.
///
/// If a kernel is sound *with any arguments and in any launch*, its author may state that once, as in an `unsafe extern`
/// block: `unsafe struct` is a promise for every `safe fn` below it, and those need no `unsafe` to launch.
///
/// ```
/// # use cuda_async::{LaunchConfig, prelude::*};
/// cuda_async::kernels! {
///     #[ptx = "../kernels/basic.ptx"]
///     pub unsafe struct Basic; // SAFETY: `empty` accesses no memory.
///
///     safe fn empty();
/// }
/// let device = cuda_async::open("cpu")?;
/// Basic::load(&device)?.empty(LaunchConfig::new(1, 32)).sync_on(&device.new_stream()?)?;
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Mistakes
/// A missing file, a missing kernel, a wrong number of parameters, and an argument of another size or kind are compile
/// errors. They name the parameter in the PTX:
///
/// ```text
/// error: parameter 3 of kernel `vecadd` is `.u32` in the PTX (4 bytes), but `n: u64` has 8 bytes
///  --> src/main.rs:8:61
///   |
/// 8 |     unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u64);
///   |                                                           ^^^^^^
/// ```
pub use cuda_async_macros::kernels;
