//! Resolves names inside a function. Scopes nest, and names of inner scopes hide those of outer ones.
//!
//! `.reg .b32 %r<1000>;` declares a thousand registers in a few characters. Only registers that are used become registers
//! of the body, so memory use is proportional to the length of the text.

use std::collections::{BTreeSet, HashMap};

use crate::ast::Register;
use crate::error::{Error, ErrorKind};
use crate::instruction::{RegId, Symbol};
use crate::lexer::Token;
use crate::limits::index;
use crate::types::ScalarType;

/// The meaning of a declared name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    Reg(RegId),
    /// A vector register, `.reg .v2 .u64 %q;`: the first register, and the number of elements.
    Vector(RegId, u32),
    Symbol(Symbol),
}

/// The type that `.reg` declares.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegisterType {
    pub(crate) ty: ScalarType,
    /// The number of elements, 1 unless it is a vector.
    pub(crate) lanes: u32,
}

/// The open scopes, innermost last.
#[derive(Default)]
pub(crate) struct Scopes<'a> {
    open: Vec<Scope<'a>>,
}

#[derive(Default)]
struct Scope<'a> {
    /// The id of the block, which labels belong to.
    block: usize,
    names: HashMap<&'a str, Bound>,
    /// Ranges such as `%r<10>`, by their prefix `%r`.
    ranges: HashMap<&'a str, Range>,
    /// All declared names, a range by its first name. Used to detect overlaps with new ranges.
    declared: BTreeSet<String>,
}

#[derive(Clone, Copy)]
struct Bound {
    binding: Binding,
    line: u32,
}

#[derive(Clone, Copy)]
struct Range {
    ty: RegisterType,
    count: u64,
    line: u32,
}

impl<'a> Scopes<'a> {
    pub(crate) fn open(&mut self, block: usize) {
        self.open.push(Scope { block, ..Scope::default() });
    }

    pub(crate) fn close(&mut self) {
        self.open.pop();
    }

    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The innermost block.
    pub(crate) fn block(&self) -> usize {
        self.open.last().map_or(0, |scope| scope.block)
    }

    /// The open blocks, innermost first.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = usize> {
        self.open.iter().rev().map(|scope| scope.block)
    }

    /// Declares one name in the innermost scope.
    pub(crate) fn declare(&mut self, name: &Token<'a>, binding: Binding) -> Result<(), Error> {
        let Some(scope) = self.open.last_mut() else { return Ok(()) };
        if let Some(first_line) = scope.line_of(name.text) {
            return Err(Error::at(name, ErrorKind::Duplicate { first_line }));
        }
        scope.declared.insert(name.text.to_owned());
        scope.names.insert(name.text, Bound { binding, line: name.line });
        Ok(())
    }

    /// Declares `prefix0` to `prefix(count-1)` as registers in the innermost scope.
    pub(crate) fn declare_range(
        &mut self,
        prefix: &Token<'a>,
        count: u64,
        ty: RegisterType,
    ) -> Result<(), Error> {
        let Some(scope) = self.open.last_mut() else { return Ok(()) };
        if count == 0 {
            return Ok(());
        }
        if let Some(first_line) = scope.overlap(prefix.text, count) {
            return Err(Error::at(prefix, ErrorKind::Duplicate { first_line }));
        }
        scope.declared.insert(format!("{}0", prefix.text));
        scope.ranges.insert(prefix.text, Range { ty, count, line: prefix.line });
        Ok(())
    }

    /// Resolves `name` in this scope. A register of a range is added to `registers` at its first use.
    pub(crate) fn find(&mut self, name: &'a str, registers: &mut Vec<Register>) -> Option<Binding> {
        self.open.iter_mut().rev().find_map(|scope| scope.find(name, registers))
    }
}

impl<'a> Scope<'a> {
    fn find(&mut self, name: &'a str, registers: &mut Vec<Register>) -> Option<Binding> {
        if let Some(bound) = self.names.get(name) {
            return Some(bound.binding);
        }
        let range = self.range_of(name)?;
        let binding = declared_registers(name, range.ty, registers);
        self.names.insert(name, Bound { binding, line: range.line });
        Some(binding)
    }

    /// Returns the range that declares `name`. `%r12` can be number 12 of `%r<20>` or number 2 of `%r1<5>`.
    fn range_of(&self, name: &str) -> Option<Range> {
        if self.ranges.is_empty() {
            return None;
        }
        splits(name).find_map(|(prefix, number)| {
            self.ranges.get(prefix).filter(|range| number < range.count).copied()
        })
    }

    fn line_of(&self, name: &str) -> Option<u32> {
        let bound = self.names.get(name).map(|bound| bound.line);
        bound.or_else(|| self.range_of(name).map(|range| range.line))
    }

