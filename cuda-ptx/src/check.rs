//! Compares instructions with the table: names, operands, types, and the `.version` and `.target` that they need.
//! Compares calls with the declared functions.
//!
//! The rules are those that NVIDIA's assembler, `ptxas` 13.5, was measured to have.

use std::fmt;

use crate::ast::{
    Address, AddressBase, Body, Guard, Instruction, Module, Operand, Param, RegId, Symbol,
};
use crate::special::{Special, SpecialName};
use crate::table::{
    Constants, Integers, Lanes, Match, Memory, Needs, Part, Pattern, Row, Second, Target, Type,
    Value, find,
};
use crate::words::{Modifier, Opcode, ScalarKind, ScalarType, Space, Word};

/// An instruction that matches a row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Checked<'a> {
    found: Match,
    modifiers: &'a [Modifier],
    operands: &'a [Operand],
}

/// The use of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The instruction writes it.
    Result,
    /// The instruction reads it: a register, a constant, or the operands of a call.
    Source,
    /// The address of memory.
    Address {
        /// Whether the memory is read.
        reads: bool,
        /// Whether the memory is written.
        writes: bool,
    },
    /// A label or a list of targets.
    Label,
}

impl<'a> Checked<'a> {
    /// Returns the row.
    pub fn row(&self) -> &'static Row {
        self.found.row
    }

    /// Returns the last type of the name.
    pub fn ty(&self) -> Option<ScalarType> {
        self.found.ty(Type::Last)
    }

    /// Returns whether the name has a word.
    pub fn has(&self, word: Word) -> bool {
        self.modifiers.contains(&Modifier::Word(word))
    }

    /// Returns the operands with their uses.
    pub fn roles(&self) -> impl Iterator<Item = (&'a Operand, Role)> {
        let operands = self.operands;
        aligned(self.found, operands.len()).zip(operands).map(|(pattern, operand)| {
            let role = match pattern {
                Pattern::Value(Value { result: true, .. }) | Pattern::Sink => Role::Result,
                Pattern::Memory(Memory { reads, writes }) => {
                    Role::Address { reads: *reads, writes: *writes }
                }
                Pattern::Label | Pattern::Targets => Role::Label,
                Pattern::Value(_)
                | Pattern::Constant(_)
                | Pattern::Policy
                | Pattern::Call
                | Pattern::Fraction => Role::Source,
            };
            (operand, role)
        })
    }
}

/// The reason why an instruction is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mismatch {
    /// The table has no instruction with this opcode and these modifiers.
    Name,
    /// The number of operands is wrong.
    Count {
        /// The smallest and the largest number of operands.
        expected: (usize, usize),
        /// The number of operands that are written.
        found: usize,
    },
    /// An operand is wrong.
    Operand {
        /// The number of the operand, from 1.
        number: usize,
        /// The operand that the instruction takes.
        expected: String,
        /// The operand that is written.
        found: String,
    },
    /// The guard is not a predicate.
    Guard,
    /// `.version` is too old.
    Version {
        /// The first version that has the instruction.
        needs: (u32, u32),
        /// `.version` of the module.
        found: (u32, u32),
    },
    /// `.target` is too old, or another family.
    Target {
        /// The first target that has the instruction.
        needs: String,
        /// `.target` of the module.
        found: String,
    },
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => {
                f.write_str("PTX has no such instruction, or this version does not know it")
            }
            Self::Count { expected: (least, most), found } if least == most => {
                write!(f, "takes {least} operands, not {found}")
            }
            Self::Count { expected: (least, most), found } => {
                write!(f, "takes {least} to {most} operands, not {found}")
            }
            Self::Operand { number, expected, found } => {
                write!(f, "operand {number} is {found}; write {expected}")
            }
            Self::Guard => f.write_str("the guard is not a predicate"),
            Self::Version { needs: (major, minor), found } => {
                write!(
                    f,
                    "needs `.version {major}.{minor}`, the module has {}.{}",
                    found.0, found.1
                )
            }
            Self::Target { needs, found } => {
                write!(f, "needs `.target {needs}`, the module has {found}")
            }
        }
    }
}

