//! Random tensors: `rand`, `randn`, `Generator`.

use crate::{
    DeviceOp,
    kernel::launch,
    memory::DeviceScalar,
    tensor::{
        argument::{Written, for_elements},
        dtype::Float,
        kernels::{COPY, kernel},
        shape::IntoShape,
        tensor::Tensor,
    },
};
use cuda_core::LaunchConfig;

/// The distribution of random numbers.
#[derive(Debug, Clone, Copy)]
enum Distribution {
    Uniform,
    Normal,
}

/// The blocks of Philox that give `n` numbers: four of each, and two of f64.
const fn blocks<T>(n: usize) -> usize {
    n.div_ceil(if size_of::<T>() == 8 { 2 } else { 4 })
}

impl<T: Float> Tensor<T> {
    /// Creates a tensor of random numbers, uniform in [0, 1). The same seed gives the same numbers, on every device and in
    /// every launch of a graph; a [`Generator`] gives new ones.
    ///
    /// ```
    /// use cuda_async::{prelude::*, tensor::{Tensor, TensorOps}};
    /// let x = Tensor::<f32>::rand([100, 10], 42).to_host_vec().sync()?;
    /// assert!(x.iter().all(|x| (0.0..1.0).contains(x)));
    /// assert_eq!(Tensor::<f32>::rand(1000, 42).to_host_vec().sync()?, x);
    /// # Ok::<(), cuda_async::Error>(())
    /// ```
    ///
    /// The numbers are those of Philox4x32-10 (Salmon and others, SC 2011) with the seed as key.
    ///
    /// # Errors
    /// As [`zeros`](Tensor::zeros).
    pub fn rand(shape: impl IntoShape, seed: u64) -> impl DeviceOp<Output = Self> {
        seeded(shape, seed, Distribution::Uniform)
    }

    /// Creates a tensor of normally distributed random numbers of mean 0 and variance 1. The same seed gives the same
    /// numbers, as for [`rand`](Tensor::rand).
    ///
    /// The numbers are made of uniform ones (Box and Muller, 1958).
    ///
    /// # Errors
    /// As [`zeros`](Tensor::zeros).
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
    Tensor::uninitialised(shape).then(move |x| {
        kernel(T::random(), name).then(move |kernel| {
            let n = x.len();
            // SAFETY: writes x, all below n.
            unsafe { launch(&kernel, for_elements(blocks::<T>(n)), (Written(x), n as u64, seed)) }
        })
    })
}

/// A source of random tensors. Each one continues the numbers of the one before it. Its state is in device memory, so each
/// launch of a recorded graph gives new numbers too.
///
/// ```
/// use cuda_async::{prelude::*, tensor::{Generator, Tensor, TensorOps}};
/// let device = cuda_async::open("cpu")?;
/// let stream = device.new_stream()?;
/// let generator = Generator::new(7).sync_on(&stream)?;
/// let first = generator.rand::<f32>(1000).to_host_vec().sync_on(&stream)?;
/// let second = generator.rand::<f32>(1000).to_host_vec().sync_on(&stream)?;
/// let both = Generator::new(7).then(|it| it.rand::<f32>(2000)).to_host_vec().sync_on(&stream)?;
/// assert_eq!(both, [first, second].concat());
/// # Ok::<(), cuda_async::Error>(())
/// ```
///
/// Clones share the state. Operations that use it run in an order, also on several streams, but if they are not ordered by
/// the program, that order is not the same in each run.
#[derive(Debug, Clone)]
pub struct Generator {
    /// The key, and the number of blocks that were drawn.
    state: DeviceScalar<[u64; 2]>,
}

impl Generator {
    /// Creates a generator.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory), or an error of the device.
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
    /// As [`Tensor::zeros`].
    pub fn rand<T: Float>(&self, shape: impl IntoShape) -> impl DeviceOp<Output = Tensor<T>> {
        self.draw(shape, Distribution::Uniform)
    }

    /// Creates a tensor of normally distributed random numbers of mean 0 and variance 1.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    pub fn randn<T: Float>(&self, shape: impl IntoShape) -> impl DeviceOp<Output = Tensor<T>> {
        self.draw(shape, Distribution::Normal)
    }

    fn draw<T: Float, S: IntoShape>(
        &self,
        shape: S,
        distribution: Distribution,
    ) -> impl DeviceOp<Output = Tensor<T>> + use<T, S> {
        let name = match distribution {
            Distribution::Uniform => "uniform_from",
            Distribution::Normal => "normal_from",
        };
        let (read, written) = (self.state.clone(), self.state.writable());
        Tensor::uninitialised(shape).then(move |x| {
            let (n, drawn) = (x.len(), blocks::<T>(x.len()));
            kernel(T::random(), name)
                .then(move |kernel| {
                    let args = (Written(x), n as u64, read);
                    // SAFETY: writes x, all below n, and reads the two words of the state.
                    unsafe { launch(&kernel, for_elements(drawn), args) }
                })
                .then(move |(x, _)| {
                    kernel(&COPY, "advance").then(move |advance| {
                        let config = LaunchConfig::new(1, 1);
                        // SAFETY: reads and writes the state. Launches that use it are ordered.
                        unsafe { launch(&advance, config, (written, drawn as u64)) }.map(|_| x)
                    })
                })
        })
    }
}