    /// Returns the line of a declaration that shares a name with the range.
    fn overlap(&self, prefix: &str, count: u64) -> Option<u32> {
        let first = format!("{prefix}0");
        if let Some(line) = self.line_of(&first) {
            return Some(line);
        }
        let behind_digits = format!("{prefix}:");
        let clash = self
            .declared
            .range(first..behind_digits)
            .find(|name| splits(name).any(|(other, number)| other == prefix && number < count))?;
        self.line_of(clash)
    }
}

/// Adds the registers of one declared name: one, or one for each element of a vector.
pub(crate) fn declared_registers(
    name: &str,
    ty: RegisterType,
    registers: &mut Vec<Register>,
) -> Binding {
    let first = RegId(index(registers.len()));
    if ty.lanes == 1 {
        registers.push(Register { name: name.to_owned(), ty: ty.ty });
        return Binding::Reg(first);
    }
    let elements = ["x", "y", "z", "w"].iter().take(ty.lanes as usize);
    registers.extend(elements.map(|e| Register { name: format!("{name}.{e}"), ty: ty.ty }));
    Binding::Vector(first, index(registers.len()) - first.0)
}

/// Splits `name` into a prefix and a number in every way, the shortest number first.
fn splits(name: &str) -> impl Iterator<Item = (&str, u64)> {
    const DIGITS: usize = 10;
    let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count().min(DIGITS);
    (1..=digits).filter_map(move |length| {
        let (prefix, number) = name.split_at_checked(name.len() - length)?;
        // `%r<20>` declares `%r7` and not `%r07`.
        let canonical = length == 1 || !number.starts_with('0');
        if canonical { Some((prefix, number.parse().ok()?)) } else { None }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lexer::Kind;

    const B32: RegisterType = RegisterType { ty: ScalarType::B32, lanes: 1 };
    const B64: RegisterType = RegisterType { ty: ScalarType::B64, lanes: 1 };

    fn token(text: &str) -> Token<'_> {
        Token { kind: Kind::Ident, text, line: 1, column: 1 }
    }

    fn reg(scopes: &mut Scopes<'static>, name: &'static str) -> Option<Binding> {
        let mut registers = vec![Register { name: String::new(), ty: ScalarType::B8 }; 7];
        scopes.find(name, &mut registers)
    }

    #[test]
    fn range_declares_exactly_its_numbers() {
        let mut scopes = Scopes::default();
        scopes.open(0);
        scopes.declare_range(&token("%r"), 20, B32).unwrap();
        scopes.declare_range(&token("%rd"), 3, B64).unwrap();
        assert_eq!(reg(&mut scopes, "%r19"), Some(Binding::Reg(RegId(7))));
        for name in ["%r20", "%r07", "%rd3", "%r", "%rx1", "%r99999999999999999999"] {
            assert_eq!(reg(&mut scopes, name), None, "{name}");
        }
    }

    #[test]
    fn inner_scopes_hide_outer_ones() {
        let mut scopes = Scopes::default();
        scopes.open(0);
        scopes.declare(&token("x"), Binding::Reg(RegId(1))).unwrap();
        scopes.open(1);
        scopes.declare(&token("x"), Binding::Reg(RegId(2))).unwrap();
        assert_eq!(reg(&mut scopes, "x"), Some(Binding::Reg(RegId(2))));
        scopes.close();
        assert_eq!(reg(&mut scopes, "x"), Some(Binding::Reg(RegId(1))));
    }

    #[test]
    fn overlapping_declarations_are_refused() {
        let clash = |first: &[(&'static str, u64)], prefix: &'static str, count: u64| {
            let mut scopes = Scopes::default();
            scopes.open(0);
            for &(name, count) in first {
                match count {
                    0 => scopes.declare(&token(name), Binding::Reg(RegId(0))).unwrap(),
                    _ => scopes.declare_range(&token(name), count, B32).unwrap(),
                }
            }
            match count {
                0 => scopes.declare(&token(prefix), Binding::Reg(RegId(0))).is_err(),
                _ => scopes.declare_range(&token(prefix), count, B32).is_err(),
            }
        };
        assert!(clash(&[("%r", 10)], "%r5", 0));
        assert!(clash(&[("%r5", 0)], "%r", 10));
        assert!(clash(&[("%r", 10)], "%r", 1));
        assert!(clash(&[("%r", 15)], "%r1", 2));
        assert!(clash(&[("%r1", 2)], "%r", 15));
        assert!(!clash(&[("%r", 10)], "%r1", 2));
        assert!(!clash(&[("%r1", 2)], "%r", 10));
        assert!(!clash(&[("%r10", 0), ("%r011", 0), ("%r1x", 0)], "%r", 10));
    }
}
