//! The table of instructions: every form with its operands, its first version of PTX and its first target.
//!
//! `instructions.txt` is the only list of forms. `pattern` reads it once, [`rows`] returns the result, `find` returns
//! the rows that an instruction's name matches. `check` compares the operands with a row. The CPU device decodes an
//! instruction only after it matched a row. The page of the book and the tests of the grammar expand the rows with
//! [`Row::forms`].
//!
//! This folder uses the enums of words and types. A new instruction is one line of `instructions.txt`, and a variant of
//! [`Opcode`] or [`Word`] if it has a new word.

mod forms;
mod pattern;

use std::ops::Range;
use std::sync::LazyLock;

use crate::words::{Modifier, Opcode, ScalarType, Word};

pub use self::forms::Form;

/// A form of an instruction: a line of the table.
#[derive(Debug, Clone)]
pub struct Row {
    pub(crate) opcode: Opcode,
    places: Vec<Place>,
    /// All words of the places.
    words: Set,
    pub(crate) operands: Vec<Pattern>,
    /// The requirement of all forms.
    needs: Needs,
    /// Modules with this version and this target, or later ones, do not have the form.
    pub(crate) before: Option<Needs>,
    /// The further requirements of forms with a word.
    word_needs: Vec<(Modifier, Needs)>,
    runs: bool,
    data: bool,
    line: usize,
    section: &'static str,
    text: String,
    remarks: &'static str,
}

/// A place in a name for one of several words.
#[derive(Debug, Clone)]
struct Place {
    words: Set,
    optional: bool,
    /// Whether the word directly follows the words before it.
    fixed: bool,
}

/// The first version of PTX, and the first target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Needs {
    pub(crate) version: (u32, u32),
    pub(crate) target: Target,
}

/// The requirement that every version and target meets.
pub(crate) const NOTHING: Needs =
    Needs { version: (1, 0), target: Target { number: 0, specific: false } };

impl Needs {
    /// Returns what meets both requirements.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { version: self.version.max(other.version), target: self.target.max(other.target) }
    }
}

/// A target architecture: `sm_90`, or `sm_90a` if `specific`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Target {
    pub(crate) number: u32,
    /// Whether only this architecture, or its family, has the instruction.
    pub(crate) specific: bool,
}

/// The pattern of an operand.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Pattern {
    Value(Value),
    Memory(Memory),
    /// An integer constant.
    Constant(Integers),
    /// A cache policy, if the name has `L2::cache_hint`.
    Policy,
    Label,
    Targets,
    /// The operands of a call.
    Call,
    /// A number above 0 and at most 1; may be left out.
    Fraction,
    /// `_`.
    Sink,
}

/// The pattern of a register or constant.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Value {
    pub(crate) ty: Type,
    pub(crate) lanes: Lanes,
    /// Whether the instruction writes it.
    pub(crate) result: bool,
    /// Whether its register may be wider than the type.
    pub(crate) relaxed: bool,
    pub(crate) constants: Constants,
    /// Whether a part of a register may or must stand here: `%r1.b0`.
    pub(crate) part: Part,
    /// Whether the register may be negated: `-%r1`.
    pub(crate) negates: bool,
    /// The second result, a predicate, as in `d|p`.
    pub(crate) second: Second,
    pub(crate) optional: bool,
    /// Whether a single result may be `_`.
    pub(crate) discards: bool,
    /// The integer constants that it may be.
    pub(crate) integers: Integers,
}

/// A set of integer constants. A negative constant is a number above `i64::MAX`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Integers {
    All,
    OneOf(Vec<u64>),
    /// The multiples of `step` from `first` to `last`.
    Range {
        first: u64,
        last: u64,
        step: u64,
    },
}

impl Integers {
    pub(crate) fn contains(&self, value: u64) -> bool {
        match self {
            Self::All => true,
            Self::OneOf(values) => values.contains(&value),
            Self::Range { first, last, step } => {
                (first..=last).contains(&&value) && value.is_multiple_of(*step)
            }
        }
    }

    /// Returns an element.
    fn first(&self) -> u64 {
        match self {
            Self::All => 1,
            Self::OneOf(values) => values.first().copied().unwrap_or(1),
            Self::Range { first, .. } => *first,
        }
    }
}

/// A type of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    /// The type with this index among the types of the name.
    Nth(usize),
    Last,
    /// The integer type of twice the size of the last type.
    Double,
    Is(ScalarType),
}

