//! Redirects uses of an `.alias`, a second name of a function, to the function itself.

use std::collections::HashMap;

use crate::ast::{Body, InitValue, Module};
use crate::instruction::{AddressBase, Operand, Symbol};

/// Functions that are aliases, each with its target.
pub(crate) type Aliases = HashMap<u32, u32>;

/// Replaces every use of an alias by its function.
pub(crate) fn redirect(module: &mut Module, aliases: &Aliases) {
    let variables = module.variables.iter_mut();
    let bodies = module.functions.iter_mut().filter_map(|function| function.body.as_mut());
    for piece in variables.flat_map(|variable| &mut variable.init) {
        if let InitValue::Address { symbol: named, .. } = &mut piece.value {
            symbol(named, aliases);
        }
    }
    for body in bodies {
        redirect_body(body, aliases);
    }
}

fn redirect_body(body: &mut Body, aliases: &Aliases) {
    for target in body.target_lists.iter_mut().flat_map(|list| &mut list.functions) {
        function(target, aliases);
    }
    for named in body.instructions.iter_mut().flat_map(|instruction| &mut instruction.operands) {
        operand(named, aliases);
    }
}

/// Redirects an operand. The recursion is shallow, because operands contain no lists inside lists.
fn operand(named: &mut Operand, aliases: &Aliases) {
    match named {
        Operand::Symbol(target, _) => symbol(target, aliases),
        Operand::Address(address) => {
            if let AddressBase::Symbol(target) = &mut address.base {
                symbol(target, aliases);
            }
        }
        Operand::Pair(first, second) => {
            operand(first, aliases);
            operand(second, aliases);
        }
        Operand::Vector(list) | Operand::List(list) => {
            list.iter_mut().for_each(|inner| operand(inner, aliases));
        }
        _ => {}
    }
}

fn symbol(named: &mut Symbol, aliases: &Aliases) {
    if let Symbol::Function(target) = named {
        function(target, aliases);
    }
}

fn function(target: &mut u32, aliases: &Aliases) {
    if let Some(to) = aliases.get(target) {
        *target = *to;
    }
}
