//! The data set: 1,797 images of 8 x 8 pixels with their digits. `data/README.md` names its source.

use std::slice::Chunks;

use super::{CLASSES, Error};

/// The width and height of an image in pixels.
pub const SIDE: usize = 8;

/// The number of pixels of an image.
pub const PIXELS: usize = SIDE * SIDE;

/// The largest value of a pixel.
const DARKEST: u8 = 16;

/// Images with their digits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digits {
    pixels: Vec<u8>,
    labels: Vec<u8>,
}

/// Whether this row was held out of the training. Every fifth row was.
pub const fn is_held_out(row: usize) -> bool {
    row.is_multiple_of(5)
}

impl Digits {
    /// Parses the data set, which is embedded in the program.
    ///
    /// # Errors
    /// [`Error::Row`] if a row of the file is invalid.
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

    /// Returns the number of images.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there are no images.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The digit of each image.
    pub fn labels(&self) -> &[u8] {
        &self.labels
    }

    /// The pixels of one image, row by row, from 0 (paper) to 16 (ink). Empty if there is no such image.
    pub fn image(&self, row: usize) -> &[u8] {
        self.pixels.chunks(PIXELS).nth(row).unwrap_or_default()
    }

    /// Iterates over the pixels in batches of up to `images` images.
    pub fn batches(&self, images: usize) -> Chunks<'_, u8> {
        self.pixels.chunks(images.max(1) * PIXELS)
    }

    /// Returns the held-out rows as a data set.
    #[must_use]
    pub fn held_out(&self) -> Self {
        let rows = || (0..self.len()).filter(|&row| is_held_out(row));
        Self {
            pixels: rows().flat_map(|row| self.image(row)).copied().collect(),
            labels: rows().map(|row| self.labels[row]).collect(),
        }
    }
}
