//! The network on a device: its layers as lazy operations.
//!
//! Each method returns an operation and uses no device; the work runs when the operation is awaited. Only the three
//! unsafe launches depend on the memory accesses of the kernels.

use std::sync::Arc;

use cuda_async::{Function, launch, prelude::*};

use super::{CLASSES, Dense, PIXELS, Weights};

/// A buffer of numbers on a device.
pub type Floats = DeviceBuffer<f32>;

/// A buffer of digits on a device.
pub type Labels = DeviceBuffer<u32>;

/// The compiled kernels of the layers, for every NVIDIA GPU since Turing and for the CPU device.
const PTX: &str = include_str!("kernels/mlp.ptx");

/// The block size of the kernels of dense layers, in threads.
const DENSE_BLOCK: u32 = 128;

/// The network on a device. A clone is another handle to the same weights.
#[derive(Clone)]
pub struct Model {
    kernels: Kernels,
    layers: [Layer; 3],
}

#[derive(Clone)]
struct Kernels {
    normalize: Function,
    dense_relu: Function,
    dense: Function,
    argmax: Function,
    softmax: Function,
}

/// The weights of a layer, uploaded once and read by every batch. A buffer in an `Arc` is read-only, so batches on
/// different streams do not wait for each other.
#[derive(Clone)]
struct Layer {
    weights: Arc<Floats>,
    bias: Arc<Floats>,
    inputs: usize,
    outputs: usize,
}

impl Model {
    /// Loads the kernels immediately, and returns an operation that uploads the weights.
    ///
    /// # Errors
    /// The errors of loading the kernels on `device`.
    pub fn upload(
        device: &Device,
        weights: &Weights,
    ) -> cuda_async::Result<impl DeviceOp<Output = Self> + use<>> {
        let kernels = Kernels::load(device)?;
        let [first, second, third] = weights.layers().each_ref().map(Layer::upload);
        let layers = zip!(first, second, third);
        Ok(layers.map(|(first, second, third)| Self { kernels, layers: [first, second, third] }))
    }

    /// Returns an operation that computes the logits: [`CLASSES`] numbers for each image, larger for more probable
    /// digits.
    pub fn logits(&self, pixels: DeviceBuffer<u8>) -> impl DeviceOp<Output = Floats> + use<> {
        let rows = pixels.len() / PIXELS;
        let Kernels { normalize, dense_relu, dense, .. } = self.kernels.clone();
        let relu = dense_relu.clone();
        let [first, second, third] = self.layers.clone();
        scaled(normalize, pixels, rows * PIXELS)
            .then(move |x| first.apply(relu, x, rows))
            .then(move |x| second.apply(dense_relu, x, rows))
            .then(move |x| third.apply(dense, x, rows))
    }

    /// Returns an operation that computes the most probable digit of each row of `logits`.
    pub fn labels(&self, logits: Arc<Floats>) -> impl DeviceOp<Output = Labels> + use<> {
        let rows = logits.len() / CLASSES;
        per_row(self.kernels.argmax.clone(), logits, rows, rows)
    }

    /// Returns an operation that computes the probabilities of the digits for each row of `logits`. Each row sums to 1.
    pub fn probabilities(&self, logits: Arc<Floats>) -> impl DeviceOp<Output = Floats> + use<> {
        let rows = logits.len() / CLASSES;
        per_row(self.kernels.softmax.clone(), logits, rows, rows * CLASSES)
    }
}

impl Kernels {
    fn load(device: &Device) -> cuda_async::Result<Self> {
        let module = device.load_ptx_blocking(PTX)?;
        Ok(Self {
            normalize: module.function("normalize")?,
            dense_relu: module.function("dense_relu")?,
            dense: module.function("dense")?,
            argmax: module.function("argmax")?,
            softmax: module.function("softmax")?,
        })
    }
}

impl Layer {
    fn upload(dense: &Dense) -> impl DeviceOp<Output = Self> + use<> {
        let (inputs, outputs) = (dense.inputs(), dense.outputs());
        zip!(h2d(dense.weights()), h2d(dense.bias())).map(move |(weights, bias)| Self {
            weights: Arc::new(weights),
            bias: Arc::new(bias),
            inputs,
            outputs,
        })
    }

    /// Applies the layer to `rows` rows of inputs, by the kernel `dense` or `dense_relu`.
    fn apply(self, kernel: Function, x: Floats, rows: usize) -> impl DeviceOp<Output = Floats> {
        let Self { weights, bias, inputs, outputs } = self;
        let width = (outputs as u32).clamp(1, 32);
        let height = DENSE_BLOCK / width;
        let config = LaunchConfig::new(1, 1).block(width, height, 1).grid(
            (outputs as u32).div_ceil(width).max(1),
            (rows as u32).div_ceil(height).max(1),
            1,
        );
        let sizes = (rows as u32, inputs as u32, outputs as u32);
        zeros(rows * outputs)
            .then(move |out| {
                let args = (x, weights, bias, out, sizes.0, sizes.1, sizes.2);
                // SAFETY: the kernel reads `rows * inputs` elements of x, which are the pixels or the outputs of the
                // previous layer. It reads all weights and biases, whose sizes `Weights` has checked. It writes
                // `rows * outputs` elements of out.
                unsafe { launch(&kernel, config, args) }
            })
            .map(|(_, _, _, out)| out)
    }
}

/// Returns an operation that scales `n` pixels to numbers from 0 to 1.
fn scaled(
    kernel: Function,
    pixels: DeviceBuffer<u8>,
    n: usize,
) -> impl DeviceOp<Output = Floats> + use<> {
    let n = n.min(pixels.len());
    zeros(n)
        .then(move |out| {
            let config = LaunchConfig::for_num_elems(n);
            // SAFETY: the kernel reads n elements of pixels, which has at least n, and writes n elements of out.
            unsafe { launch(&kernel, config, (pixels, out, n as u32)) }
        })
        .map(|(_, out)| out)
}

/// Launches a kernel with one thread for each row of logits, which writes `len` results: `argmax` one for each row,
/// `softmax` one for each logit.
fn per_row<T: cuda_async::Element>(
    kernel: Function,
    logits: Arc<Floats>,
    rows: usize,
    len: usize,
) -> impl DeviceOp<Output = DeviceBuffer<T>> + use<T> {
    zeros(len)
        .then(move |out| {
            let config = LaunchConfig::for_num_elems(rows);
            // SAFETY: the kernel reads `rows * CLASSES` logits. Both callers pass the number of rows of logits, and the
            // number of elements that their kernel writes.
            unsafe { launch(&kernel, config, (logits, out, rows as u32, CLASSES as u32)) }
        })
        .map(|(_, out)| out)
}
