//! Compares the operands of calls with the declared functions.
//!
//! The rules are those that NVIDIA's assembler, `ptxas` 13.5, was measured to have.

use crate::ast::Param;
use crate::check::{Checker, Mismatch, fits};
use crate::instruction::{Operand, Symbol};
use crate::types::{ScalarKind, ScalarType, Space};

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
    pub(crate) fn call(&self, operands: &[Operand]) -> Result<(), Mismatch> {
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
