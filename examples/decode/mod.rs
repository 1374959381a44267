//! Token-by-token decoding with a small transformer: the text and its symbols, the trained weights, the model on a
//! device, a step that computes one more symbol, and the modes in which steps are launched. The program is in
//! `main.rs`.

mod error;
mod generate;
mod model;
mod reference;
mod step;
mod text;
mod weights;

pub use error::Error;
pub use generate::{Mode, generate};
pub use model::Model;
pub use reference::{Reference, bits_per_character};
pub use step::Session;
pub use text::{Symbols, held_out, prompts};
pub use weights::Weights;

/// The number of symbols, which are the tokens of this model: the line end and the 95 printable characters of ASCII.
pub const SYMBOLS: usize = 96;

/// The number of symbols of the longest text, with its prompt.
pub const CONTEXT: usize = 256;

/// The number of channels between the blocks.
pub const WIDTH: usize = 128;

/// The number of attention heads of a block.
pub const HEADS: usize = 4;

/// The number of channels of a head.
pub const HEAD: usize = WIDTH / HEADS;

/// The number of blocks.
pub const LAYERS: usize = 4;

/// The number of channels inside the MLP of a block.
pub const HIDDEN: usize = 512;

/// The largest number of sequences that are decoded together.
pub const MAX_BATCH: usize = 256;
