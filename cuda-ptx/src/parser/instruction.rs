//! Parses instructions: `@!p opcode.modifier.modifier operand, operand;`.

use crate::error::Error;
use crate::instruction::{Guard, Instruction};
use crate::lexer::Kind;
use crate::limits::MAX_MODIFIERS;
use crate::parser::body::BodyParser;
use crate::parser::operand::Parentheses;
use crate::scope::Binding;

impl BodyParser<'_, '_> {
    /// Parses an instruction and its semicolon.
    pub(crate) fn instruction(&mut self) -> Result<(), Error> {
        let guard = self.guard()?;
        let opcode = self.cur.ident("an instruction")?;
        let mut modifiers = Vec::new();
        while self.cur.peek().kind == Kind::Dot {
            let token = self.cur.next();
            if modifiers.len() as u64 >= MAX_MODIFIERS {
                return Err(Error::limit("MAX_MODIFIERS", MAX_MODIFIERS, &token));
            }
            let modifier = token.text;
            modifiers.push(modifier.strip_prefix('.').unwrap_or(modifier).to_owned());
        }
        let parentheses = match opcode.text {
            "call" => Parentheses::List,
            _ => Parentheses::Constant,
        };
        let mut operands = Vec::new();
        if self.cur.peek().is_punct("}") {
            return Err(Error::expected("an operand or `;`", &self.cur.peek()));
        }
        if !self.cur.peek().is_punct(";") {
            operands.push(self.operand(parentheses)?);
            while self.cur.eat(",") {
                operands.push(self.operand(parentheses)?);
            }
        }
        self.cur.expect(";", "`,` or `;`")?;
        self.body.instructions.push(Instruction {
            guard,
            opcode: opcode.text.to_owned(),
            modifiers,
            operands,
            line: opcode.line,
            column: opcode.column,
        });
        Ok(())
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
}