impl std::error::Error for Mismatch {}

/// Compares the instructions of one function with the table.
#[derive(Debug, Clone, Copy)]
pub struct Checker<'a> {
    pub(crate) module: &'a Module,
    pub(crate) body: &'a Body,
    target: Option<Target>,
}

impl<'a> Checker<'a> {
    /// Creates the checker for the body of a function of the module.
    pub fn new(module: &'a Module, body: &'a Body) -> Self {
        let target = module.target.first().and_then(|name| name.strip_prefix("sm_"));
        let target = target.and_then(|name| {
            let number = name.trim_end_matches(|c: char| c.is_ascii_lowercase());
            Some(Target { number: number.parse().ok()?, specific: name != number })
        });
        Self { module, body, target }
    }

    /// Compares an instruction with the table.
    ///
    /// # Errors
    /// If the table has no such instruction, an operand does not fit, or `.version` or `.target` of the module is too
    /// old.
    pub fn check<'i>(&self, instruction: &'i Instruction) -> Result<Checked<'i>, Mismatch> {
        let Instruction { guard, opcode, modifiers, operands, .. } = instruction;
        let opcode = *opcode.as_ref().map_err(|_| Mismatch::Name)?;
        if let Some(Guard { register, .. }) = guard
            && self.register(*register) != Some(ScalarType::Pred)
        {
            return Err(Mismatch::Guard);
        }
        let mut error: Option<Mismatch> = None;
        for found in find(opcode, modifiers) {
            match self
                .operands(found, instruction)
                .and_then(|()| self.requirements(found, instruction))
            {
                Ok(()) => return Ok(Checked { found, modifiers, operands }),
                // The row that takes most operands explains most.
                Err(new) => {
                    let keep = match (&error, &new) {
                        (
                            Some(Mismatch::Operand { number, .. }),
                            Mismatch::Operand { number: new, .. },
                        ) => number >= new,
                        (
                            Some(Mismatch::Operand { .. } | Mismatch::Count { .. }),
                            Mismatch::Count { .. },
                        )
                        | (Some(Mismatch::Version { .. } | Mismatch::Target { .. }), _) => true,
                        _ => false,
                    };
                    if !keep {
                        error = Some(new);
                    }
                }
            }
        }
        Err(error.unwrap_or(Mismatch::Name))
    }

    fn requirements(
        &self,
        Match { row, .. }: Match,
        Instruction { modifiers, operands, .. }: &Instruction,
    ) -> Result<(), Mismatch> {
        let specials = operands.iter().filter_map(|operand| match operand {
            Operand::Special(special) => Some(special.needs()),
            _ => None,
        });
        let Needs { mut version, target } = specials.fold(row.needs(modifiers), Needs::and);
        if row.operands.iter().any(|pattern| matches!(pattern, Pattern::Memory(_)))
            && spaces(modifiers).next().is_none()
        {
            version = version.max(GENERIC_ADDRESSES);
        }
        if self.module.version < version {
            return Err(Mismatch::Version { needs: version, found: self.module.version });
        }
        if let Some(before) = row.before
            && self.module.version >= before.version
            && self.target.is_some_and(|own| own.number >= before.target.number)
        {
            return Err(Mismatch::Name);
        }
        let has = |own: Target| own.number >= target.number && (own.specific || !target.specific);
        if self.target.is_some_and(|own| !has(own)) {
            let Target { number, specific } = target;
            let needs = format!("sm_{number}{}", if specific { "a" } else { "" });
            let found = self.module.target.first().cloned().unwrap_or_default();
            return Err(Mismatch::Target { needs, found });
        }
        Ok(())
    }

    fn operands(&self, found: Match, instruction: &Instruction) -> Result<(), Mismatch> {
        let operands = &instruction.operands;
        if has_call(found) {
            return self.call(operands);
        }
        let (least, most) = counts(found);
        if operands.len() != least && operands.len() != most {
            return Err(Mismatch::Count { expected: (least, most), found: operands.len() });
        }
        let mut addresses = 0;
        for (at, (pattern, operand)) in aligned(found, operands.len()).zip(operands).enumerate() {
            let mut space = None;
            if matches!(pattern, Pattern::Memory(_)) {
                space = address_space(&instruction.modifiers, addresses)?
                    .or(implied_space(found.row.opcode));
                addresses += 1;
            }
            let is_elsewhere = |symbol| match found.row.opcode {
                Opcode::Cvta => self.space(symbol) != spaces(&instruction.modifiers).next(),
                opcode => implied_space(opcode).is_some_and(|own| self.space(symbol) != Some(own)),
            };
            if !self.fits(found, pattern, operand, space)
                || matches!(*operand, Operand::Symbol(symbol, _) if is_elsewhere(symbol))
            {
                return Err(Mismatch::Operand {
                    number: at + 1,
                    expected: expected(found, pattern),
                    found: self.describe(operand),
                });
            }
        }
        Ok(())
    }

    fn fits(
        &self,
        found: Match,
        pattern: &Pattern,
        operand: &Operand,
        space: Option<Space>,
    ) -> bool {
        match (pattern, operand) {
            (Pattern::Value(value), operand) => self.fits_value(found, value, operand),
            (Pattern::Memory(_), Operand::Address(address)) => self.fits_address(address, space),
            (Pattern::Constant(integers), Operand::Int(bits)) => integers.contains(*bits),
            (Pattern::Policy, operand) => self.fits_type(operand, ScalarType::U64, false),
            (Pattern::Label, Operand::Label(_)) | (Pattern::Targets, Operand::Targets(_)) => true,
            (Pattern::Call, _) | (Pattern::Sink, Operand::Discard) => true,
            (Pattern::Fraction, Operand::F64(bits)) => is_fraction(f64::from_bits(*bits)),
            (Pattern::Fraction, Operand::F32(bits)) => is_fraction(f32::from_bits(*bits).into()),
            (Pattern::Fraction, operand) => {
                matches!(operand, Operand::Reg(_))
                    && self.fits_type(operand, ScalarType::F32, false)
            }
            _ => false,
        }
    }

    fn fits_value(&self, found: Match, value: &Value, operand: &Operand) -> bool {
        let Some(ty) = found.ty(value.ty) else { return false };
        let count = match value.lanes {
            Lanes::One => None,
            Lanes::Count(count) => Some(count),
            Lanes::ByName => Some(found.lanes).filter(|lanes| *lanes > 1),
        };
        let (operand, second) = match operand {
            Operand::Pair(first, second) => (&**first, Some(&**second)),
            operand => (operand, None),
        };
        let second_fits = match (value.second, second) {
            (Second::None | Second::Optional, None) => true,
            (Second::Optional | Second::Required, Some(second)) => {
                *second == Operand::Discard || self.is_register(second, ScalarType::Pred)
            }
            (Second::None, Some(_)) | (Second::Required, None) => false,
        };
        if !second_fits {
            return false;
        }
        let specials = matches!(value.constants, Constants::Special | Constants::All);
        let element = |operand: &Operand, is_element: bool| match operand {
            Operand::Discard => value.result && (is_element || second.is_some() || value.discards),
            Operand::Part(part) => {
                part.negated <= value.negates
                    && is_selected(value, &part.part)
                    && self.register(part.register).is_some_and(|own| fits(own, ty, false))
            }
            _ if value.part == Part::Required => false,
            Operand::Reg(_) => self.fits_type(operand, ty, value.relaxed),
            Operand::RegPlus(register, _) => {
                value.constants != Constants::None
                    && is_literal(&Operand::Int(0), ty)
                    && self.fits_type(&Operand::Reg(*register), ty, value.relaxed)
            }
            Operand::NotReg(_) => {
                !value.result && ty == ScalarType::Pred && self.fits_type(operand, ty, false)
            }
            Operand::Int(bits) => {
                value.constants != Constants::None
                    && is_literal(operand, ty)
                    && value.integers.contains(*bits)
            }
            Operand::F32(_) | Operand::F64(_) => {
                value.constants != Constants::None && is_literal(operand, ty)
            }
            Operand::Special(special) => {
                specials && special_fits(*special, ty, is_element, value.relaxed)
            }
            Operand::Symbol(..) => {
                matches!(value.constants, Constants::Addresses | Constants::All) && is_address(ty)
            }
            _ => false,
        };
        match (operand, count) {
            (Operand::Vector(parts), Some(count)) => {
                let types = || parts.iter().filter_map(|part| self.type_of(part));
                parts.len() == count
                    && parts.iter().all(|part| element(part, true))
                    && !parts.iter().all(|part| *part == Operand::Discard)
                    && types().zip(types().skip(1)).all(|(one, next)| fits(one, next, false))
            }
            // A single element may be in braces, as in Triton's output.
            (Operand::Vector(parts), None) if value.lanes == Lanes::ByName => {
                matches!(parts.as_slice(), [part] if element(part, false))
            }
            (Operand::Special(special @ Special::Named(name)), Some(4)) if name.is_vector() => {
                specials && special_fits(*special, ty, true, false)
            }
            (_, Some(_)) => false,
            (operand, None) => element(operand, false),
        }
    }

    /// Returns whether an operand is a register or constant of a type.
    fn fits_type(&self, operand: &Operand, ty: ScalarType, relaxed: bool) -> bool {
        match operand {
            Operand::Reg(id) | Operand::NotReg(id) => {
                self.register(*id).is_some_and(|own| fits(own, ty, relaxed))
            }
            operand => is_literal(operand, ty),
        }
    }

    /// Returns the declared type of an operand that is a register.
    fn type_of(&self, operand: &Operand) -> Option<ScalarType> {
        match operand {
            Operand::Reg(id) => self.register(*id),
            _ => None,
        }
    }

    fn is_register(&self, operand: &Operand, ty: ScalarType) -> bool {
        self.type_of(operand) == Some(ty)
    }

    pub(crate) fn register(&self, id: RegId) -> Option<ScalarType> {
        self.body.registers.get(id.0 as usize).map(|register| register.ty)
    }

    /// Returns whether an address has a base that can be one. `space` is the space that the instruction names, if any.
    fn fits_address(&self, address: &Address, space: Option<Space>) -> bool {
        let register = |id| {
            self.register(id).is_some_and(|ty| {
                matches!(ty.kind(), ScalarKind::Bits | ScalarKind::Signed | ScalarKind::Unsigned)
                    && ty.size() <= 8
            })
        };
        let symbol = |symbol| match (self.space(symbol), space) {
            (None, _) => false,
            (own, Some(space)) => own == Some(space),
            (Some(own), None) => !matches!(own, Space::Param | Space::Const),
        };
        match address.base {
            AddressBase::Reg(id) => register(id),
            AddressBase::Symbol(base) => symbol(base),
            AddressBase::Element { symbol: base, index, .. } => symbol(base) && register(index),
            AddressBase::Absolute => space == Some(Space::Local),
        }
    }

    /// Returns the state space of a symbol. `None` for functions.
    fn space(&self, symbol: Symbol) -> Option<Space> {
        match symbol {
            Symbol::Module(index) => self.module.variables.get(index as usize).map(|own| own.space),
            Symbol::Body(index) => self.body.variables.get(index as usize).map(|own| own.space),
            Symbol::Param(_) | Symbol::Return(_) => Some(Space::Param),
            Symbol::Function(_) => None,
        }
    }

    fn describe(&self, operand: &Operand) -> String {
        match operand {
            Operand::Reg(id) => match self.body.registers.get(id.0 as usize) {
                Some(register) => {
                    format!("the register `{}` of type {}", register.name, register.ty)
                }
                None => "a register".to_owned(),
            },
            Operand::NotReg(_) => "a negated predicate".to_owned(),
            Operand::RegPlus(..) => "a register plus a constant".to_owned(),
            Operand::Part(_) => "a part of a register".to_owned(),
            Operand::Pair(..) => "a pair".to_owned(),
            Operand::Int(bits) => format!("the integer {}", *bits as i64),
            Operand::F32(_) | Operand::F64(_) => "a floating-point constant".to_owned(),
            Operand::Special(special) => format!("the special register `{special}`"),
            Operand::Symbol(..) => "the address of a symbol".to_owned(),
            Operand::Label(_) => "a label".to_owned(),
            Operand::Vector(parts) => format!("a vector of {}", parts.len()),
            Operand::Address(_) => "a memory operand".to_owned(),
            Operand::Discard => "`_`".to_owned(),
            Operand::List(_) => "a list".to_owned(),
            Operand::Targets(_) => "a list of targets".to_owned(),
            Operand::Prototype(_) => "a prototype".to_owned(),
        }
    }
}

