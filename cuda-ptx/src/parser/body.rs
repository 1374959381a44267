//! Parses the body of a function: blocks, declarations, labels, and instructions with their operands.

use crate::ast::{
    Address, AddressBase, Body, Guard, Instruction, LabelId, Operand, Prototype, RegId, RegPart,
    Symbol, TargetList,
};
use crate::error::{Error, ErrorKind};
use crate::lexer::{Constant, Cursor, Kind, Token};
use crate::limits::{MAX_MODIFIERS, MAX_REGISTER_LANES, MAX_REGISTER_RANGE, index};
use crate::parser::directive::{location, pragma, skip_section, space, used_bytes};
use crate::parser::expression::{constant, constant_integer, offset, starts_constant};
use crate::parser::header::{Header, NamedParam, bare, param_list};
use crate::parser::names::{
    Binding, Globals, Labeled, Labels, RegisterType, Scope, Scopes, declared_registers,
};
use crate::parser::variable::{DeclaredType, DeclaredVariable, RawInit, declared_type, variables};
use crate::special::Special;
use crate::words::{Modifier, Opcode, Space, Word};

/// A declaration of registers: one, a vector, or a range.
pub(crate) struct DeclaredRegister<'a> {
    name: Token<'a>,
    ty: RegisterType,
    /// The number of registers of a range such as `%r<10>`.
    count: Option<u64>,
}

impl<'a> DeclaredRegister<'a> {
    /// Declares it in module scope.
    pub(crate) fn declare(&self, module: &mut Scope<'a>) -> Result<(), Error> {
        match self.count {
            Some(count) => module.declare_range(&self.name, count, self.ty),
            None => module.declare_register(&self.name, self.ty),
        }
    }
}

/// Parses `.reg .b32 %a, %r<10>;` after the directive.
pub(crate) fn registers<'a>(cur: &mut Cursor<'a>) -> Result<Vec<DeclaredRegister<'a>>, Error> {
    let start = cur.peek();
    let DeclaredType { ty, lanes, .. } = declared_type(cur)?;
    if lanes > MAX_REGISTER_LANES {
        return Err(Error::expected("a vector of two or four", &start));
    }
    let ty = RegisterType { ty, lanes };
    let mut list = Vec::new();
    loop {
        let name = cur.ident("the name of a register")?;
        let mut count = None;
        if cur.eat("<") {
            let token = cur.peek();
            let number = cur.integer("a number of registers")?;
            if number > MAX_REGISTER_RANGE {
                return Err(Error::limit("MAX_REGISTER_RANGE", MAX_REGISTER_RANGE, &token));
            }
            cur.expect(">", "`>`")?;
            count = Some(number);
        }
        list.push(DeclaredRegister { name, ty, count });
        if !cur.eat(",") {
            cur.expect(";", "`;`, `,` or `<`")?;
            return Ok(list);
        }
    }
}

/// Parses one body.
pub(crate) struct BodyParser<'p, 'a> {
    cur: &'p mut Cursor<'a>,
    globals: &'p Globals<'a>,
    scopes: Scopes<'p, 'a>,
    labels: Labels<'a>,
    body: Body,
}

/// The meaning of `(` at the start of an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parentheses {
    /// The arguments of a `call`.
    List,
    /// A constant expression.
    Constant,
}

impl<'p, 'a> BodyParser<'p, 'a> {
    /// Parses the next block, from its `{` to its `}`.
    pub(crate) fn parse(
        cur: &'p mut Cursor<'a>,
        globals: &'p Globals<'a>,
        module_registers: &'p Scope<'a>,
        header: &Header<'a>,
    ) -> Result<Body, Error> {
        let labels = Labels::scan(cur)?;
        let (scopes, body) = (Scopes::new(module_registers), Body::default());
        let mut parser = Self { cur, globals, scopes, labels, body };
        parser.parameters(header)?;
        parser.statement()?;
        while parser.scopes.depth() > 1 {
            parser.statement()?;
        }
        parser.body.labels = parser.labels.code;
        Ok(parser.body)
    }

    /// Opens the outermost scope with the parameters. Register parameters are the first registers.
    fn parameters(&mut self, header: &Header<'a>) -> Result<(), Error> {
        // Index 0 is that of the `.entry` or `.func` token, so no block has it.
        self.scopes.open(0);
        for (number, named) in (0..).zip(&header.returns) {
            self.parameter(named, Symbol::Return(number))?;
        }
        for (number, named) in (0..).zip(&header.params) {
            self.parameter(named, Symbol::Param(number))?;
        }
        Ok(())
    }

    fn parameter(&mut self, named: &NamedParam<'a>, symbol: Symbol) -> Result<(), Error> {
        let NamedParam { token, param } = named;
        match param.register {
            None => self.scopes.declare(token, Binding::Symbol(symbol)),
            Some(_) => {
                let ty = RegisterType { ty: param.ty, lanes: param.lanes };
                let binding = declared_registers(token.text, ty, &mut self.body.registers);
                self.scopes.declare(token, binding)
            }
        }
    }

