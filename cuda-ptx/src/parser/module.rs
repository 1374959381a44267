//! Parses the module scope: the first directives, variables, functions and aliases.

use std::collections::HashMap;

use crate::ast::{AddressBase, Body, Function, InitValue, Module, Operand, Param, Symbol};
use crate::error::{Error, ErrorKind};
use crate::lexer::{Cursor, Kind, Token};
use crate::limits;
use crate::parser::body::{BodyParser, registers};
use crate::parser::directive::{file, linkage, location, pragma, skip_section, space};
use crate::parser::header::{Header, NamedParam, Unknown};
use crate::parser::names::{Globals, Scope};
use crate::parser::variable::{DeclaredVariable, RawInit, variables};
use crate::words::Space;

/// Parses a PTX text.
pub(crate) fn parse_module(text: &str) -> Result<Module, Error> {
    let mut cur = Cursor::new(text)?;
    let Preamble { version, target, address_size } = Preamble::parse(&mut cur)?;
    let (variables, functions, files) = (Vec::new(), Vec::new(), Vec::new());
    let module = Module { version, target, address_size, variables, functions, files };
    let globals = Globals::default();
    let mut parser = ModuleParser {
        cur,
        module,
        globals,
        pending: Vec::new(),
        aliases: Aliases::new(),
        registers: Scope::default(),
    };
    while !parser.cur.at_end() {
        parser.item()?;
    }
    parser.finish()
}

struct ModuleParser<'a> {
    cur: Cursor<'a>,
    module: Module,
    globals: Globals<'a>,
    /// Initializers by variable. They are resolved last, because they can name later declarations.
    pending: Vec<(usize, Vec<RawInit<'a>>)>,
    aliases: Aliases,
    /// Registers of module scope. Each function has its own.
    registers: Scope<'a>,
}

impl<'a> ModuleParser<'a> {
    fn item(&mut self) -> Result<(), Error> {
        let external = linkage(&mut self.cur);
        let token = self.cur.peek();
        if matches!(token.text, ".entry" | ".func") {
            return self.function();
        }
        self.cur.next();
        match token.text {
            ".file" => self.module.files.push(file(&mut self.cur)?),
            ".loc" => _ = location(&mut self.cur, 0)?,
            ".section" => skip_section(&mut self.cur)?,
            ".pragma" => _ = pragma(&mut self.cur)?,
            ".alias" => self.alias()?,
            ".reg" => {
                let declared = registers(&mut self.cur)?;
                declared.iter().try_for_each(|register| register.declare(&mut self.registers))?;
            }
            ".tex" => self.variables(Space::Global, external)?,
            ";" => {}
            ".param" => return Err(Error::expected("a directive of module scope", &token)),
            _ => match space(&token) {
                Some(space) => self.variables(space, external)?,
                None if token.kind == Kind::Dot => {
                    return Err(Error::at(&token, ErrorKind::UnknownDirective));
                }
                None => return Err(Error::expected("a directive of module scope", &token)),
            },
        }
        Ok(())
    }

    fn variables(&mut self, space: Space, external: bool) -> Result<(), Error> {
        for declared in variables(&mut self.cur, space, external)? {
            self.variable(declared)?;
        }
        Ok(())
    }

    fn variable(&mut self, declared: DeclaredVariable<'a>) -> Result<(), Error> {
        let DeclaredVariable { token, variable, init } = declared;
        let index = match self.globals.find(token.text) {
            None => {
                let index = self.module.variables.len();
                self.globals.declare(
                    &token,
                    Symbol::Module(limits::index(index)),
                    Some(variable.ty.size()),
                )?;
                self.module.variables.push(variable);
                index
            }
            Some(Symbol::Module(index)) => {
                let index = index as usize;
                let Some(before) = self.module.variables.get_mut(index) else { return Ok(()) };
                if before.space != variable.space || before.ty != variable.ty {
                    let what = ErrorKind::Mismatch("another space or type");
                    return Err(Error::at(&token, what));
                }
                match (before.external, variable.external) {
                    (false, false) => return Err(self.globals.duplicate(&token)),
                    (true, false) => *before = variable,
                    // This declaration repeats an earlier one.
                    (_, true) => {}
                }
                index
            }
            Some(_) => return Err(self.globals.duplicate(&token)),
        };
        if !init.is_empty() {
            self.pending.push((index, init));
        }
        Ok(())
    }

