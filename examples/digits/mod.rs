//! Classification of handwritten digits: the data set, a trained network, its layers as device operations, and a
//! picture of the results. The program is in `main.rs`.

mod canvas;
mod data;
mod error;
mod model;
mod picture;
mod score;
mod weights;

pub use data::{Digits, PIXELS, SIDE, is_held_out};
pub use error::Error;
pub use model::{Floats, Labels, Model};
pub use picture::draw;
pub use score::{Readings, Score};
pub use weights::{CLASSES, Dense, Weights};
