//! The predictions of the network and their accuracy.

use super::{CLASSES, Digits, is_held_out};

/// The prediction for each image.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// The predicted digit of each image.
    pub labels: Vec<u32>,
    /// The probability of the predicted digit, from 0 to 1.
    pub confidence: Vec<f32>,
}

/// The number of correct predictions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Score {
    /// The number of correct predictions.
    pub right: usize,
    /// The number of all predictions.
    pub of: usize,
}

impl Readings {
    /// Adds a batch: a digit per image, and the probabilities of all digits.
    pub fn push(&mut self, labels: &[u32], probabilities: &[f32]) {
        let largest = |row: &[f32]| row.iter().copied().fold(0.0, f32::max);
        self.labels.extend_from_slice(labels);
        self.confidence.extend(probabilities.chunks(CLASSES).map(largest));
    }

    /// Returns the score of the held-out rows.
    pub fn held_out_score(&self, digits: &Digits) -> Score {
        let held_out =
            || (0..digits.len()).filter(|&row| is_held_out(row) && row < self.labels.len());
        Score {
            right: held_out().filter(|&row| self.is_right(digits, row)).count(),
            of: held_out().count(),
        }
    }

    /// Whether the prediction for this row is correct.
    pub fn is_right(&self, digits: &Digits, row: usize) -> bool {
        self.labels.get(row).copied() == digits.labels().get(row).copied().map(u32::from)
    }

    /// Returns a checksum of all predicted digits (64-bit FNV-1a). It is the same on every device.
    pub fn checksum(&self) -> u64 {
        let step =
            |hash: u64, label: &u32| (hash ^ u64::from(*label)).wrapping_mul(0x0000_0100_0000_01b3);
        self.labels.iter().fold(0xcbf2_9ce4_8422_2325, step)
    }
}

impl Score {
    /// Returns the fraction of correct predictions, from 0 to 1.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.of.max(1) as f64
    }
}