fn is_fraction(value: f64) -> bool {
    value > 0.0 && value <= 1.0
}

fn has_call(found: Match) -> bool {
    found.row.operands.first() == Some(&Pattern::Call)
}

fn is_optional(pattern: &Pattern) -> bool {
    matches!(pattern, Pattern::Fraction | Pattern::Value(Value { optional: true, .. }))
}

/// Returns the smallest and the largest number of operands.
fn counts(found: Match) -> (usize, usize) {
    let present = |pattern: &&Pattern| found.policy || **pattern != Pattern::Policy;
    let most = found.row.operands.iter().filter(present);
    (most.clone().filter(|pattern| !is_optional(pattern)).count(), most.count())
}

/// Returns the patterns of the operands of an instruction with so many operands. The operands of a call repeat its
/// pattern.
fn aligned(found: Match, count: usize) -> impl Iterator<Item = &'static Pattern> {
    let whole = count == counts(found).1;
    let operands = found.row.operands.iter();
    let calls = found.row.operands.iter().filter(|pattern| **pattern == Pattern::Call);
    let repeated = calls.cycle().take(count.saturating_sub(1));
    operands
        .filter(move |pattern| match pattern {
            Pattern::Policy => found.policy,
            pattern => whole || !is_optional(pattern),
        })
        .chain(repeated)
}