    fn statement(&mut self) -> Result<(), Error> {
        let token = self.cur.peek();
        match (token.kind, token.text) {
            (Kind::Punct, "{") => {
                self.scopes.open(self.cur.position());
                self.cur.next();
            }
            (Kind::Punct, "}") => {
                self.scopes.close();
                self.cur.next();
            }
            (Kind::Punct, ";") => _ = self.cur.next(),
            (Kind::Punct, "@") => self.instruction()?,
            (Kind::Ident, _) if self.cur.peek_at(1).is_punct(":") => self.label()?,
            (Kind::Ident, _) => self.instruction()?,
            (Kind::Dot, _) => self.directive()?,
            _ => return Err(Error::expected("an instruction, a label or a directive", &token)),
        }
        Ok(())
    }

    fn directive(&mut self) -> Result<(), Error> {
        let external = self.cur.eat_dot(".extern");
        let token = self.cur.next();
        match token.text {
            ".reg" => registers(self.cur)?.iter().try_for_each(|register| self.declare(register)),
            ".loc" => {
                let instruction = index(self.body.instructions.len());
                let location = location(self.cur, instruction)?;
                self.body.locations.push(location);
                Ok(())
            }
            ".pragma" => {
                let instruction = index(self.body.instructions.len());
                let used = pragma(self.cur)?.and_then(used_bytes).map(|mask| (instruction, mask));
                self.body.used_bytes.extend(used);
                Ok(())
            }
            ".section" => skip_section(self.cur),
            _ => match space(&token) {
                Some(space) => self.variables(space, external),
                None => Err(Error::at(&token, ErrorKind::UnknownDirective)),
            },
        }
    }

    fn declare(&mut self, register: &DeclaredRegister<'a>) -> Result<(), Error> {
        let DeclaredRegister { name, ty, count } = register;
        match count {
            Some(count) => self.scopes.declare_range(name, *count, *ty),
            None => {
                let binding = declared_registers(name.text, *ty, &mut self.body.registers);
                self.scopes.declare(name, binding)
            }
        }
    }

    fn variables(&mut self, space: Space, external: bool) -> Result<(), Error> {
        for declared in variables(self.cur, space, external)? {
            let DeclaredVariable { token, mut variable, init } = declared;
            let resolve = |piece: RawInit<'a>| piece.resolve(|name| self.globals.require(name));
            variable.init = init.into_iter().map(resolve).collect::<Result<_, _>>()?;
            if let Some(first_line) = self.labels.line(self.scopes.block(), token.text) {
                return Err(Error::at(&token, ErrorKind::Duplicate { first_line }));
            }
            let symbol = Symbol::Body(index(self.body.variables.len()));
            self.scopes.declare(&token, Binding::Symbol(symbol))?;
            self.body.variables.push(variable);
        }
        Ok(())
    }

    fn label(&mut self) -> Result<(), Error> {
        let name = self.cur.next();
        self.cur.next();
        match self.labels.find(self.scopes.block(), name.text) {
            Some(Labeled::Code(LabelId(id))) => {
                let target = index(self.body.instructions.len());
                if let Some(label) = self.labels.code.get_mut(id as usize) {
                    label.target = target;
                }
                Ok(())
            }
            Some(Labeled::Targets(_)) => self.targets(&name),
            Some(Labeled::Prototype(_)) => self.prototype(&name),
            None => Err(Error::at(&name, ErrorKind::Undefined("label"))),
        }
    }

    /// Parses `.branchtargets a, b;` or `.calltargets f, g;`.
    fn targets(&mut self, name: &Token<'a>) -> Result<(), Error> {
        let of_labels = self.cur.next().text == ".branchtargets";
        let (labels, functions) = (Vec::new(), Vec::new());
        let mut list = TargetList { name: name.text.to_owned(), labels, functions };
        loop {
            let target = self.cur.ident("a label or a function")?;
            if of_labels {
                list.labels.push(self.code_label(&target)?);
            } else {
                list.functions.push(self.function(&target)?);
            }
            if !self.cur.eat(",") {
                break;
            }
        }
        self.body.target_lists.push(list);
        self.cur.semicolon()
    }

    fn code_label(&self, name: &Token<'a>) -> Result<LabelId, Error> {
        match self.scopes.blocks().find_map(|block| self.labels.find(block, name.text)) {
            Some(Labeled::Code(id)) => Ok(id),
            _ => Err(Error::at(name, ErrorKind::Undefined("label"))),
        }
    }

    fn function(&self, name: &Token<'a>) -> Result<u32, Error> {
        match self.globals.find(name.text) {
            Some(Symbol::Function(function)) => Ok(function),
            _ => Err(Error::at(name, ErrorKind::Undefined("function"))),
        }
    }

