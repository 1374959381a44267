//! Random tensors: `rand`, `randn`, `Generator`.

use cuda_async::{
    BoxedOp, DeviceOp,
    kernel::launch,
    memory::{DeviceScalar, ScalarMut},
};
use cuda_core::LaunchConfig;

use crate::{
    argument::{Read, Written, element_config},
    element::{COPY, Float, kernel},
    shape::IntoShape,
    tensor::Tensor,
};

/// The distribution of random numbers.
#[derive(Debug, Clone, Copy)]
enum Distribution {
    Uniform,
    Normal,
}

/// Returns the number of Philox blocks for `n` numbers. A block gives four numbers, or two of f64.
const fn blocks<T>(n: usize) -> usize {
    n.div_ceil(if size_of::<T>() == 8 { 2 } else { 4 })
}

impl<T: Float> Tensor<T> {
    /// Creates a tensor of random numbers, uniform in [0, 1). The same seed gives the same numbers, on every device and
    /// in every launch of a graph; a [`Generator`] gives new ones.
    ///
    /// ```
    /// use cuda_async::prelude::*;
    /// use cuda_tensor::{Tensor, TensorOps};
    /// let x = Tensor::<f32>::rand([100, 10], 42).to_host_vec().sync()?;
    /// assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
    /// assert_eq!(Tensor::<f32>::rand(1000, 42).to_host_vec().sync()?, x);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// The generator is Philox4x32-10 (Salmon and others, SC 2011) with the seed as key.
    ///
    /// # Errors
    /// The errors of [`zeros`](Tensor::zeros).
    pub fn rand(shape: impl IntoShape, seed: u64) -> impl DeviceOp<Output = Self> {
        seeded(shape, seed, Distribution::Uniform)
    }

    /// Creates a tensor of normally distributed random numbers of mean 0 and variance 1. The same seed gives the same
    /// numbers, on every device and in every launch of a graph; a [`Generator`] gives new ones.
    ///
    /// The Box-Muller transform (1958) makes them from uniform numbers.
    ///
    /// # Errors
    /// The errors of [`zeros`](Tensor::zeros).
    pub fn randn(shape: impl IntoShape, seed: u64) -> impl DeviceOp<Output = Self> {
        seeded(shape, seed, Distribution::Normal)
    }
}

fn seeded<T: Float>(
    shape: impl IntoShape,
    seed: u64,
    distribution: Distribution,
) -> impl DeviceOp<Output = Tensor<T>> {
    let name = match distribution {
        Distribution::Uniform => "uniform",
        Distribution::Normal => "normal",
    };
    Tensor::uninitialized(shape).then(move |x| {
        kernel::<T>(T::random(), name).then(move |kernel| {
            let n = x.len();
            // SAFETY: writes x, all below n.
            unsafe { launch(&kernel, element_config(blocks::<T>(n)), (Written(x), n as u64, seed)) }
        })
    })
}

/// A source of random tensors. Each tensor continues the sequence of numbers. The state is in device memory, so each
/// launch of a recorded graph gives new numbers too. A tensor takes whole blocks of four numbers of the sequence, or of
/// two numbers of `f64`. So two calls of `rand(3)` do not give the numbers of `rand(6)`.
///
/// ```
/// use cuda_async::prelude::*;
/// use cuda_tensor::{Generator, Tensor, TensorOps};
/// let device = cuda_async::open_blocking("cpu")?;
/// let stream = device.new_stream()?;
/// let generator = Generator::new(7).sync_on(&stream)?;
/// let first = generator.rand::<f32>(1000).to_host_vec().sync_on(&stream)?;
/// let second = generator.rand::<f32>(1000).to_host_vec().sync_on(&stream)?;
/// let both = Generator::new(7).then(|generator| generator.rand::<f32>(2000)).to_host_vec().sync_on(&stream)?;
/// assert_eq!(both, [first, second].concat());
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// Clones share the state. The library runs the operations that use it one after the other, also across streams. If the
/// program does not order them, the order may differ between runs.
#[derive(Debug, Clone)]
pub struct Generator {
    /// The key, and the number of Philox blocks that have been used.
    state: DeviceScalar<[u64; 2]>,
}

impl Generator {
    /// Creates a generator.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](cuda_async::Error::OutOfMemory), or an error of the device.
    #[allow(clippy::new_ret_no_self)] // an operation gives it
    pub fn new(seed: u64) -> impl DeviceOp<Output = Self> {
        DeviceScalar::new([seed, 0]).map(|state| Self { state })
    }

    /// Restarts the generator with a seed.
    ///
    /// # Errors
    /// An error of the device.
    pub fn reseed(&self, seed: u64) -> impl DeviceOp<Output = ()> + use<> {
        self.state.set([seed, 0]).map(drop)
    }

    /// Creates a tensor of random numbers, uniform in [0, 1).
    ///
    /// # Errors
    /// The errors of [`Tensor::zeros`].
    pub fn rand<T: Float>(&self, shape: impl IntoShape) -> BoxedOp<'static, Tensor<T>> {
        self.draw(shape.dims().to_vec(), Distribution::Uniform).boxed()
    }

    /// Creates a tensor of normally distributed random numbers of mean 0 and variance 1.
    ///
    /// # Errors
    /// The errors of [`Tensor::zeros`].
    pub fn randn<T: Float>(&self, shape: impl IntoShape) -> BoxedOp<'static, Tensor<T>> {
        self.draw(shape.dims().to_vec(), Distribution::Normal).boxed()
    }

    fn draw<T: Float>(
        &self,
        shape: Vec<usize>,
        distribution: Distribution,
    ) -> impl DeviceOp<Output = Tensor<T>> + use<T> {
        let name = match distribution {
            Distribution::Uniform => "uniform_from",
            Distribution::Normal => "normal_from",
        };
        let state = self.state.writable();
        Tensor::uninitialized(shape).then(move |x| {
            let (n, drawn) = (x.len(), blocks::<T>(x.len()));
            // Load the kernel first: if it is not loaded, the draw takes no numbers.
            kernel::<T>(T::random(), name).then(move |draw| {
                take::<T>(state, drawn).then(move |taken| {
                    let args = (Written(x), n as u64, Read(taken));
                    // SAFETY: writes x, all below n, and reads the two words of `taken`.
                    unsafe { launch(&draw, element_config(drawn), args) }
                })
            })
        })
    }
}

/// Takes the next blocks of a generator: gives its key and the number of the first block. One launch reads and writes
/// the state, so no two draws take the same blocks.
fn take<T: Float>(
    state: ScalarMut<[u64; 2]>,
    blocks: usize,
) -> impl DeviceOp<Output = Tensor<u64>> {
    Tensor::<u64>::uninitialized(2).then(move |taken| {
        kernel::<T>(&COPY, "take").then(move |take| {
            let args = (state, Written(taken), blocks as u64);
            // SAFETY: reads and writes the two words of the state, and writes those of `taken`. Launches that use the
            // state are ordered.
            unsafe { launch(&take, LaunchConfig::new(1, 1), args) }.map(|(_, taken)| taken)
        })
    })
}