/// Returns the description of the operand that an instruction takes.
fn expected(found: Match, pattern: &Pattern) -> String {
    let value = match pattern {
        Pattern::Value(value) => value,
        Pattern::Memory(_) => {
            return "an address in brackets, in the space of the instruction".to_owned();
        }
        Pattern::Constant(integers) => return format!("an integer constant{}", within(integers)),
        Pattern::Policy => {
            return "a cache policy: an integer or untyped register of 64 bits".to_owned();
        }
        Pattern::Label => return "a label".to_owned(),
        Pattern::Targets => return "the name of a list of targets".to_owned(),
        Pattern::Call => return "a function".to_owned(),
        Pattern::Fraction => return "a number above 0 and at most 1".to_owned(),
        Pattern::Sink => return "`_`".to_owned(),
    };
    let ty = found.ty(value.ty).unwrap_or(ScalarType::B32);
    let registers = if value.relaxed { "or wider" } else { "" };
    let one = match (value.constants, ty.kind()) {
        _ if value.part == Part::Required => "a part of a register, such as `%r1.h0`".to_owned(),
        _ if value.part == Part::Packed(4) => {
            "a register of 32 bits, also with a selector such as `%r1.b3210`".to_owned()
        }
        _ if value.part == Part::Packed(2) => {
            "a register of 32 bits, also with a selector such as `%r1.h10`".to_owned()
        }
        (Constants::None, _) if value.part != Part::No => {
            "a register of 32 bits or a part of it".to_owned()
        }
        (Constants::None, _) => {
            format!("a register of type {ty} {registers}").trim_end().to_owned()
        }
        (_, ScalarKind::Float) if is_literal(&Operand::F64(0), ty) => {
            format!("a register of type {ty} or a constant such as 1.0")
        }
        _ => {
            format!("a register of type {ty} {registers}").trim_end().to_owned()
                + " or a constant"
                + &within(&value.integers)
        }
    };
    let count = match value.lanes {
        Lanes::One => 1,
        Lanes::Count(count) => count,
        Lanes::ByName => found.lanes,
    };
    let one = match value.second {
        Second::Required => format!("two results, `d|p`: d is {one}"),
        Second::None | Second::Optional => one,
    };
    match count {
        1 if !matches!(value.lanes, Lanes::Count(_)) => one,
        count => format!("a vector of {count} in braces; each is {one}"),
    }
}

