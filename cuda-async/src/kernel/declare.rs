//! `kernels!`: the documentation of the macro.

/// Declares the kernels of a PTX file or a CUDA source as a struct that is loaded onto a device, with one launch method
/// for each kernel. The declaration is checked against the PTX **at compile time**.
///
/// ```
/// use cuda_async::{open_blocking, prelude::*};
///
/// cuda_async::kernels! {
///     /// Kernels on vectors.
///     #[ptx = "../kernels/saxpy.ptx"]
///     pub unsafe struct Vectors; // SAFETY: `saxpy` stays below n, which is the length of both buffers.
///
///     /// y = a x + y
///     #[elements(n)]
///     safe fn saxpy(x: &[f32], y: &mut [f32], a: f32, n: u32 = y.len())
///     where x.len() == y.len();
/// }
///
/// let device = open_blocking("cpu")?;
/// let vectors = Vectors::load(&device)?;
/// let (_x, y) = vectors.saxpy(h2d(vec![1.0; 100]), zeros(100), 3.0).sync_on(&device.new_stream()?)?;
/// # assert_eq!(to_host(y).sync_on(&device.new_stream()?)?, [3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// The caller passes neither `n` nor the launch shape, and needs no `unsafe`: the launcher computes both and checks the
/// condition. A kernel whose caller passes everything looks as follows:
///
/// ```
/// use cuda_async::{LaunchConfig, open_blocking, prelude::*};
///
/// cuda_async::kernels! {
///     #[ptx = "../kernels/vecadd.ptx"]
///     pub struct Sums;
///
///     /// `c[i] = a[i] + b[i]` for each `i < n`.
///     ///
///     /// # Safety
///     /// The buffers have at least `n` elements.
///     unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u32);
/// }
///
/// let device = open_blocking("cpu")?;
/// let sums = Sums::load(&device)?;
/// // SAFETY: each has 100 elements.
/// let op = unsafe {
///     sums.vecadd(LaunchConfig::for_num_elems(100), h2d(vec![1.0; 100]), h2d(vec![2.0; 100]), zeros(100), 100)
/// };
/// let sum = op.then(|(_, _, c)| to_host(c)).sync_on(&device.new_stream()?)?;
/// assert_eq!(sum, [3.0; 100]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # The struct
/// `#[ptx = ".."]` names the file: relative to the folder of the package's Cargo.toml, absolute, or `$OUT_DIR/..` for a
/// file that a build script made. The package is built again when the file changes. Other attributes and comments are
/// kept.
///
/// The struct is `Clone` and `Debug`, and has
/// - `load(&Device) -> Result<Self>`,
/// - `for_device(&Device) -> Result<Self>`, which loads once for each device (see
///   [`ModuleCache`](crate::kernel::ModuleCache)),
/// - `loaded()`, an operation that gives the struct for its device and blocks no executor thread,
/// - `warm_up(&[Device]) -> Result<()>`, which loads on several devices at the same time,
/// - the text as `PTX: &str`, or for a CUDA source `SOURCE:` [`CudaSource`](crate::kernel::CudaSource).
///
/// # CUDA sources
/// `#[cuda = "kernels/saxpy.cu"]` names CUDA C in the place of PTX, and `#[nvrtc("--fmad=false", "-DN=4",
/// "-Iinclude")]` options of the compiler. The default target is `compute_75`.
///
/// 1. If NVRTC is installed where the program is built, it compiles the source then, and mistakes are compile errors
///    with the lines of the source. See [`nvrtc::Nvrtc::find`](cuda_nvrtc::Nvrtc::find) for where it is looked for.
/// 2. Otherwise the macro takes `kernels/saxpy.ptx`, beside the source. The program `cuda-nvrtc` writes that file, with
///    a digest of the source, its headers and the options. A file with another digest is a compile error.
/// 3. Otherwise the program compiles the source when it first loads the kernels, keeps the result in a cache on disk,
///    and compares it with the declaration. [`compile`](crate::kernel::compile()) states the errors.
///
/// The package is built again when the source or a header between quotes changes, but not when NVRTC is installed.
///
/// For a CUDA source, and for PTX with mangled names, the element types are checked too: `&[f64]` for a `const float *`
/// is an error. So is `&[f32]` for a `float *`, because the kernel may write it.
///
/// # Machine code
/// `#[cubin(sm_80 = "k80.cubin", sm_90 = "k90.cubin")]` and `#[fatbin = "k.fatbin"]` add machine code of the same
/// source to `#[ptx = ".."]`. A GPU loads the image that fits it, and compiles nothing. Other GPUs and the CPU device
/// load the PTX. The struct must be `unsafe`: its author promises what [`Image`](crate::kernel::Image) requires.
///
/// # The kernels
/// A kernel is found by its name. `#[entry = "_Z5scalePfj"]` gives another name, for example one that a C++ compiler
/// made without `extern "C"`. The method takes a [`LaunchConfig`](crate::LaunchConfig) and the arguments, and returns a
/// lazy [`DeviceOp`](crate::DeviceOp). Its output holds the buffers, without the values, each in the form in which it
/// was given: a tuple, a single buffer, or `()`.
///
/// | declared | given | the PTX has |
/// |---|---|---|
/// | `&[T]` | [`KernelInput<T>`](crate::kernel::KernelInput): a buffer, an `Arc` or a borrow of it | `.u64`, `.b64`, a struct of 8 bytes |
/// | `&mut [T]` | [`KernelOutput<T>`](crate::kernel::KernelOutput): a buffer or an exclusive borrow of it | the same |
/// | an integer | itself | an integer of that size, signed or not; `.b32`; a struct of that size |
/// | `f32`, `f64`, `f16`, `bf16` | itself | the same; `.b32`; a struct of that size |
/// | `bool` | itself | an integer of one byte |
/// | any other type that is a [`KernelParam`](crate::kernel::KernelParam) | itself | anything of that size: structs by value |
///
/// A method is public unless the declaration has another visibility, like `pub(crate)`, before `unsafe fn`.
///
/// # Lazy arguments
/// A buffer argument may also be an operation that yields one of the forms in the table, in any mixture with buffers
/// that are ready. The output then holds the form that the operation yields. Launches nest:
/// `vectors.saxpy(vectors.scale(x, 2.0), y, 3.0)`.
///
/// The operations among the arguments run one after the other, in the order of the declaration, on the stream of the
/// launch. So no event and no second stream is needed. To run long operations at the same time, write
/// `zip!(..).then(..)`. The first error ends the operation.
///
/// # Derived values, launch shapes and conditions
/// | written | meaning |
/// |---|---|
/// | `n: u32 = y.len()` | the launcher computes `n`, and the caller does not pass it |
/// | `where x.len() == y.len(), n > 0` | the launch happens only if every condition holds |
/// | `where n == 0 \|\| x.len() / n == 4` | at least one alternative must hold; the alternatives after it are not computed |
/// | `#[elements(n)]` | the shape is `LaunchConfig::for_num_elems(n)` |
/// | `#[plane(width, height)]` | the shape is `LaunchConfig::for_plane(width, height)` |
/// | `#[tiles(y, 256)]` | the output `y` is a `Partition` of `cuda-tensor` into tiles of 256 elements; a block of 256 threads for each tile |
/// | `#[tiles(y, (16, 64), 128)]` | the same with tiles of this shape, and 128 threads; tiles of another shape are an error |
/// | `#[config(grid = (x, y, z), block = 256, shared = 4 * n)]` | this shape; omitted dimensions are 1, and no shared memory |
/// | `#[cluster(x, y, z)]` | clusters of this many blocks; a grid from `elements` or `plane` is rounded up to whole clusters |
/// | `#[cooperative]` | all blocks run at the same time |
/// | `#[dependent]` | the kernel may begin before the previous kernel on the stream has ended; the safety promise includes that of [`LaunchConfig::dependent`](crate::LaunchConfig::dependent) |
///
/// Without an attribute for the shape, the caller passes a `LaunchConfig` first. An expression consists of integers,
/// `name.len()` of a buffer, `name.size(1)` of a dimension of a tensor, integer arguments, `+ - * / %` and parentheses.
/// Values are computed in 128 bits when all arguments are ready. Derived values come first, in order, and then the
/// conditions.
///
/// A condition that does not hold is an [`Error::Arguments`](crate::Error::Arguments) of the operation. So are a
/// division by zero, an overflow, and a derived value that does not fit its type:
///
/// ```text
/// wrong arguments for kernel `saxpy`: `x.len() == y.len()` does not hold: `x.len()` is 3, `y.len()` is 4
/// ```
///
/// If the number of elements, a side of the plane or a dimension of the grid is zero, no launch happens, and the
/// buffers are given back. The conditions must hold in this case too.
///
/// # An entry for each type
/// A kernel with one type parameter has an entry for each type. The macro checks the signature of every entry:
///
/// ```
/// # use cuda_async::prelude::*;
/// cuda_async::kernels! {
///     #[ptx = "../kernels/saxpy.ptx"]
///     pub unsafe struct Vectors; // SAFETY: `axpy` stays below n, which is the length of both buffers.
///
///     #[entry(f32 = "saxpy", f64 = "daxpy")]
///     #[elements(n)]
///     safe fn axpy<T: f32 | f64>(x: &[T], y: &mut [T], a: T, n: u32 = y.len())
///     where x.len() == y.len();
/// }
/// # let device = cuda_async::open_blocking("cpu")?;
/// # let vectors = Vectors::load(&device)?;
/// let single = vectors.axpy(h2d(vec![1.0f32; 4]), zeros(4), 3.0);
/// let double = vectors.axpy(h2d(vec![1.0f64; 4]), zeros(4), 3.0);
/// # single.sync_on(&device.new_stream()?)?;
/// # assert_eq!(double.then(|(_, y)| to_host(y)).sync_on(&device.new_stream()?)?, [3.0; 4]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// Code that is generic over the type bounds it by a trait that the macro generates, named after the struct and the
/// kernel: here `VectorsAxpy`. Only the types of the declaration implement it.
///
/// # Variables
/// `static` declares a `__constant__` variable of the module, and `static mut` a `__device__` variable. A method of the
/// same name in lower case returns its buffer, as [`Module::variable`](crate::Module::variable) does. The macro checks
/// the name, the size, the state space, and the element type where the PTX states it. `#[symbol = "name"]` gives
/// another name in the PTX.
///
/// ```
/// # use cuda_async::{DeviceBuffer, LaunchConfig, memory::upload_into, prelude::*};
/// cuda_async::kernels! {
///     #[ptx = "../kernels/filter.ptx"]
///     pub unsafe struct Filter; // SAFETY: `filter` reads n + 4 elements of `input` and writes n of `out`.
///
///     static taps: [f32; 5];
///     static mut limited: u32;
///
///     #[elements(n)]
///     safe fn filter(out: &mut [f32], input: &[f32], n: u32 = out.len()) where input.len() == n + 4;
/// }
/// # let device = cuda_async::open_blocking("cpu")?;
/// # let stream = device.new_stream()?;
/// let filter = Filter::load(&device)?;
/// let taps: DeviceBuffer<f32> = filter.taps()?;
/// upload_into(taps, vec![0.5; 5]).sync_on(&stream)?;
/// let op = filter.filter(zeros(3), h2d(vec![1.0; 7]));
/// # op.sync_on(&stream)?;
/// # assert_eq!(to_host(filter.limited()?).sync_on(&stream)?, [3]);
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Safety
/// The macro checks the types, and the launcher checks the conditions. Neither checks the kernel's accesses: for an
/// `unsafe fn`, the caller is responsible for sizes, indices and the launch shape. State the requirements in a `#
/// Safety` section. Without one, the macro writes a general one.
///
/// If a kernel is sound *with any arguments and in any launch that its launcher accepts*, its author may state that
/// once, as in an `unsafe extern` block: `unsafe struct` is a promise for every `safe fn` below it, and those need no
/// `unsafe` to launch. Conditions, derived values and the shape attribute limit what the launcher accepts. Without a
/// shape attribute, the promise includes every `LaunchConfig`.
///
/// ```
/// # use cuda_async::{LaunchConfig, prelude::*};
/// cuda_async::kernels! {
///     #[ptx = "../kernels/basic.ptx"]
///     pub unsafe struct Basic; // SAFETY: `empty` accesses no memory.
///
///     safe fn empty();
/// }
/// let device = cuda_async::open_blocking("cpu")?;
/// Basic::load(&device)?.empty(LaunchConfig::new(1, 32)).sync_on(&device.new_stream()?)?;
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// # Mistakes
/// A missing file, a missing kernel, a wrong number of parameters, an argument of another size or kind, and an unknown
/// name in an expression are compile errors. They name the parameter in the PTX:
///
/// ```text
/// error: parameter 3 of kernel `vecadd` is `.u32` in the PTX (4 bytes), but `n: u64` has 8 bytes
///  --> src/main.rs:8:61
///   |
/// 8 |     unsafe fn vecadd(a: &[f32], b: &[f32], c: &mut [f32], n: u64);
///   |                                                           ^^^^^^
/// ```
pub use cuda_async_macros::kernels;
