//! The trained weights, from the `.npy` files written by `train.py`.

use ndarray::{Array1, Array2};
use ndarray_npy::ReadNpyExt;

use super::{Error, PIXELS};

/// The number of classes, one for each digit.
pub const CLASSES: usize = 10;

/// One layer, on the host: `output = input * weights + bias`.
#[derive(Debug, Clone)]
pub struct Dense {
    weights: Array2<f32>,
    bias: Array1<f32>,
}

/// The network, with [`PIXELS`] inputs and [`CLASSES`] outputs. The shapes of adjacent layers match.
#[derive(Debug, Clone)]
pub struct Weights([Dense; 3]);

macro_rules! layer {
    ($weights:literal, $bias:literal) => {
        Dense::read(
            ($weights, include_bytes!(concat!("weights/", $weights))),
            ($bias, include_bytes!(concat!("weights/", $bias))),
        )
    };
}

impl Weights {
    /// Parses the trained network, which is embedded in the program.
    ///
    /// # Errors
    /// [`Error::Npy`] or [`Error::Shapes`] if the embedded files are invalid.
    pub fn load() -> Result<Self, Error> {
        Self::new([
            layer!("w1.npy", "b1.npy")?,
            layer!("w2.npy", "b2.npy")?,
            layer!("w3.npy", "b3.npy")?,
        ])
    }

    fn new(layers: [Dense; 3]) -> Result<Self, Error> {
        let mut width = PIXELS;
        for layer in &layers {
            if layer.inputs() != width || layer.bias.len() != layer.outputs() {
                return Err(Error::Shapes);
            }
            width = layer.outputs();
        }
        if width == CLASSES { Ok(Self(layers)) } else { Err(Error::Shapes) }
    }

    /// The layers, first to last.
    pub fn layers(&self) -> &[Dense; 3] {
        &self.0
    }
}

impl Dense {
    fn read(weights: (&'static str, &[u8]), bias: (&'static str, &[u8])) -> Result<Self, Error> {
        let npy = |file| move |source| Error::Npy { file, source };
        Ok(Self {
            weights: Array2::read_npy(weights.1).map_err(npy(weights.0))?,
            bias: Array1::read_npy(bias.1).map_err(npy(bias.0))?,
        })
    }

    /// The number of inputs.
    pub fn inputs(&self) -> usize {
        self.weights.nrows()
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.weights.ncols()
    }

    /// The `inputs x outputs` weights, row by row.
    pub fn weights(&self) -> Vec<f32> {
        self.weights.iter().copied().collect()
    }

    /// The bias of each output.
    pub fn bias(&self) -> Vec<f32> {
        self.bias.to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_that_do_not_fit_are_refused() -> Result<(), Error> {
        let [first, second, third] = Weights::load()?.0;
        assert!(Weights::new([second, first, third]).is_err_and(|e| matches!(e, Error::Shapes)));
        Ok(())
    }
}