/// The number of elements of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lanes {
    One,
    /// A vector in braces.
    Count(usize),
    /// A vector if the name has `.v2`, `.v4` or `.v8`.
    ByName,
}

/// The values that an operand may have beside registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Constants {
    None,
    Literals,
    /// Literals and special registers.
    Special,
    /// Literals and addresses of symbols.
    Addresses,
    /// Literals, special registers and addresses of symbols.
    All,
}

/// Whether an operand is a part of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    No,
    /// A whole register, a constant or a part.
    Allowed,
    /// A part, because the rest of the register is another operand.
    Required,
    /// A whole register, a constant, or two halfwords or four bytes: `%r1.b3210`.
    Packed(usize),
}

/// A second result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Second {
    None,
    Optional,
    Required,
}

/// The access of an instruction to the memory at an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Memory {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

/// A row that the name of an instruction matches, and the types of the name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Match {
    pub(crate) row: &'static Row,
    types: [Option<ScalarType>; MAX_TYPES],
    /// The number of elements of `.v2`, `.v4` and `.v8`, else 1.
    pub(crate) lanes: usize,
    /// Whether the name has `L2::cache_hint`.
    pub(crate) policy: bool,
}

/// The maximum number of types in a name.
const MAX_TYPES: usize = 4;

/// Returns the rows of the table.
pub fn rows() -> &'static [Row] {
    &TABLE.rows
}

/// Returns the rows that the name of an instruction matches. They differ in their operands.
pub(crate) fn find(opcode: Opcode, modifiers: &[Modifier]) -> impl Iterator<Item = Match> {
    let range = TABLE.ranges.get(opcode as usize).cloned().unwrap_or_default();
    let rows = TABLE.rows.get(range).unwrap_or_default();
    let words: Set = modifiers.iter().copied().collect();
    rows.iter()
        .filter(move |row| row.words.contains_all(&words))
        .filter_map(|row| row.matches(modifiers))
}

static TABLE: LazyLock<Table> = LazyLock::new(Table::new);

struct Table {
    /// In the order of their opcodes.
    rows: Vec<Row>,
    /// The rows of each opcode.
    ranges: Vec<Range<usize>>,
}

impl Table {
    fn new() -> Self {
        let mut rows = pattern::read(include_str!("instructions.txt"));
        rows.sort_by_key(|row| row.opcode);
        let mut ranges = vec![0..0; Opcode::ALL.len()];
        for (at, row) in rows.iter().enumerate() {
            if let Some(range) = ranges.get_mut(row.opcode as usize) {
                let start = if range.start == range.end { at } else { range.start };
                *range = start..at + 1;
            }
        }
        Self { rows, ranges }
    }
}

impl Row {
    /// Returns the opcode.
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Returns whether the CPU device runs the form.
    pub fn runs(&self) -> bool {
        self.runs
    }

    /// Returns whether the results of a thread depend only on the thread's own sources, and on nothing else.
    pub fn is_data(&self) -> bool {
        self.data
    }

    /// Returns the heading of the part of the table that has the row.
    pub fn section(&self) -> &'static str {
        self.section
    }

    /// Returns the line of `instructions.txt`, from 1. A line with several opcodes, or with words that depend on each
    /// other, has several rows.
    pub fn line(&self) -> usize {
        self.line
    }

    /// Returns the name in the line of the table: `{a,b}` is one of the words, `[.a]` may be left out, and a word with
    /// `!` directly follows the words before it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns the first version of PTX and the first target, as the line of the table has them. Empty if every version
    /// and target has the instructions.
    pub fn remarks(&self) -> &'static str {
        self.remarks
    }

    /// Returns the first version of PTX and the first target that have the form with these words.
    pub(crate) fn needs(&self, modifiers: &[Modifier]) -> Needs {
        let words = self.word_needs.iter().filter(|(word, _)| modifiers.contains(word));
        words.fold(self.needs, |all, (_, needs)| all.and(*needs))
    }

    /// Compares the words of a name.
    fn matches(&'static self, modifiers: &[Modifier]) -> Option<Match> {
        let mut found = Match { row: self, types: [None; MAX_TYPES], lanes: 1, policy: false };
        let (mut filled, mut types, mut last_space) = (0_u64, 0, 0);
        for &modifier in modifiers {
            let place = self.free_place(modifier, filled);
            match (modifier, place) {
                (_, None) => return None,
                // A type cannot be written twice for one place.
                (_, Some(place)) if self.places.get(place)?.fixed && filled >> place != 0 => {
                    return None;
                }
                // The space of the destination is written first.
                (Modifier::Word(word), Some(place)) if word.space().is_some() => {
                    if place < last_space {
                        return None;
                    }
                    (filled, last_space) = (filled | 1 << place, place);
                }
                (_, Some(place)) => filled |= 1 << place,
            }
            match modifier {
                Modifier::Type(ty) => {
                    *found.types.get_mut(types)? = Some(ty);
                    types += 1;
                }
                Modifier::Word(word) => found.take(word),
            }
        }
        let missing = |(at, place): (usize, &Place)| !place.optional && filled >> at & 1 == 0;
        (!self.places.iter().enumerate().any(missing)).then_some(found)
    }

    /// Returns the first place for a modifier that is not filled. For a type it is the first place for types.
    fn free_place(&self, modifier: Modifier, filled: u64) -> Option<usize> {
        let free = |at: &usize| filled >> at & 1 == 0;
        let mut places = (0..self.places.len()).filter(free);
        match modifier {
            Modifier::Word(_) => places.find(|&at| self.places[at].words.contains(modifier)),
            Modifier::Type(_) => {
                let first = places.find(|&at| self.places[at].words.has_types())?;
                self.places[first].words.contains(modifier).then_some(first)
            }
        }
    }
}