/// Returns the limits of a constant, for the end of a description.
fn within(integers: &Integers) -> String {
    match integers {
        Integers::All => String::new(),
        Integers::OneOf(values) => format!(", one of {values:?}"),
        Integers::Range { first, last, step: 1 } if *last == i64::MAX as u64 => {
            format!(" of at least {first}")
        }
        Integers::Range { first, last, step: 1 } => format!(" from {first} to {last}"),
        Integers::Range { first, last, step } => {
            format!(" from {first} to {last}, a multiple of {step}")
        }
    }
}

/// The first version of PTX with addresses that are not in a named space.
const GENERIC_ADDRESSES: (u32, u32) = (2, 0);

/// Returns the space of an address: the first space in the name for the first address, and so on. A barrier that no
/// space is left for is in the first one.
///
/// # Errors
/// If the instruction has a hint for the caches of global memory, and another space.
fn address_space(modifiers: &[Modifier], number: usize) -> Result<Option<Space>, Mismatch> {
    let first = spaces(modifiers).next();
    let is_global = || spaces(modifiers).any(|space| space == Space::Global);
    if first.is_some() && hints_at_cache(modifiers) && !is_global() {
        return Err(Mismatch::Name);
    }
    Ok(spaces(modifiers).nth(number).or(first))
}