    fn function(&mut self) -> Result<(), Error> {
        let header = Header::parse(&mut self.cur, Unknown::Refuse)?;
        let has_body = self.cur.peek().is_punct("{");
        let index = self.declare(&header, has_body)?;
        if !has_body {
            // Old compilers write no semicolon.
            self.cur.eat(";");
            return Ok(());
        }
        let body = BodyParser::parse(&mut self.cur, &self.globals, &self.registers, &header)?;
        if let Some(function) = self.module.functions.get_mut(index) {
            *function = Function { body: Some(body), ..bodiless(&header) };
        }
        Ok(())
    }

    /// Declares a function before its body is parsed, because it can call itself.
    fn declare(&mut self, header: &Header<'a>, has_body: bool) -> Result<usize, Error> {
        let name = &header.name;
        match self.globals.find(name.text) {
            None => {
                let index = self.module.functions.len();
                self.globals.declare(name, Symbol::Function(limits::index(index)), None)?;
                self.module.functions.push(bodiless(header));
                Ok(index)
            }
            Some(Symbol::Function(index)) => {
                let index = index as usize;
                let before = self.module.functions.get(index);
                if let Some(before) = before {
                    agree(before, header)?;
                    if has_body && before.body.is_some() {
                        return Err(self.globals.duplicate(name));
                    }
                }
                Ok(index)
            }
            Some(_) => Err(self.globals.duplicate(name)),
        }
    }

    /// Parses `.alias name, target;` after the directive. Both functions must be declared before.
    fn alias(&mut self) -> Result<(), Error> {
        let name = self.cur.ident("the name of a function")?;
        self.cur.expect(",", "`,`")?;
        let target = self.cur.ident("the name of a function")?;
        self.cur.semicolon()?;
        let function = |token: &Token<'a>| match self.globals.find(token.text) {
            Some(Symbol::Function(index)) => Ok(index),
            _ => Err(Error::at(token, ErrorKind::Undefined("function"))),
        };
        let (from, to) = (function(&name)?, function(&target)?);
        let defined = |i: u32| {
            self.module.functions.get(i as usize).is_some_and(|function| function.body.is_some())
        };
        if defined(from) || !defined(to) {
            let why = "an alias must have no body, and its target must have one";
            return Err(Error::invalid(why, &name));
        }
        self.aliases.insert(from, to);
        Ok(())
    }

    fn finish(mut self) -> Result<Module, Error> {
        for (index, pieces) in std::mem::take(&mut self.pending) {
            let resolve = |piece: RawInit<'a>| piece.resolve(|name| self.globals.require(name));
            let init = pieces.into_iter().map(resolve).collect::<Result<_, _>>()?;
            if let Some(variable) = self.module.variables.get_mut(index) {
                variable.init = init;
            }
        }
        if !self.aliases.is_empty() {
            redirect(&mut self.module, &self.aliases);
        }
        Ok(self.module)
    }
}

fn bodiless(header: &Header<'_>) -> Function {
    let params = |list: &[NamedParam<'_>]| -> Vec<Param> {
        list.iter().map(|named| named.param.clone()).collect()
    };
    Function {
        name: header.name.text.to_owned(),
        is_entry: header.is_entry,
        returns: params(&header.returns),
        params: params(&header.params),
        max_threads: header.max_threads,
        required_threads: header.required_threads,
        required_cluster: header.required_cluster,
        body: None,
        line: header.name.line,
    }
}

/// Checks that two declarations describe the same function.
///
/// # Errors
/// [`ErrorKind::Mismatch`] with the difference.
fn agree(before: &Function, now: &Header<'_>) -> Result<(), Error> {
    let same = |old: &[Param], new: &[NamedParam<'_>]| {
        let shape = |param: &Param| (param.size, param.align, param.register.is_some());
        old.len() == new.len()
            && old.iter().zip(new).all(|(old, new)| shape(old) == shape(&new.param))
    };
    let what = if before.is_entry != now.is_entry {
        "another kind (`.entry` or `.func`)"
    } else if !same(&before.params, &now.params) {
        "other parameters"
    } else if !same(&before.returns, &now.returns) {
        "another return type"
    } else {
        return Ok(());
    };
    Err(Error::at(&now.name, ErrorKind::Mismatch(what)))
}

