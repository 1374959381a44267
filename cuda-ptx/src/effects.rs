//! The effects of a kernel besides those on the memory of its arguments.

use std::collections::BTreeSet;

use crate::ast::{AddressBase, Function, InitValue, Instruction, Module, Operand, Symbol};
use crate::words::{Opcode, Space};

impl Module {
    /// Returns whether the function with this index may have effects besides those on the memory of its arguments. That
    /// is so if it, or a function that it may call,
    /// - reaches a variable that kernels can write,
    /// - may trap,
    /// - writes a surface or memory of other devices, or triggers an event of a profiler,
    /// - calls a function that the module does not define (such as `vprintf`) or whose address it computes,
    /// - has an instruction that this crate does not know.
    ///
    /// Faults such as an access outside of its memory are not counted.
    ///
    /// ```
    /// let text = "
    ///     .version 8.0
    ///     .target sm_80
    ///     .address_size 64
    ///     .global .u32 count;
    ///     .visible .entry adds(.param .u64 p) {
    ///         .reg .b64 %rd<2>;
    ///         ld.param.u64 %rd1, [p];
    ///         red.global.add.u32 [%rd1], 1;
    ///         ret;
    ///     }";
    /// assert!(!cuda_ptx::parse(text)?.has_other_effects(0));
    /// let counts = text.replace("[%rd1]", "[count]");
    /// assert!(cuda_ptx::parse(&counts)?.has_other_effects(0));
    /// # Ok::<(), cuda_ptx::Error>(())
    /// ```
    pub fn has_other_effects(&self, function: u32) -> bool {
        let (mut functions, mut variables) = (BTreeSet::new(), BTreeSet::new());
        let mut left = vec![function];
        while let Some(index) = left.pop() {
            if !functions.insert(index) {
                continue;
            }
            let function = self.functions.get(index as usize);
            let Some((function, body)) = function.and_then(|f| Some((f, f.body.as_ref()?))) else {
                return true;
            };
            if body.instructions.iter().any(is_effect) {
                return true;
            }
            let mut symbols = function.symbols();
            while let Some(symbol) = symbols.pop() {
                let variable = match symbol {
                    Symbol::Function(called) => {
                        left.push(called);
                        continue;
                    }
                    Symbol::Module(index) if variables.insert(index) => {
                        self.variables.get(index as usize)
                    }
                    Symbol::Body(index) => body.variables.get(index as usize),
                    Symbol::Module(_) | Symbol::Param(_) | Symbol::Return(_) => continue,
                };
                let Some(variable) = variable.filter(|variable| variable.space != Space::Global)
                else {
                    return true;
                };
                // A constant may have the address of a variable.
                symbols.extend(variable.init.iter().filter_map(|init| match init.value {
                    InitValue::Address { symbol, .. } => Some(symbol),
                    _ => None,
                }));
            }
        }
        false
    }
}

/// Whether an instruction has an effect besides that on its registers and on memory that it addresses, or calls a
/// function through its address.
fn is_effect(instruction: &Instruction) -> bool {
    let names_function =
        |operand: &Operand| matches!(operand, Operand::Symbol(Symbol::Function(_), 0));
    match instruction.opcode {
        Ok(Opcode::Trap | Opcode::Brkpt | Opcode::Pmevent) | Err(_) => true,
        Ok(Opcode::Sust | Opcode::Sured | Opcode::Multimem) => true,
        Ok(Opcode::Call) => !instruction.operands.iter().any(names_function),
        Ok(_) => false,
    }
}

impl Function {
    /// Returns all symbols in the function's instructions.
    pub fn symbols(&self) -> Vec<Symbol> {
        let mut found = Vec::new();
        let instructions = self.body.iter().flat_map(|body| &body.instructions);
        instructions.flat_map(|i| &i.operands).for_each(|operand| collect(operand, &mut found));
        let lists = self.body.iter().flat_map(|body| &body.target_lists);
        found.extend(lists.flat_map(|list| &list.functions).map(|f| Symbol::Function(*f)));
        found
    }
}

fn collect(operand: &Operand, into: &mut Vec<Symbol>) {
    match operand {
        Operand::Symbol(symbol, _) => into.push(*symbol),
        Operand::Address(address) => {
            if let AddressBase::Symbol(symbol) | AddressBase::Element { symbol, .. } = address.base
            {
                into.push(symbol);
            }
        }
        Operand::Vector(parts) | Operand::List(parts) => {
            parts.iter().for_each(|part| collect(part, into))
        }
        Operand::Pair(a, b) => {
            collect(a, into);
            collect(b, into);
        }
        _ => {}
    }
}