/// Returns the space of the variables that an instruction takes if its name has no space.
fn implied_space(opcode: Opcode) -> Option<Space> {
    match opcode {
        Opcode::Mbarrier | Opcode::Mapa | Opcode::Getctarank => Some(Space::Shared),
        Opcode::Prefetchu => Some(Space::Global),
        _ => None,
    }
}

/// Returns whether a modifier is a hint for the caches of global memory.
fn hints_at_cache(modifiers: &[Modifier]) -> bool {
    use Word::*;
    modifiers.iter().any(|modifier| {
        matches!(
            modifier,
            Modifier::Word(
                L1EvictFirst
                    | L1EvictLast
                    | L1EvictNormal
                    | L1EvictUnchanged
                    | L1NoAllocate
                    | L2CacheHint
                    | L264B
                    | L2128B
                    | L2256B
            )
        )
    })
}

/// Returns the state spaces that the modifiers name.
fn spaces(modifiers: &[Modifier]) -> impl Iterator<Item = Space> {
    modifiers.iter().filter_map(|modifier| match modifier {
        Modifier::Word(word) => word.space(),
        Modifier::Type(_) => None,
    })
}

/// Returns whether a register of the type `own` can hold an operand of the type `ty`. `relaxed`: it may be wider.
///
/// Source: "Operand Type Checking" and "Operand Size Exceeding Instruction-Type Size" of the PTX ISA; for packed and
/// small types the behavior of `ptxas` 13.5.
fn fits(own: ScalarType, ty: ScalarType, relaxed: bool) -> bool {
    use ScalarKind::{Bits, Predicate, Signed, Unsigned};
    if own == ScalarType::Pred || ty == ScalarType::Pred {
        return own == ty;
    }
    let same_size = own.size() == ty.size();
    if !ty.is_fundamental() {
        // Their registers have untyped bits of exactly this size.
        return own.kind() == Bits && same_size;
    }
    if !(same_size || relaxed && own.size() > ty.size()) {
        return false;
    }
    match (own.kind(), ty.kind()) {
        (_, Predicate) | (Predicate, _) => false,
        (Bits, _) | (_, Bits) => true,
        (Signed | Unsigned, Signed | Unsigned) => true,
        _ => own == ty,
    }
}

