//! The names of a text: those of module scope, those of the nested scopes of a function, and its labels.

use std::collections::{BTreeSet, HashMap};

use crate::ast::{Label, LabelId, RegId, Register, Symbol};
use crate::error::{Error, ErrorKind};
use crate::lexer::{Cursor, Kind, Token};
use crate::limits::{MAX_NESTING, index};
use crate::parser::expression::WARP_SIZE;
use crate::words::ScalarType;

/// The symbols of module-scope names, with the lines of their first declarations.
#[derive(Default)]
pub(crate) struct Globals<'a> {
    names: HashMap<&'a str, Global>,
}

/// A declared name.
#[derive(Clone, Copy)]
struct Global {
    symbol: Symbol,
    /// The size of a variable's elements in bytes.
    size: Option<u32>,
    line: u32,
}

impl<'a> Globals<'a> {
    pub(crate) fn find(&self, name: &str) -> Option<Symbol> {
        self.names.get(name).map(|global| global.symbol)
    }

    /// Returns the size of a variable's elements in bytes.
    pub(crate) fn element_size(&self, name: &str) -> Option<u32> {
        self.names.get(name)?.size
    }

    /// Declares a name. `size` is that of a variable's elements.
    ///
    /// # Errors
    /// If the name is declared already.
    pub(crate) fn declare(
        &mut self,
        name: &Token<'a>,
        symbol: Symbol,
        size: Option<u32>,
    ) -> Result<(), Error> {
        if self.names.contains_key(name.text) {
            return Err(self.duplicate(name));
        }
        self.names.insert(name.text, Global { symbol, size, line: name.line });
        Ok(())
    }

    /// Returns the error for a name that is declared already.
    pub(crate) fn duplicate(&self, name: &Token<'a>) -> Error {
        let first_line = self.names.get(name.text).map_or(0, |global| global.line);
        Error::at(name, ErrorKind::Duplicate { first_line })
    }

    /// Returns the symbol of `name`.
    ///
    /// # Errors
    /// If the name is undefined.
    pub(crate) fn require(&self, name: &Token<'a>) -> Result<Symbol, Error> {
        let undefined = || Error::at(name, ErrorKind::Undefined("variable or function"));
        self.find(name.text).ok_or_else(undefined)
    }
}

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

/// The open scopes of a function, innermost last. Names of inner scopes hide those of outer ones.
///
/// `.reg .b32 %r<1000>;` declares a thousand registers in a few characters, and each function has its own registers of
/// module scope. Only those that are used become registers of the body, so memory use is proportional to the length of
/// the text.
#[derive(Default)]
pub(crate) struct Scopes<'p, 'a> {
    /// The registers of module scope, around all open scopes.
    module: Option<&'p Scope<'a>>,
    open: Vec<Scope<'a>>,
}

/// The names that a block, a function or the module declares.
#[derive(Default)]
pub(crate) struct Scope<'a> {
    /// The id of the block, which labels belong to.
    block: usize,
    names: HashMap<&'a str, Bound>,
    /// Single registers of module scope.
    registers: HashMap<&'a str, Range>,
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

/// Registers that are not yet registers of a body.
#[derive(Clone, Copy)]
struct Range {
    ty: RegisterType,
    count: u64,
    line: u32,
}

impl<'p, 'a> Scopes<'p, 'a> {
    /// Creates the scopes of a function in a module with these registers.
    pub(crate) fn new(module: &'p Scope<'a>) -> Self {
        Self { module: Some(module), open: Vec::new() }
    }

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
        let of_function = self.open.len() == 1;
        let Some(scope) = self.open.last_mut() else { return Ok(()) };
        let around = self.module.filter(|_| of_function);
        let before = around.and_then(|module| module.line_of(name.text));
        if let Some(first_line) = before.or_else(|| scope.line_of(name.text)) {
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
        scope.declare_range(prefix, count, ty)
    }

    /// Resolves `name` in this scope. A register of a range or of module scope is added to `registers` at its first
    /// use.
    pub(crate) fn find(&mut self, name: &'a str, registers: &mut Vec<Register>) -> Option<Binding> {
        let found = self.open.iter_mut().rev().find_map(|scope| scope.find(name, registers));
        found.or_else(|| {
            let Range { ty, line, .. } = self.module?.range_of(name)?;
            let binding = declared_registers(name, ty, registers);
            self.open.first_mut()?.names.insert(name, Bound { binding, line });
            Some(binding)
        })
    }
}

impl<'a> Scope<'a> {
    /// Declares a register of module scope.
    pub(crate) fn declare_register(
        &mut self,
        name: &Token<'a>,
        ty: RegisterType,
    ) -> Result<(), Error> {
        if let Some(first_line) = self.line_of(name.text) {
            return Err(Error::at(name, ErrorKind::Duplicate { first_line }));
        }
        self.declared.insert(name.text.to_owned());
        self.registers.insert(name.text, Range { ty, count: 1, line: name.line });
        Ok(())
    }

