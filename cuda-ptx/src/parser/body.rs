//! Parses the body of a function: blocks, declarations, labels and instructions.

use crate::ast::{Body, Prototype, TargetList};
use crate::cursor::Cursor;
use crate::error::{Error, ErrorKind};
use crate::instruction::{LabelId, Symbol};
use crate::lexer::{Kind, Token};
use crate::limits::{MAX_REGISTER_LANES, MAX_REGISTER_RANGE, index};
use crate::parser::debug::{location, skip_section, used_bytes};
use crate::parser::declared::{DeclaredType, declared_type};
use crate::parser::directive::space;
use crate::parser::globals::Globals;
use crate::parser::header::{Header, pragma};
use crate::parser::initializer::RawInit;
use crate::parser::labels::{Labeled, Labels};
use crate::parser::params::{NamedParam, bare, param_list};
use crate::parser::variable::{DeclaredVariable, variables};
use crate::scope::{Binding, RegisterType, Scopes, declared_registers};
use crate::types::Space;

/// A declaration of registers: one, a vector, or a range.
pub(crate) struct DeclaredRegister<'a> {
    name: Token<'a>,
    ty: RegisterType,
    /// The number of registers of a range such as `%r<10>`.
    count: Option<u64>,
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
    pub(crate) cur: &'p mut Cursor<'a>,
    pub(crate) globals: &'p Globals<'a>,
    pub(crate) scopes: Scopes<'a>,
    pub(crate) labels: Labels<'a>,
    pub(crate) body: Body,
}

impl<'p, 'a> BodyParser<'p, 'a> {
    /// Parses the next block, from its `{` to its `}`.
    pub(crate) fn parse(
        cur: &'p mut Cursor<'a>,
        globals: &'p Globals<'a>,
        module_registers: &[DeclaredRegister<'a>],
        header: &Header<'a>,
    ) -> Result<Body, Error> {
        let labels = Labels::scan(cur)?;
        let (scopes, body) = (Scopes::default(), Body::default());
        let mut parser = Self { cur, globals, scopes, labels, body };
        parser.parameters(header)?;
        module_registers.iter().try_for_each(|register| parser.declare(register))?;
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
}