/// Returns whether a constant can be an operand of the type. Source: as for [`fits`].
fn is_literal(operand: &Operand, ty: ScalarType) -> bool {
    match operand {
        Operand::Int(_) => {
            matches!(
                ty.kind(),
                ScalarKind::Bits
                    | ScalarKind::Signed
                    | ScalarKind::Unsigned
                    | ScalarKind::Predicate
            ) && (ty.is_fundamental() || ty == ScalarType::Pred)
        }
        Operand::F32(_) => matches!(ty, ScalarType::F32 | ScalarType::F64 | ScalarType::B32),
        Operand::F64(_) => matches!(ty, ScalarType::F32 | ScalarType::F64 | ScalarType::B64),
        _ => false,
    }
}

/// Returns whether an operand can select these bytes or halfwords of a register: `b3210`, or nothing.
fn is_selected(value: &Value, part: &str) -> bool {
    let Some((letter, digits)) = part.split_at_checked(1) else {
        return value.part != Part::Required;
    };
    let count: usize = if letter == "b" { 4 } else { 2 };
    let digits: Vec<usize> = digits.bytes().map(|digit| usize::from(digit - b'0')).collect();
    let are_own = digits.iter().all(|digit| *digit < count);
    match value.part {
        Part::No => false,
        Part::Allowed | Part::Required => digits.len() == 1 && are_own,
        Part::Packed(own) if own != count => false,
        Part::Packed(_) if value.result => are_own && digits.is_sorted_by(|one, next| one > next),
        // A source can also select from the other source, whose numbers are larger.
        Part::Packed(_) => digits.len() == count,
    }
}

/// Returns whether an instruction of the type can read a special register. `whole`: all elements of a vector.
/// `relaxed`: it may be wider.
fn special_fits(special: Special, ty: ScalarType, whole: bool, relaxed: bool) -> bool {
    let own = special.ty();
    let is_vector = matches!(special, Special::Named(name) if name.is_vector());
    if is_vector && !whole {
        return false;
    }
    if own == ScalarType::Pred || ty == ScalarType::Pred {
        return own == ty;
    }
    let integer = matches!(ty.kind(), ScalarKind::Bits | ScalarKind::Signed | ScalarKind::Unsigned);
    let narrow = special.fits_half() && ty.size() == 2;
    // Before PTX 3.0, `%gridid` had 32 bits.
    let grid = special == Special::Named(SpecialName::Gridid) && ty.size() == 4;
    let fits = own.size() == ty.size() || relaxed && own.size() > ty.size() || narrow || grid;
    integer && ty.is_fundamental() && fits
}

/// Returns whether a type can hold an address.
fn is_address(ty: ScalarType) -> bool {
    matches!(ty.kind(), ScalarKind::Bits | ScalarKind::Signed | ScalarKind::Unsigned)
        && matches!(ty.size(), 2 | 4 | 8)
        && ty.is_fundamental()
}

/// The operands of `call (results), callee, (arguments), prototype;`.
struct Parts<'o> {
    results: &'o [Operand],
    callee: &'o Operand,
    arguments: &'o [Operand],
    /// The list of targets or the prototype of an indirect call.
    prototype: Option<&'o Operand>,
}

impl<'o> Parts<'o> {
    fn new(operands: &'o [Operand]) -> Option<Self> {
        let (results, rest) = list(operands);
        let (callee, rest) = rest.split_first()?;
        let (arguments, rest) = list(rest);
        let prototype = match rest {
            [] => None,
            [prototype] => Some(prototype),
            _ => return None,
        };
        Some(Self { results, callee, arguments, prototype })
    }
}

/// Splits off the list in parentheses at the start of some operands, if there is one.
fn list(operands: &[Operand]) -> (&[Operand], &[Operand]) {
    match operands {
        [Operand::List(list), rest @ ..] => (list, rest),
        _ => (&[], operands),
    }
}

