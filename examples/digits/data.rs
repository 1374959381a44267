//! The data set: 1,797 images of 8 x 8 pixels and the digits they show. `data/README.md` says where it is
//! from.

use std::slice::Chunks;

use super::{CLASSES, Error};

/// Pixels of an image, each way.
pub const SIDE: usize = 8;

/// Pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// The darkest pixel.
const DARKEST: u8 = 16;

/// Images and what they show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digits {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

/// Whether the network has never seen this row: every fifth was kept from training.
pub const fn is_held_out(row: usize) -> bool {
    row.is_multiple_of(5)
}

impl Digits {
    /// The data set, which is part of the program.
    ///
    /// # Errors
    /// [`Error::Row`] if somebody has edited the file.
    pub fn load() -> Result<Self, Error> {
        let mut digits = Self { pixels: Vec::new(), labels: Vec::new() };
        for (index, row) in include_str!("data/digits.csv").lines().enumerate() {
            digits.push(row).ok_or(Error::Row { line: index + 1 })?;
        }
        Ok(digits)
    }

    fn push(&mut self, row: &str) -> Option<()> {
        let numbers: Vec<u8> = row.split(',').map(|n| n.parse().ok()).collect::<Option<_>>()?;
        let (&label, pixels) = numbers.split_last()?;
        let in_range = pixels.iter().all(|&p| p <= DARKEST) && usize::from(label) < CLASSES;
        if pixels.len() != PIXELS || !in_range {
            return None;
        }
        self.pixels.extend_from_slice(pixels);
        self.labels.push(label);
        Some(())
    }

    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// What each image shows.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The pixels of one image, row by row, from 0 (paper) to 16 (ink); none if there is no such image.
    pub fn image(&self, row: usize) -> &[u8] {
        self.pixels.chunks(PIXELS).nth(row).unwrap_or_default()
    }

    /// The pixels of up to `images` images at a time.
    pub fn batches(&self, images: usize) -> Chunks<'_, u8> {
        self.pixels.chunks(images.max(1) * PIXELS)
    }

    /// The rows that were kept from training, as a set of their own.
    #[must_use]
    pub fn held_out(&self) -> Self {
        let rows = || (0..self.len()).filter(|&row| is_held_out(row));
        Self {
            pixels: rows().flat_map(|row| self.image(row)).copied().collect(),
            labels: rows().map(|row| self.labels[row]).collect(),
        }
    }
}