impl Match {
    fn take(&mut self, word: Word) {
        match word {
            Word::V2 => self.lanes = 2,
            Word::V4 => self.lanes = 4,
            Word::V8 => self.lanes = 8,
            Word::L2CacheHint => self.policy = true,
            _ => {}
        }
    }

    /// Returns the type that a pattern names.
    pub(crate) fn ty(&self, ty: Type) -> Option<ScalarType> {
        let last = || self.types.iter().rev().find_map(|ty| *ty);
        match ty {
            Type::Nth(index) => *self.types.get(index)?,
            Type::Last => last(),
            Type::Double => last()?.doubled(),
            Type::Is(ty) => Some(ty),
        }
    }
}

/// The number of words of 64 bits: one bit for each modifier.
const WORDS: usize = (Word::ALL.len() + ScalarType::ALL.len()).div_ceil(64);

/// A set of modifiers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Set([u64; WORDS]);

/// Returns the bit of a modifier. Types come first.
const fn bit(modifier: Modifier) -> usize {
    match modifier {
        Modifier::Type(ty) => ty as usize,
        Modifier::Word(word) => ScalarType::ALL.len() + word as usize,
    }
}

impl Set {
    fn contains(&self, modifier: Modifier) -> bool {
        let bit = bit(modifier);
        self.0[bit / 64] >> (bit % 64) & 1 != 0
    }

    fn contains_all(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| other & !own == 0)
    }

    /// Returns whether the set has types.
    fn has_types(&self) -> bool {
        const { assert!(ScalarType::ALL.len() < 64) };
        self.0[0] & ((1 << ScalarType::ALL.len()) - 1) != 0
    }

    /// Returns the modifiers in the order of their enums, types first.
    fn modifiers(&self) -> impl Iterator<Item = Modifier> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn matching(name: &str) -> usize {
        let mut words = name.split('.');
        let opcode = Opcode::from_name(words.next().unwrap()).unwrap();
        let modifiers: Vec<_> = words.map(|word| Modifier::from_name(word).unwrap()).collect();
        find(opcode, &modifiers).count()
    }

    #[test]
    fn words_match_in_any_order_and_types_in_theirs() {
        assert_eq!(matching("add.sat.s32"), 1);
        assert_eq!(matching("add.s32.sat"), 1);
        assert_eq!(matching("add.sat.u32"), 0);
        assert_eq!(matching("add.s32.s32"), 0);
        assert_eq!(matching("add"), 0);
        assert_eq!(matching("cvt.rn.f16.f32"), 1);
        assert_eq!(matching("cvt.f16.rn.f32"), 1);
        assert_eq!(matching("cvt.rni.f32.f16"), 0);
        assert_eq!(matching("add.rn.rz.f32"), 0);
    }

    #[test]
    fn fixed_words_follow_the_opcode() {
        assert_eq!(matching("mul.lo.u32"), 1);
        assert_eq!(matching("mul.u32.lo"), 0);
        assert_eq!(matching("mad.cc.lo.u32"), 0);
        assert_eq!(matching("bar.cta.sync"), 1);
    }
}