impl Checker<'_> {
    /// Compares the operands of a call with the declaration of the function.
    fn call(&self, operands: &[Operand]) -> Result<(), Mismatch> {
        let mismatch = |found: &Operand, expected: &str| {
            let number = operands.iter().position(|own| std::ptr::eq(own, found));
            Mismatch::Operand {
                number: number.map_or(operands.len(), |at| at + 1),
                expected: expected.to_owned(),
                found: self.describe(found),
            }
        };
        let count = || Mismatch::Count { expected: (1, 4), found: operands.len() };
        let Parts { results, callee, arguments, prototype } =
            Parts::new(operands).ok_or_else(count)?;
        let (returns, params) = match (callee, prototype) {
            (Operand::Symbol(Symbol::Function(_), 0), Some(prototype)) => {
                return Err(mismatch(prototype, "no prototype, because the call is direct"));
            }
            (Operand::Symbol(Symbol::Function(index), 0), None) => {
                let function = self.module.functions.get(*index as usize);
                let function = function.filter(|function| !function.is_entry);
                let function = function
                    .ok_or_else(|| mismatch(callee, "a device function: a kernel is launched"))?;
                (&function.returns, &function.params)
            }
            (Operand::Reg(id), Some(prototype))
                if self.register(*id).is_some_and(holds_function) =>
            {
                let signature = self.signature(prototype);
                signature
                    .ok_or_else(|| mismatch(prototype, "a prototype or a list of functions"))?
            }
            (Operand::Reg(id), None) if self.register(*id).is_some_and(holds_function) => {
                return Err(mismatch(callee, "a prototype behind the arguments of this register"));
            }
            _ => return Err(mismatch(callee, "a function, or a register with its address")),
        };
        for (what, given, declared) in
            [("results", results, returns), ("arguments", arguments, params)]
        {
            let fits = |(operand, param)| self.fits_param(operand, param, what == "results");
            if given.len() != declared.len() || !given.iter().zip(declared).all(fits) {
                let types = declared.iter().map(|param| param.param_type.to_string());
                let types = types.collect::<Vec<_>>().join(", ");
                return Err(Mismatch::Operand {
                    number: operands.iter().position(|own| std::ptr::eq(own, callee)).unwrap_or(0)
                        + 1,
                    expected: format!("{what} as the function declares them: ({types})"),
                    found: format!("a function, and {} {what} are given", given.len()),
                });
            }
        }
        Ok(())
    }

    /// Returns the results and parameters of an indirect call.
    fn signature(&self, prototype: &Operand) -> Option<(&Vec<Param>, &Vec<Param>)> {
        match prototype {
            Operand::Prototype(index) => {
                let prototype = self.body.prototypes.get(*index as usize)?;
                Some((&prototype.returns, &prototype.params))
            }
            Operand::Targets(index) => {
                let first = *self.body.target_lists.get(*index as usize)?.functions.first()?;
                let function = self.module.functions.get(first as usize)?;
                Some((&function.returns, &function.params))
            }
            _ => None,
        }
    }

    /// Returns whether an operand can be passed as a parameter, or receive a result.
    fn fits_param(&self, operand: &Operand, param: &Param, is_result: bool) -> bool {
        let is_scalar = param.size == param.ty.size() && param.lanes == 1;
        match operand {
            Operand::Discard => is_result,
            Operand::Symbol(Symbol::Body(index), 0) => {
                let Some(own) = self.body.variables.get(*index as usize) else { return false };
                let same_type = match own.size == Some(own.ty.size().into()) {
                    true => is_scalar && fits(own.ty, param.ty, false),
                    false => {
                        !is_scalar
                            && own.size == Some(param.size.into())
                            && own.align == param.align
                    }
                };
                own.space == Space::Param && same_type
            }
            Operand::Reg(id) => {
                is_scalar && self.register(*id).is_some_and(|own| fits(own, param.ty, false))
            }
            Operand::Vector(parts) => {
                param.register.is_some() && parts.len() == param.lanes as usize
            }
            Operand::Int(_) => is_scalar && !is_result && param.ty.kind() != ScalarKind::Float,
            Operand::F32(_) | Operand::F64(_) => {
                let real = matches!(param.ty.kind(), ScalarKind::Float | ScalarKind::Bits);
                is_scalar && !is_result && real && param.ty.size() >= 4
            }
            _ => false,
        }
    }
}

/// Returns whether a register of the type can hold the address of a function.
fn holds_function(ty: ScalarType) -> bool {
    matches!(ty.kind(), ScalarKind::Bits | ScalarKind::Signed | ScalarKind::Unsigned)
        && matches!(ty.size(), 4 | 8)
}
