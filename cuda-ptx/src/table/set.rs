//! Sets of modifiers.

use crate::modifier::{Modifier, Word};
use crate::types::ScalarType;

/// The number of words of 64 bits: one bit for each modifier.
const WORDS: usize = (Word::ALL.len() + ScalarType::ALL.len()).div_ceil(64);

/// A set of modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Set([u64; WORDS]);

/// Returns the bit of a modifier. Types come first.
const fn bit(modifier: Modifier) -> usize {
    match modifier {
        Modifier::Type(ty) => ty as usize,
        Modifier::Word(word) => ScalarType::ALL.len() + word as usize,
    }
}

impl Set {
    pub(super) fn contains(&self, modifier: Modifier) -> bool {
        let bit = bit(modifier);
        self.0[bit / 64] >> (bit % 64) & 1 != 0
    }

    pub(super) fn contains_all(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| other & !own == 0)
    }

    /// Returns whether the set has types.
    pub(super) fn has_types(&self) -> bool {
        const { assert!(ScalarType::ALL.len() < 64) };
        self.0[0] & ((1 << ScalarType::ALL.len()) - 1) != 0
    }

    /// Returns the modifiers in the order of their enums, types first.
    pub(super) fn modifiers(&self) -> impl Iterator<Item = Modifier> {
        let types = ScalarType::ALL.iter().map(|ty| Modifier::Type(*ty));
        let all = types.chain(Word::ALL.iter().map(|word| Modifier::Word(*word)));
        all.filter(|modifier| self.contains(*modifier))
    }
}

impl FromIterator<Modifier> for Set {
    fn from_iter<T: IntoIterator<Item = Modifier>>(modifiers: T) -> Self {
        let mut set = Self::default();
        for modifier in modifiers {
            let bit = bit(modifier);
            set.0[bit / 64] |= 1 << (bit % 64);
        }
        set
    }
}