    /// Parses `.callprototype (returns) _ (params);`.
    fn prototype(&mut self, name: &Token<'a>) -> Result<(), Error> {
        self.cur.next();
        let mut registers = 0;
        let mut returns = Vec::new();
        if self.cur.peek().is_punct("(") {
            returns = param_list(self.cur, &mut registers)?;
        }
        self.cur.ident("`_`")?;
        let mut params = Vec::new();
        if self.cur.peek().is_punct("(") {
            params = param_list(self.cur, &mut registers)?;
        }
        while matches!(
            self.cur.peek().text,
            ".noreturn" | ".abi_preserve" | ".abi_preserve_control"
        ) {
            if self.cur.next().text != ".noreturn" {
                self.cur.integer("a number")?;
            }
        }
        let (returns, params) = (bare(returns), bare(params));
        self.body.prototypes.push(Prototype { name: name.text.to_owned(), returns, params });
        self.cur.semicolon()
    }

    /// Parses an instruction and its semicolon.
    fn instruction(&mut self) -> Result<(), Error> {
        let guard = self.guard()?;
        let opcode = self.cur.ident("an instruction")?;
        let (known, modifiers) = self.words(&opcode)?;
        let parentheses = match opcode.text {
            "call" => Parentheses::List,
            _ => Parentheses::Constant,
        };
        let mut operands = Vec::new();
        if self.cur.peek().is_punct("}") {
            return Err(Error::expected("an operand or `;`", &self.cur.peek()));
        }
        let takes_addresses = matches!(known, Ok(Opcode::Mov | Opcode::Cvta));
        let mut is_next = !self.cur.peek().is_punct(";");
        while is_next {
            let is_memory = self.cur.peek().is_punct("[");
            let mut operand = self.operand(parentheses)?;
            if takes_addresses && !is_memory {
                as_value(&mut operand);
            }
            operands.push(operand);
            is_next = self.cur.eat(",");
        }
        self.cur.expect(";", "`,` or `;`")?;
        self.body.instructions.push(Instruction {
            guard,
            opcode: known,
            modifiers,
            operands,
            line: opcode.line,
            column: opcode.column,
        });
        Ok(())
    }

    /// Parses the modifiers behind an opcode. If a word is unknown, returns the whole name and no modifiers.
    #[expect(clippy::type_complexity, reason = "the two fields of an instruction")]
    fn words(
        &mut self,
        opcode: &Token<'_>,
    ) -> Result<(Result<Opcode, Box<str>>, Vec<Modifier>), Error> {
        let first = self.cur.position();
        let mut modifiers = Vec::new();
        let mut known = Opcode::from_name(opcode.text);
        while self.cur.peek().kind == Kind::Dot {
            let token = self.cur.next();
            if (self.cur.position() - first) as u64 > MAX_MODIFIERS {
                return Err(Error::limit("MAX_MODIFIERS", MAX_MODIFIERS, &token));
            }
            match Modifier::from_name(token.text.trim_start_matches('.')) {
                Some(modifier) if is_repeated(&modifiers, modifier) => {}
                Some(modifier) => modifiers.push(modifier),
                None => known = None,
            }
        }
        let Some(known) = known else {
            let tokens = self.cur.tokens(first..self.cur.position());
            let name: String =
                std::iter::once(opcode.text).chain(tokens.iter().map(|token| token.text)).collect();
            return Ok((Err(name.into()), Vec::new()));
        };
        Ok((Ok(known), modifiers))
    }

    /// Parses an optional guard: `@p` or `@!p`.
    fn guard(&mut self) -> Result<Option<Guard>, Error> {
        if !self.cur.eat("@") {
            return Ok(None);
        }
        let negated = self.cur.eat("!");
        let name = self.cur.ident("a predicate register")?;
        match self.scopes.find(name.text, &mut self.body.registers) {
            Some(Binding::Reg(register)) => Ok(Some(Guard { register, negated })),
            _ => Err(Error::expected("a predicate register", &name)),
        }
    }

    /// Parses one operand.
    fn operand(&mut self, parentheses: Parentheses) -> Result<Operand, Error> {
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

/// Replaces `x[3]`, which stands for memory elsewhere, by the address of the element.
fn as_value(operand: &mut Operand) {
    if let Operand::Address(Address { base: AddressBase::Symbol(symbol), offset }) = *operand {
        *operand = Operand::Symbol(symbol, offset);
    }
}

/// Returns whether a modifier is a repetition that has no effect. NVIDIA's assembler, `ptxas` 13.5, allows it for these
/// words.
fn is_repeated(before: &[Modifier], modifier: Modifier) -> bool {
    use Word::{Approx, Cc, PropagateNan, Relu, Sat, Satfinite, Shiftamt, Sync, Uni};
    let may_repeat = matches!(
        modifier,
        Modifier::Word(Approx | Cc | PropagateNan | Relu | Sat | Satfinite | Shiftamt | Sync | Uni)
    );
    may_repeat && before.contains(&modifier)
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