/// The address size without an `.address_size` directive.
const DEFAULT_ADDRESS_SIZE: u32 = 32;

/// The first version of PTX with `.address_size`.
const ADDRESS_SIZE_SINCE: (u32, u32) = (2, 3);

/// The first lines of a module.
pub(crate) struct Preamble {
    pub(crate) version: (u32, u32),
    pub(crate) target: Vec<String>,
    pub(crate) address_size: u32,
}

impl Preamble {
    /// Parses the preamble. The cursor must be at the start of the text.
    pub(crate) fn parse(cur: &mut Cursor<'_>) -> Result<Self, Error> {
        if !cur.eat_dot(".version") {
            return Err(Error::expected("`.version` at the start of a PTX text", &cur.peek()));
        }
        let version = version(&cur.of_kind(Kind::Number, "a version such as 8.7")?)?;
        if !cur.eat_dot(".target") {
            return Err(Error::expected("`.target`", &cur.peek()));
        }
        let mut target = vec![cur.ident("an architecture such as sm_80")?.text.to_owned()];
        while cur.eat(",") {
            target.push(cur.ident("a target option")?.text.to_owned());
        }
        let mut address_size = DEFAULT_ADDRESS_SIZE;
        if cur.eat_dot(".address_size") {
            let token = cur.peek();
            if version < ADDRESS_SIZE_SINCE {
                let why = "`.address_size` needs `.version 2.3`";
                return Err(Error::invalid(why, &token));
            }
            address_size = cur.integer32("32 or 64")?;
            if !matches!(address_size, 32 | 64) {
                return Err(Error::expected("32 or 64", &token));
            }
        }
        Ok(Self { version, target, address_size })
    }
}

fn version(token: &Token<'_>) -> Result<(u32, u32), Error> {
    let parts = token.text.split_once('.');
    let numbers = parts.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    numbers.ok_or_else(|| Error::expected("a version such as 8.7", token))
}

/// Functions that are aliases, each with its target.
type Aliases = HashMap<u32, u32>;

/// Replaces every use of an alias by its function.
fn redirect(module: &mut Module, aliases: &Aliases) {
    let variables = module.variables.iter_mut();
    let bodies = module.functions.iter_mut().filter_map(|function| function.body.as_mut());
    for piece in variables.flat_map(|variable| &mut variable.init) {
        if let InitValue::Address { symbol: named, .. } = &mut piece.value {
            redirect_symbol(named, aliases);
        }
    }
    for body in bodies {
        redirect_body(body, aliases);
    }
}

fn redirect_body(body: &mut Body, aliases: &Aliases) {
    for target in body.target_lists.iter_mut().flat_map(|list| &mut list.functions) {
        redirect_function(target, aliases);
    }
    for named in body.instructions.iter_mut().flat_map(|instruction| &mut instruction.operands) {
        redirect_operand(named, aliases);
    }
}

/// Redirects an operand. The recursion is shallow, because operands contain no lists inside lists.
fn redirect_operand(named: &mut Operand, aliases: &Aliases) {
    match named {
        Operand::Symbol(target, _) => redirect_symbol(target, aliases),
        Operand::Address(address) => {
            if let AddressBase::Symbol(target) = &mut address.base {
                redirect_symbol(target, aliases);
            }
        }
        Operand::Pair(first, second) => {
            redirect_operand(first, aliases);
            redirect_operand(second, aliases);
        }
        Operand::Vector(list) | Operand::List(list) => {
            list.iter_mut().for_each(|inner| redirect_operand(inner, aliases));
        }
        _ => {}
    }
}

fn redirect_symbol(named: &mut Symbol, aliases: &Aliases) {
    if let Symbol::Function(target) = named {
        redirect_function(target, aliases);
    }
}

fn redirect_function(target: &mut u32, aliases: &Aliases) {
    if let Some(to) = aliases.get(target) {
        *target = *to;
    }
}
