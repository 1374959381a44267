//! The errors of the example.

use super::{CONTEXT, MAX_BATCH};

/// An error of a prompt, the weights or the device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text has a character that is not a symbol of the model.
    #[error(
        "character {character:?} at position {position} is not a symbol of the model; \
         write line ends and printable ASCII only"
    )]
    Symbol {
        /// The character.
        character: char,
        /// Its position in the text, from 0.
        position: usize,
    },
    /// A prompt is empty.
    #[error("prompt {prompt} is empty; the model continues at least one character")]
    EmptyPrompt {
        /// The index of the prompt, from 0.
        prompt: usize,
    },
    /// A prompt and the symbols to generate are longer than the context.
    #[error(
        "prompt {prompt} has {length} characters, and {tokens} are to follow; \
         the model's context is {CONTEXT} characters, so write a shorter prompt or generate fewer"
    )]
    TooLong {
        /// The index of the prompt, from 0.
        prompt: usize,
        /// The number of its characters.
        length: usize,
        /// The number of symbols to generate.
        tokens: usize,
    },
    /// The number of sequences is out of range.
    #[error("a batch has 1 to {MAX_BATCH} sequences, and this one has {sequences}")]
    Batch {
        /// The number of sequences.
        sequences: usize,
    },
    /// A file of weights cannot be read.
    #[error("weights/{file}: {source}; write it again with train.py")]
    Npy {
        /// The name of the file.
        file: &'static str,
        /// The cause.
        source: ndarray_npy::ReadNpyError,
    },
    /// A file of weights has another shape than the model.
    #[error("weights/{file} has the shape {found:?}, and the model takes {expected:?}")]
    Shape {
        /// The name of the file.
        file: &'static str,
        /// The shape in the file.
        found: Vec<usize>,
        /// The shape of the model.
        expected: Vec<usize>,
    },
    /// The device or an operation on it failed.
    #[error(transparent)]
    Device(#[from] cuda_async::Error),
}
