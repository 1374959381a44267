//! The trained weights, from the `.npy` files written by `train.py`.

use half::f16;
use ndarray::{ArrayD, Axis};
use ndarray_npy::ReadNpyExt;

use super::{CONTEXT, Error, HIDDEN, LAYERS, SYMBOLS, WIDTH};

/// The weights of a block. A matrix has one row for each output.
#[derive(Debug, Clone)]
pub(super) struct Block {
    /// The gains of the norm before the attention.
    pub(super) attention_gain: Vec<f16>,
    /// The queries, keys and values: `3 * WIDTH` rows of `WIDTH`.
    pub(super) qkv: Vec<f16>,
    /// The output of the attention: `WIDTH` rows of `WIDTH`.
    pub(super) out: Vec<f16>,
    /// The gains of the norm before the MLP.
    pub(super) mlp_gain: Vec<f16>,
    /// The first matrix of the MLP: `HIDDEN` rows of `WIDTH`.
    pub(super) up: Vec<f16>,
    /// The second matrix of the MLP: `WIDTH` rows of `HIDDEN`.
    pub(super) down: Vec<f16>,
}

/// The weights of the model, on the host. All have the lengths that the model takes: the kernels rely on it.
#[derive(Debug, Clone)]
pub struct Weights {
    /// `SYMBOLS` rows of `WIDTH`.
    pub(super) embedding: Vec<f16>,
    /// `CONTEXT` rows of `WIDTH`.
    pub(super) positions: Vec<f16>,
    /// The blocks, first to last.
    pub(super) blocks: Vec<Block>,
    /// The gains of the last norm.
    pub(super) gain: Vec<f16>,
    /// `SYMBOLS` rows of `WIDTH`.
    pub(super) head: Vec<f16>,
}

/// Reads an embedded file, which has the given shape.
macro_rules! read {
    ($file:literal, $($shape:expr),*) => {
        read($file, include_bytes!(concat!("weights/", $file)), &[$($shape),*])
    };
}

impl Weights {
    /// Parses the trained weights, which are embedded in the program.
    ///
    /// # Errors
    /// [`Error::Npy`] or [`Error::Shape`] if an embedded file is invalid.
    pub fn load() -> Result<Self, Error> {
        let gains = read!("gains.npy", 2 * LAYERS + 1, WIDTH)?;
        let qkv = read!("qkv.npy", LAYERS, 3 * WIDTH, WIDTH)?;
        let out = read!("out.npy", LAYERS, WIDTH, WIDTH)?;
        let up = read!("up.npy", LAYERS, HIDDEN, WIDTH)?;
        let down = read!("down.npy", LAYERS, WIDTH, HIDDEN)?;
        let blocks = (0..LAYERS).map(|layer| Block {
            attention_gain: part(&gains, 2 * layer),
            qkv: part(&qkv, layer),
            out: part(&out, layer),
            mlp_gain: part(&gains, 2 * layer + 1),
            up: part(&up, layer),
            down: part(&down, layer),
        });
        Ok(Self {
            embedding: read!("embedding.npy", SYMBOLS, WIDTH)?.into_iter().collect(),
            positions: read!("positions.npy", CONTEXT, WIDTH)?.into_iter().collect(),
            blocks: blocks.collect(),
            gain: part(&gains, 2 * LAYERS),
            head: read!("head.npy", SYMBOLS, WIDTH)?.into_iter().collect(),
        })
    }
}

/// Reads a file of f16 whose bits are stored as u16, because `.npy` readers in Rust do not support f16.
fn read(file: &'static str, bytes: &[u8], expected: &[usize]) -> Result<ArrayD<f16>, Error> {
    let bits = ArrayD::<u16>::read_npy(bytes).map_err(|source| Error::Npy { file, source })?;
    if bits.shape() != expected {
        let (found, expected) = (bits.shape().to_vec(), expected.to_vec());
        return Err(Error::Shape { file, found, expected });
    }
    Ok(bits.mapv(f16::from_bits))
}

/// Returns the numbers of one entry of the first axis.
fn part(array: &ArrayD<f16>, index: usize) -> Vec<f16> {
    array.index_axis(Axis(0), index).iter().copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_of_another_shape_is_an_error() {
        let error = read!("head.npy", SYMBOLS, HIDDEN).unwrap_err().to_string();
        assert_eq!(
            error,
            "weights/head.npy has the shape [96, 128], and the model takes [96, 512]"
        );
    }
}
