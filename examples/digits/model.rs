//! The network on a device: its layers as lazy operations.
//!
//! Every method here describes work and touches no device; it happens when the operation is awaited. The
//! three unsafe launches are the only places that have to know what the kernels do with their memory.

use std::sync::Arc;

use cuda_async::{Function, launch, prelude::*};

use super::{CLASSES, Dense, PIXELS, Weights};

/// Numbers on a device.
pub type Floats = DeviceBuffer<f32>;

/// Digits on a device.
pub type Labels = DeviceBuffer<u32>;

/// The compiled layers, for any NVIDIA GPU and for the CPU device.
const PTX: &str = include_str!("kernels/mlp.ptx");

/// Threads of a block that computes a dense layer.
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

/// The weights of a layer, uploaded once and read by every batch. As an `Arc`, a buffer is read-only:
/// batches on different streams need not wait for each other.
#[derive(Clone)]
struct Layer {
    weights: Arc<Floats>,
    bias: Arc<Floats>,
    inputs: usize,
    outputs: usize,
}

impl Model {
    /// Loads the kernels, at once, and uploads the weights, when the operation is run.
    ///
    /// # Errors
    /// What `device` says to the kernels.
    pub fn upload(
        device: &Device,
        weights: &Weights,
    ) -> cuda_async::Result<impl DeviceOp<Output = Self> + use<>> {
        let kernels = Kernels::load(device)?;
        let [first, second, third] = weights.layers().each_ref().map(Layer::upload);
        let layers = zip!(first, second, third);
        Ok(layers.map(|(first, second, third)| Self { kernels, layers: [first, second, third] }))
    }

    /// A row of [`CLASSES`] numbers per image: the larger, the likelier that digit.
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

    /// The likeliest digit of each row of `logits`.
    pub fn labels(&self, logits: Arc<Floats>) -> impl DeviceOp<Output = Labels> + use<> {
        let rows = logits.len() / CLASSES;
        per_row(self.kernels.argmax.clone(), logits, rows, rows)
    }

    /// How likely each digit is, for each row of `logits`; a row sums to 1.
    pub fn probabilities(&self, logits: Arc<Floats>) -> impl DeviceOp<Output = Floats> + use<> {
        let rows = logits.len() / CLASSES;
        per_row(self.kernels.softmax.clone(), logits, rows, rows * CLASSES)
    }
}

impl Kernels {
    fn load(device: &Device) -> cuda_async::Result<Self> {
        let module = device.load_ptx(PTX)?;
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

    /// `rows` rows of inputs to as many rows of outputs, by the kernel `dense` or `dense_relu`.
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
                // SAFETY: reads `rows * inputs` of x, the layer before's or the pixels, and all weights and
                // biases, whose sizes `Weights` has checked; writes `rows * outputs` of out.
                unsafe { launch(&kernel, config, args) }
            })
            .map(|(_, _, _, out, ..)| out)
    }
}

/// `n` pixels, as numbers from 0 to 1.
fn scaled(
    kernel: Function,
    pixels: DeviceBuffer<u8>,
    n: usize,
) -> impl DeviceOp<Output = Floats> + use<> {
    let n = n.min(pixels.len());
    zeros(n)
        .then(move |out| {
            let config = LaunchConfig::for_num_elems(n);
            // SAFETY: reads n of pixels, which has at least as many, and writes n of out.
            unsafe { launch(&kernel, config, (pixels, out, n as u32)) }
        })
        .map(|(_, out, _)| out)
}

/// `len` results of a kernel that has one thread per row of logits: `argmax` writes one number per row,
/// `softmax` one per logit.
fn per_row<T: cuda_async::Element>(
    kernel: Function,
    logits: Arc<Floats>,
    rows: usize,
    len: usize,
) -> impl DeviceOp<Output = DeviceBuffer<T>> + use<T> {
    zeros(len)
        .then(move |out| {
            let config = LaunchConfig::for_num_elems(rows);
            // SAFETY: reads `rows * CLASSES` logits; both callers give as many rows as there are, and the
            // length that their kernel writes.
            unsafe { launch(&kernel, config, (logits, out, rows as u32, CLASSES as u32)) }
        })
        .map(|(_, out, ..)| out)
}
