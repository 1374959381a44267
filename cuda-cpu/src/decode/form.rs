//! The modifiers of an instruction while its handler is selected.

use cuda_ptx::{Instruction, Modifier, Operand, ScalarType, Word};

/// An instruction and its modifiers that are not yet taken. A handler is valid only if all modifiers were taken, so
/// none is ignored by mistake.
pub(crate) struct Form<'a> {
    ins: &'a Instruction,
    /// A bit for each modifier that is not taken.
    left: u64,
    /// Whether a zero operand is appended (see [`Form::append_zero`]), and the number of operands that are already
    /// consumed.
    pub(crate) zero_appended: bool,
    pub(crate) constants_taken: usize,
}

impl<'a> Form<'a> {
    /// Creates the form of an instruction. Instructions have at most 64 modifiers
    /// ([`cuda_ptx::limits::MAX_MODIFIERS`]).
    pub(crate) fn new(ins: &'a Instruction) -> Self {
        let left = u64::MAX.checked_shr(u64::BITS - ins.modifiers.len() as u32).unwrap_or(0);
        Self { ins, left, zero_appended: false, constants_taken: 0 }
    }

    pub(crate) fn instruction(&self) -> &'a Instruction {
        self.ins
    }

    /// Returns the modifiers that are not taken, with their positions.
    fn left(&self) -> impl Iterator<Item = (usize, Modifier)> {
        let left = self.left;
        self.ins.modifiers.iter().copied().enumerate().filter(move |(at, _)| left >> at & 1 != 0)
    }

    /// Takes this modifier. Returns false if it is absent.
    pub(crate) fn take(&mut self, word: Word) -> bool {
        self.take_one(&[word]).is_some()
    }

    /// Takes the first modifier that is one of `words`.
    pub(crate) fn take_one(&mut self, words: &[Word]) -> Option<Word> {
        let found = self.left().find_map(|(at, modifier)| match modifier {
            Modifier::Word(word) if words.contains(&word) => Some((at, word)),
            _ => None,
        });
        let (at, word) = found?;
        self.left &= !(1 << at);
        Some(word)
    }

    /// Takes the first modifier that is one of `words`. Returns its position in `words`, which is the code of a mode.
    pub(crate) fn take_code(&mut self, words: &[Word]) -> Option<u64> {
        let taken = self.take_one(words)?;
        words.iter().position(|word| *word == taken).map(|at| at as u64)
    }

    /// Takes the first modifier that is in `table`. Returns its value.
    pub(crate) fn take_from<T: Copy>(&mut self, table: &[(Word, T)]) -> Option<T> {
        let (at, value) = self.left().find_map(|(at, modifier)| {
            let found = table.iter().find(|(word, _)| modifier == Modifier::Word(*word));
            found.map(|(_, value)| (at, *value))
        })?;
        self.left &= !(1 << at);
        Some(value)
    }

    /// Takes `rn`, `rz`, `rm` or `rp`. Returns its code.
    pub(crate) fn take_round(&mut self) -> Option<u64> {
        self.take_one(&[Word::Rn, Word::Rz, Word::Rm, Word::Rp]).map(round_code)
    }

    /// Takes the first modifier that is a type.
    pub(crate) fn ty(&mut self) -> Option<ScalarType> {
        self.find_ty(|_| true)
    }

    /// Takes the first type that is one of `types`.
    pub(crate) fn ty_of(&mut self, types: &[ScalarType]) -> Option<ScalarType> {
        self.find_ty(|ty| types.contains(&ty))
    }

    /// Takes this type. Returns false if it is absent.
    pub(crate) fn take_ty(&mut self, ty: ScalarType) -> bool {
        self.ty_of(&[ty]).is_some()
    }

    fn find_ty(&mut self, fits: impl Fn(ScalarType) -> bool) -> Option<ScalarType> {
        let (at, ty) = self.types().find(|(_, ty)| fits(*ty))?;
        self.left &= !(1 << at);
        Some(ty)
    }

    /// Returns the first modifier that is a type, without taking it.
    pub(crate) fn peek_ty(&self) -> Option<ScalarType> {
        self.types().next().map(|(_, ty)| ty)
    }

    /// Returns the type, if there is one that is not taken.
    pub(crate) fn only_ty(&self) -> Option<ScalarType> {
        let mut types = self.types();
        types.next().filter(|_| types.next().is_none()).map(|(_, ty)| ty)
    }

    /// Returns the types that are not taken, with their positions.
    fn types(&self) -> impl Iterator<Item = (usize, ScalarType)> {
        self.left().filter_map(|(at, modifier)| match modifier {
            Modifier::Type(ty) => Some((at, ty)),
            Modifier::Word(_) => None,
        })
    }

    /// Returns whether the modifier is present and not taken.
    pub(crate) fn has(&self, word: Word) -> bool {
        self.left().any(|(_, modifier)| modifier == Modifier::Word(word))
    }

    /// Returns whether the type is present and not taken.
    pub(crate) fn has_ty(&self, ty: ScalarType) -> bool {
        self.types().any(|(_, found)| found == ty)
    }

    /// Returns whether all modifiers were taken.
    pub(crate) fn is_spent(&self) -> bool {
        self.left == 0
    }

    pub(crate) fn operand(&self, index: usize) -> Option<&'a Operand> {
        self.ins.operands.get(index)
    }

    /// Takes the integer constant at operand `index`. Returns `None` if the operand is not a constant.
    pub(crate) fn constant_operand(&mut self, index: usize) -> Option<u64> {
        let Operand::Int(value) = self.operand(index)? else { return None };
        self.constants_taken += 1;
        Some(*value)
    }

    /// Appends a zero as a source operand for handlers with one more source than the instruction.
    pub(crate) fn append_zero(&mut self) {
        self.zero_appended = true;
    }
}

/// Returns the code of a rounding mode (see [`Round::from_code`](crate::exec::number::rounding::Round::from_code)).
pub(crate) fn round_code(mode: Word) -> u64 {
    match mode {
        Word::Rz | Word::Rzi => 1,
        Word::Rm | Word::Rmi => 2,
        Word::Rp | Word::Rpi => 3,
        _ => 0,
    }
}
