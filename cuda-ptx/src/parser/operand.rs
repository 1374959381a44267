//! Parses the operands of instructions. Operands contain no lists inside lists, so the recursion is shallow.

use crate::error::{Error, ErrorKind};
use crate::instruction::{Address, AddressBase, Operand, RegId, RegPart, Symbol};
use crate::lexer::{Kind, Token};
use crate::number::Constant;
use crate::parser::body::BodyParser;
use crate::parser::expression::{constant, constant_integer, offset, starts_constant};
use crate::parser::labels::Labeled;
use crate::scope::Binding;
use crate::special::Special;

/// The meaning of `(` at the start of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parentheses {
    /// The arguments of a `call`.
    List,
    /// A constant expression.
    Constant,
}

impl<'a> BodyParser<'_, 'a> {
    /// Parses one operand.
    pub(crate) fn operand(&mut self, parentheses: Parentheses) -> Result<Operand, Error> {
        let token = self.cur.peek();
        if token.is_punct("[") {
            self.address()
        } else if token.is_punct("(") && parentheses == Parentheses::List {
            self.cur.next();
            Ok(Operand::List(self.elements(")", "`,` or `)`")?))
        } else {
            self.vector_or_value()
        }
    }

    /// Parses a vector `{a, b}` or a value.
    fn vector_or_value(&mut self) -> Result<Operand, Error> {
        if self.cur.eat("{") {
            return Ok(Operand::Vector(self.elements("}", "`,` or `}`")?));
        }
        self.value()
    }

    /// Parses values up to the closing bracket.
    fn elements(&mut self, close: &str, what: &'static str) -> Result<Vec<Operand>, Error> {
        let mut list = Vec::new();
        if self.cur.eat(close) {
            return Ok(list);
        }
        loop {
            let token = self.cur.peek();
            match self.value()? {
                // Calls pass vectors; vectors have no vectors.
                Operand::Vector(_) if close == "}" => {
                    return Err(Error::expected("an element", &token));
                }
                element => list.push(element),
            }
            if !self.cur.eat(",") {
                self.cur.expect(close, what)?;
                return Ok(list);
            }
        }
    }

    /// Parses a register, name or constant, or two registers as `p|q`.
    fn value(&mut self) -> Result<Operand, Error> {
        let first = self.single()?;
        if !matches!(first, Operand::Reg(_) | Operand::Discard) || !self.cur.eat("|") {
            return Ok(first);
        }
        Ok(Operand::Pair(Box::new(first), Box::new(self.single()?)))
    }

    fn single(&mut self) -> Result<Operand, Error> {
        let token = self.cur.peek();
        if token.kind == Kind::Ident && !starts_constant(&token) {
            return self.named();
        }
        let named =
            self.cur.peek_at(1).kind == Kind::Ident && !starts_constant(&self.cur.peek_at(1));
        if token.is_punct("!") && named {
            self.cur.next();
            let name = self.cur.next();
            return match self.scopes.find(name.text, &mut self.body.registers) {
                Some(Binding::Reg(register)) => Ok(Operand::NotReg(register)),
                _ => Err(Error::expected("a predicate register", &name)),
            };
        }
        if token.is_punct("-") && named {
            self.cur.next();
            let name = self.cur.next();
            return self.part(&name, true);
        }
        if !starts_constant(&token) {
            return Err(Error::expected("an operand", &token));
        }
        Ok(match constant(self.cur)? {
            Constant::Int { bits, .. } => Operand::Int(bits),
            Constant::F32(bits) => Operand::F32(bits),
            Constant::F64(bits) => Operand::F64(bits),
        })
    }

    /// Parses a name with an optional element or offset: `%tid.x`, `x+8`.
    fn named(&mut self) -> Result<Operand, Error> {
        let name = self.cur.next();
        let found = self.find(&name)?;
        let next = self.cur.peek();
        match found {
            Operand::Symbol(symbol, _) if self.cur.eat("[") => self.element(symbol, &name),
            Operand::Symbol(symbol, _) => Ok(Operand::Symbol(symbol, offset(self.cur)?)),
            Operand::Reg(register) if next.is_punct("+") => {
                Ok(Operand::RegPlus(register, offset(self.cur)?))
            }
            Operand::Special(Special::Named(vector)) if next.kind == Kind::Dot => {
                let element = coordinate(next.text).filter(|_| vector.is_vector());
                let element = element.ok_or_else(|| Error::expected("`,` or `;`", &next))?;
                self.cur.next();
                Ok(Operand::Special(Special::Element(vector, element)))
            }
            Operand::Reg(_) if next.kind == Kind::Dot && name.touches(&next) => {
                self.part(&name, false)
            }
            Operand::Vector(mut elements) if next.kind == Kind::Dot && name.touches(&next) => {
                let element = element(next.text).filter(|i| *i < elements.len());
                let element = element.ok_or_else(|| Error::expected("an element", &next))?;
                self.cur.next();
                Ok(elements.swap_remove(element))
            }
            found => Ok(found),
        }
    }

    /// Parses the index of `x[3]`, `x[%r1]` or `x[%r1+3]` behind the bracket.
    fn element(&mut self, symbol: Symbol, name: &Token<'a>) -> Result<Operand, Error> {
        let size = match symbol {
            Symbol::Body(index) => self.body.variables.get(index as usize).map(|own| own.ty.size()),
            _ => self.globals.element_size(name.text),
        };
        let size = size.ok_or_else(|| Error::expected("a variable", name))?;
        let token = self.cur.peek();
        let (index, constant) = match self.value()? {
            Operand::Reg(index) => (Some(index), 0),
            Operand::RegPlus(index, constant) => (Some(index), constant),
            Operand::Int(bits) => (None, bits as i64),
            _ => return Err(Error::expected("an index", &token)),
        };
        self.cur.expect("]", "`]`")?;
        let base = match index {
            Some(index) => AddressBase::Element { symbol, index, size },
            None => AddressBase::Symbol(symbol),
        };
        Ok(Operand::Address(Address { base, offset: constant.wrapping_mul(size.into()) }))
    }

    /// Parses a register with an optional part: `%r1.h10`.
    fn part(&mut self, name: &Token<'a>, negated: bool) -> Result<Operand, Error> {
        let Some(Binding::Reg(register)) = self.scopes.find(name.text, &mut self.body.registers)
        else {
            return Err(Error::expected("a register", name));
        };
        let next = self.cur.peek();
        let mut part = String::new();
        if next.kind == Kind::Dot && name.touches(&next) {
            if !is_part(next.text) {
                return Err(Error::expected("a part of a register", &next));
            }
            self.cur.next();
            part = next.text.trim_start_matches('.').to_owned();
        }
        Ok(Operand::Part(RegPart { register, part, negated }))
    }

    /// Resolves a name: first as a register, variable or parameter, then as a label, then as a module-scope name.
    fn find(&mut self, name: &Token<'a>) -> Result<Operand, Error> {
        if name.text == "_" {
            return Ok(Operand::Discard);
        }
        if let Some(binding) = self.scopes.find(name.text, &mut self.body.registers) {
            return Ok(match binding {
                Binding::Reg(register) => Operand::Reg(register),
                Binding::Vector(RegId(first), lanes) => Operand::Vector(
                    (first..first + lanes).map(|id| Operand::Reg(RegId(id))).collect(),
                ),
                Binding::Symbol(symbol) => Operand::Symbol(symbol, 0),
            });
        }
        let label = self.scopes.blocks().find_map(|block| self.labels.find(block, name.text));
        if let Some(label) = label {
            return Ok(match label {
                Labeled::Code(id) => Operand::Label(id),
                Labeled::Targets(index) => Operand::Targets(index),
                Labeled::Prototype(index) => Operand::Prototype(index),
            });
        }
        if let Some(symbol) = self.globals.find(name.text) {
            return Ok(Operand::Symbol(symbol, 0));
        }
        if let Some(special) = Special::from_name(name.text) {
            return Ok(Operand::Special(special));
        }
        let register = name.text.starts_with('%');
        let undefined = ErrorKind::Undefined("label, variable or function");
        Err(Error::at(name, if register { ErrorKind::UnknownRegister } else { undefined }))
    }

    /// Parses `[base+offset]`, or `[base, {x, y}]` as a list.
    fn address(&mut self) -> Result<Operand, Error> {
        self.cur.expect("[", "`[`")?;
        let base = self.base()?;
        let offset = match base {
            AddressBase::Absolute => {
                constant_integer(self.cur, "a register, a name or a number")? as i64
            }
            _ => offset(self.cur)?,
        };
        let address = Operand::Address(Address { base, offset });
        if self.cur.eat("]") {
            return Ok(address);
        }
        let mut parts = vec![address];
        while self.cur.eat(",") {
            parts.push(self.vector_or_value()?);
        }
        self.cur.expect("]", "`+`, `,` or `]`")?;
        Ok(Operand::List(parts))
    }

    /// Parses the base of an address. It is absent before a number, which is the offset itself.
    fn base(&mut self) -> Result<AddressBase, Error> {
        let token = self.cur.peek();
        if token.kind != Kind::Ident {
            return Ok(AddressBase::Absolute);
        }
        self.cur.next();
        match self.find(&token)? {
            Operand::Reg(register) => Ok(AddressBase::Reg(register)),
            Operand::Symbol(symbol, _) => Ok(AddressBase::Symbol(symbol)),
            _ => Err(Error::expected("a register, a variable or a number", &token)),
        }
    }
}

/// Returns the index of an element of a special register.
fn coordinate(text: &str) -> Option<u8> {
    match text {
        ".x" => Some(0),
        ".y" => Some(1),
        ".z" => Some(2),
        ".w" => Some(3),
        _ => None,
    }
}

/// Returns the index of an element of a vector register.
fn element(text: &str) -> Option<usize> {
    match text {
        ".x" | ".r" => Some(0),
        ".y" | ".g" => Some(1),
        ".z" | ".b" => Some(2),
        ".w" | ".a" => Some(3),
        _ => None,
    }
}

/// Whether `text` is a part of a register: `.b0` to `.b7654`, `.h0` to `.h32`.
fn is_part(text: &str) -> bool {
    let (digits, most, largest) = match text.get(..2) {
        Some(".b") => (&text[2..], 4, b'7'),
        Some(".h") => (&text[2..], 2, b'3'),
        _ => return false,
    };
    (1..=most).contains(&digits.len()) && digits.bytes().all(|d| (b'0'..=largest).contains(&d))
}