    /// Declares `prefix0` to `prefix(count-1)` as registers.
    pub(crate) fn declare_range(
        &mut self,
        prefix: &Token<'a>,
        count: u64,
        ty: RegisterType,
    ) -> Result<(), Error> {
        if count == 0 {
            return Ok(());
        }
        if let Some(first_line) = self.overlap(prefix.text, count) {
            return Err(Error::at(prefix, ErrorKind::Duplicate { first_line }));
        }
        self.declared.insert(format!("{}0", prefix.text));
        self.ranges.insert(prefix.text, Range { ty, count, line: prefix.line });
        Ok(())
    }

    fn find(&mut self, name: &'a str, registers: &mut Vec<Register>) -> Option<Binding> {
        if let Some(bound) = self.names.get(name) {
            return Some(bound.binding);
        }
        let range = self.range_of(name)?;
        let binding = declared_registers(name, range.ty, registers);
        self.names.insert(name, Bound { binding, line: range.line });
        Some(binding)
    }

    /// Returns the register of module scope or the range that declares `name`. `%r12` can be number 12 of `%r<20>` or
    /// number 2 of `%r1<5>`.
    fn range_of(&self, name: &str) -> Option<Range> {
        if let Some(register) = self.registers.get(name) {
            return Some(*register);
        }
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

/// The statement after a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Labeled {
    /// An instruction or the end of a block.
    Code(LabelId),
    /// `.branchtargets` or `.calltargets`.
    Targets(u32),
    /// `.callprototype`.
    Prototype(u32),
}

/// All labels of a body, found before it is parsed, so that branches can go forward.
///
/// A label belongs to its block, because inlined assembly repeats blocks with the same labels. Labels of
/// `.branchtargets`, `.calltargets` and `.callprototype` have separate numbers, in the order of the text.
pub(crate) struct Labels<'a> {
    by_name: HashMap<(usize, &'a str), (Labeled, u32)>,
    /// The labels of code ([`Labeled::Code`]) by id. The parser fills in the targets.
    pub(crate) code: Vec<Label>,
    targets: u32,
    prototypes: u32,
}

impl<'a> Labels<'a> {
    /// Scans the next block, from its `{` to its `}`. The cursor does not move.
    pub(crate) fn scan(cur: &Cursor<'a>) -> Result<Self, Error> {
        let mut labels =
            Self { by_name: HashMap::new(), code: Vec::new(), targets: 0, prototypes: 0 };
        let first = cur.position();
        let tokens = cur.remaining();
        let mut blocks: Vec<usize> = Vec::new();
        // Sections are skipped. `begins` is set before the `{` of a section; `section` is the number of blocks around
        // it.
        let (mut begins, mut section) = (false, None);
        for (i, token) in tokens.iter().enumerate() {
            match (token.kind, token.text) {
                (Kind::Punct, "{") => {
                    if blocks.len() as u64 >= MAX_NESTING {
                        return Err(Error::limit("MAX_NESTING", MAX_NESTING, token));
                    }
                    if std::mem::take(&mut begins) && section.is_none() {
                        section = Some(blocks.len());
                    }
                    blocks.push(first + i);
                }
                (Kind::Punct, "}") => {
                    blocks.pop();
                    section = section.filter(|around| *around < blocks.len());
                    if blocks.is_empty() {
                        return Ok(labels);
                    }
                }
                (Kind::Dot, ".section") => begins = true,
                _ if section.is_some() => {}
                // `WARP_SZ` is a number, not a label: `1 ? WARP_SZ : 2`.
                (Kind::Ident, WARP_SIZE) => {}
                (Kind::Ident, _) if tokens.get(i + 1).is_some_and(|next| next.is_punct(":")) => {
                    let block = blocks.last().copied().unwrap_or_default();
                    labels.insert(block, token, tokens.get(i + 2))?;
                }
                _ => {}
            }
        }
        Err(Error::at(&cur.peek(), ErrorKind::Unterminated("a block")))
    }

    fn insert(
        &mut self,
        block: usize,
        name: &Token<'a>,
        follows: Option<&Token<'a>>,
    ) -> Result<(), Error> {
        let directive = follows.filter(|token| token.kind == Kind::Dot).map(|token| token.text);
        let labeled = match directive {
            Some(".branchtargets" | ".calltargets") => {
                self.targets += 1;
                Labeled::Targets(self.targets - 1)
            }
            Some(".callprototype") => {
                self.prototypes += 1;
                Labeled::Prototype(self.prototypes - 1)
            }
            _ => {
                let id = LabelId(index(self.code.len()));
                self.code.push(Label { name: name.text.to_owned(), target: 0 });
                Labeled::Code(id)
            }
        };
        match self.by_name.insert((block, name.text), (labeled, name.line)) {
            None => Ok(()),
            Some((_, first_line)) => Err(Error::at(name, ErrorKind::Duplicate { first_line })),
        }
    }

    /// Returns the label `name` of `block`. Does not search the blocks around it.
    pub(crate) fn find(&self, block: usize, name: &str) -> Option<Labeled> {
        self.by_name.get(&(block, name)).map(|(labeled, _)| *labeled)
    }

    /// Returns the line of a label of `block`.
    pub(crate) fn line(&self, block: usize, name: &str) -> Option<u32> {
        self.by_name.get(&(block, name)).map(|(_, line)| *line)
    }
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

    fn reg(scopes: &mut Scopes<'_, 'static>, name: &'static str) -> Option<Binding> {
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
