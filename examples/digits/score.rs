//! What the network read, and how much of it is right.

use super::{CLASSES, Digits, is_held_out};

/// What was read, image by image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// The digit each image was taken for.
    pub labels: Vec<u32>,
    /// How sure of it the network was, from 0 to 1.
    pub confidence: Vec<f32>,
}

/// How many of how many are right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    /// Those that are.
    pub right: usize,
    /// All.
    pub of: usize,
}

impl Readings {
    /// Adds a batch: a digit per image, and the probabilities of all digits.
    pub fn push(&mut self, labels: &[u32], probabilities: &[f32]) {
        let largest = |row: &[f32]| row.iter().copied().fold(0.0, f32::max);
        self.labels.extend_from_slice(labels);
        self.confidence.extend(probabilities.chunks(CLASSES).map(largest));
    }

    /// How well the rows were read that the network has never seen.
    pub fn held_out_score(&self, digits: &Digits) -> Score {
        let held_out =
            || (0..digits.len()).filter(|&row| is_held_out(row) && row < self.labels.len());
        Score {
            right: held_out().filter(|&row| self.is_right(digits, row)).count(),
            of: held_out().count(),
        }
    }

    /// Whether this row was read as what it shows.
    pub fn is_right(&self, digits: &Digits, row: usize) -> bool {
        self.labels.get(row).copied() == digits.labels().get(row).copied().map(u32::from)
    }

    /// A checksum over all digits read (64-bit FNV-1a): the same on every device.
    pub fn checksum(&self) -> u64 {
        let step =
            |hash: u64, label: &u32| (hash ^ u64::from(*label)).wrapping_mul(0x0000_0100_0000_01b3);
        self.labels.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

impl Score {
    /// The part that is right, from 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.of.max(1) as f64
    }
}
