//! Parses instructions: `@!p opcode.modifier.modifier operand, operand;`.

use crate::error::Error;
use crate::instruction::{Address, AddressBase, Guard, Instruction, Operand};
use crate::lexer::{Kind, Token};
use crate::limits::MAX_MODIFIERS;
use crate::modifier::{Modifier, Word};
use crate::opcode::Opcode;
use crate::parser::body::BodyParser;
use crate::parser::operand::Parentheses;
use crate::scope::Binding;

/// Replaces `x[3]`, which stands for memory elsewhere, by the address of the element.
fn as_value(operand: &mut Operand) {
    if let Operand::Address(Address { base: AddressBase::Symbol(symbol), offset }) = *operand {
        *operand = Operand::Symbol(symbol, offset);
    }
}

/// Returns whether a modifier is a repetition that has no effect. NVIDIA's assembler, `ptxas` 13.5, allows it for these words.
fn is_repeated(before: &[Modifier], modifier: Modifier) -> bool {
    use Word::{Approx, Cc, PropagateNan, Relu, Sat, Satfinite, Shiftamt, Sync, Uni};
    let may_repeat = matches!(
        modifier,
        Modifier::Word(Approx | Cc | PropagateNan | Relu | Sat | Satfinite | Shiftamt | Sync | Uni)
    );
    may_repeat && before.contains(&modifier)
}

impl BodyParser<'_, '_> {
    /// Parses an instruction and its semicolon.
    pub(crate) fn instruction(&mut self) -> Result<(), Error> {
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
        if !self.cur.peek().is_punct(";") {
            operands.push(self.operand(parentheses)?);
            while self.cur.eat(",") {
                operands.push(self.operand(parentheses)?);
            }
        }
        self.cur.expect(";", "`,` or `;`")?;
        if matches!(known, Ok(Opcode::Mov | Opcode::Cvta)) {
            operands.iter_mut().for_each(as_value);
        }
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
}
