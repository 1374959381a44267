//! What decoding one function needs: its operands become slots, its instructions ops.

use cuda_ptx::{
    Address, AddressBase, Body, Function, Instruction, Module, Operand, RegId, ScalarType, Space,
    Symbol,
};
use rustc_hash::FxHashMap;

use super::frame::Frame;
use super::kind::kind_name;
use super::known::Known;
use super::layout::Layout;
use super::locals::Locals;
use super::registers::registers;
use super::special;
use crate::engine::address::{FUNCTION_STEP, FUNCTION_WINDOW, PARAM_WINDOW};
use crate::engine::code::{Code, Control, PresetValue};
use crate::engine::exec::control::guarded;
use crate::engine::exec::lane::Kind;
use crate::engine::exec::special::add_window;
use crate::engine::exec::wide::upper;
use crate::engine::exec::{control, select};
use crate::engine::observe::Effect;
use crate::engine::op::{Class, Op, Slot};

/// Why an instruction cannot be decoded.
pub(crate) type Problem = &'static str;

pub(crate) const UNKNOWN: Problem = "no such instruction, or one that the CPU device does not know";
pub(crate) const OPERANDS: Problem = "these operands do not fit the instruction";

/// See the module.
pub(crate) struct Builder<'a> {
    pub(crate) module: &'a Module,
    pub(crate) function: &'a Function,
    /// The function's.
    index: u32,
    pub(crate) body: &'a Body,
    pub(crate) layout: &'a Layout,
    pub(crate) code: &'a mut Code,
    pub(crate) frame: Frame,
    pub(super) registers: Vec<Option<Slot>>,
    pub(super) known: Known,
    /// Offsets of the function's own local variables, parameters and results in its local bytes.
    pub(crate) locals: Locals,
    /// The hidden carry.
    carry: Option<Slot>,
    /// Ops whose `imm` is still a label.
    pub(crate) jumps: Vec<u32>,
    /// The table in the code, whose targets are still labels, of each list of the body that some `brx` names.
    pub(crate) tables: FxHashMap<u32, u32>,
    /// Ops to follow the one being decoded: results that must be widened.
    after: Vec<Op>,
    pub(super) ins: Option<&'a Instruction>,
    /// The instruction has an op of its own already, by which it is counted.
    counted: bool,
    /// What the next op that is emitted does to memory.
    effects: Vec<Effect>,
    /// Of what the instruction loads, the bytes that are used.
    pub(crate) used_bytes: u64,
}

impl<'a> Builder<'a> {
    pub(crate) fn new(
        module: &'a Module,
        (index, function): (u32, &'a Function),
        body: &'a Body,
        layout: &'a Layout,
        code: &'a mut Code,
    ) -> Self {
        let locals = Locals::new(function, body);
        let registers = vec![None; body.registers.len()];
        Self {
            module,
            function,
            index,
            body,
            layout,
            code,
            frame: Frame::default(),
            registers,
            known: Known::new(function, body),
            locals,
            carry: None,
            jumps: Vec::new(),
            tables: FxHashMap::default(),
            after: Vec::new(),
            ins: None,
            counted: false,
            effects: Vec::new(),
            used_bytes: u64::MAX,
        }
    }

    /// The ops that follow belong to this instruction.
    pub(crate) fn begin(&mut self, ins: &'a Instruction) {
        self.ins = Some(ins);
        self.after.clear();
        self.frame.free_temporaries();
        self.counted = false;
        self.effects.clear();
    }

    /// States what the op that is emitted next does to memory: whatever observers are to know of it.
    pub(crate) fn states(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// The index of the next op.
    pub(crate) fn pc(&self) -> u32 {
        self.code.ops.len() as u32
    }

    fn push(&mut self, mut op: Op) {
        op.pc = self.pc();
        self.code.ops.push(op);
        self.code.lines.push(self.ins.map_or(self.function.line, |i| i.line));
        self.code.table.push();
    }

    /// Pushes an op that stands for the instruction, with what was stated of it.
    fn push_own(&mut self, op: Op) {
        self.push(op);
        if let Some(ins) = self.ins.filter(|_| !std::mem::replace(&mut self.counted, true)) {
            let slot = |id: RegId| self.registers.get(id.0 as usize).copied().flatten();
            let upper = |id: RegId| slot(id).filter(|_| self.is_wide(id)).map(upper);
            let registers = registers(ins, slot, upper);
            self.code.table.is_instruction(&kind_name(ins), registers);
        }
        self.effects.drain(..).for_each(|effect| self.code.table.has_effect(effect));
    }

    /// Emits an op that every lane executes.
    pub(crate) fn emit_plain(&mut self, op: Op) {
        self.push(op);
    }

    /// Emits an op under the instruction's guard, then what must follow it.
    pub(crate) fn emit(&mut self, op: Op) -> Result<(), Problem> {
        let op = self.with_guard(op)?;
        self.push_own(op);
        for after in std::mem::take(&mut self.after) {
            let after = self.with_guard(after)?;
            self.push(after);
        }
        Ok(())
    }

    /// Emits an op that looks at its guard itself.
    pub(crate) fn emit_self_guarded(&mut self, mut op: Op) -> Result<(), Problem> {
        self.set_guard(&mut op)?;
        self.push_own(op);
        for after in std::mem::take(&mut self.after) {
            let after = self.with_guard(after)?;
            self.push(after);
        }
        Ok(())
    }

    fn set_guard(&mut self, op: &mut Op) -> Result<(), Problem> {
        if let Some(guard) = self.ins.and_then(|i| i.guard) {
            op.guard = self.register(guard.register, Class::Pred)?;
            op.guard_negated = guard.negated;
        }
        Ok(())
    }

    fn with_guard(&mut self, mut op: Op) -> Result<Op, Problem> {
        self.set_guard(&mut op)?;
        op.inner = op.run;
        if op.guard != Slot::NONE {
            op.run = guarded;
        }
        Ok(op)
    }

    pub(crate) fn control(&mut self, control: Control) -> Result<(), Problem> {
        let mut op = Op::new(control::control);
        op.extra = self.code.controls.len() as u32;
        self.code.controls.push(control);
        self.emit_self_guarded(op)
    }

    /// The table of a list of targets: one for all that branch by it, or a long list that many name would take
    /// memory without bound.
    pub(crate) fn jump_table(&mut self, list: u32) -> Result<u32, Problem> {
        let targets = self.body.target_lists.get(list as usize).ok_or(OPERANDS)?;
        let tables = &mut self.code.jump_tables;
        Ok(*self.tables.entry(list).or_insert_with(|| {
            tables.push(targets.labels.iter().map(|label| label.0).collect());
            tables.len() as u32 - 1
        }))
    }

    /// Appends extra operands and gives the index of the first.
    pub(crate) fn extras(&mut self, slots: impl IntoIterator<Item = Slot>) -> u32 {
        let first = self.code.extras.len() as u32;
        self.code.extras.extend(slots);
        first
    }

    pub(crate) fn new_cache(&mut self) -> u32 {
        self.code.caches += 1;
        self.code.caches - 1
    }

    /// The hidden carry register.
    pub(crate) fn carry(&mut self) -> Slot {
        let frame = &mut self.frame;
        *self.carry.get_or_insert_with(|| frame.register(Class::Pred))
    }

    /// The class of a declared register.
    pub(crate) fn class_of(&self, id: RegId) -> Class {
        match self.body.registers.get(id.0 as usize).map(|r| r.ty) {
            Some(ScalarType::Pred) => Class::Pred,
            Some(ty) if ty.size() > 4 => Class::W64,
            _ => Class::W32,
        }
    }

    /// The slot of a register that must have this class.
    pub(crate) fn register(&mut self, id: RegId, class: Class) -> Result<Slot, Problem> {
        let declared = self.body.registers.get(id.0 as usize).ok_or(OPERANDS)?;
        if declared.ty == ScalarType::B128 || self.class_of(id) != class {
            return Err("an operand's register has the wrong size");
        }
        let frame = &mut self.frame;
        Ok(*self.registers[id.0 as usize].get_or_insert_with(|| frame.register(class)))
    }

    /// A source operand of this kind, as a register.
    pub(crate) fn source(&mut self, operand: &Operand, kind: Kind) -> Result<Slot, Problem> {
        let class = kind.class();
        match operand {
            Operand::Reg(id) => self.source_register(*id, class),
            _ => {
                let value = self.value(operand, kind)?;
                Ok(self.frame.preset(class, value))
            }
        }
    }

    /// A register used as a source: one of another width is converted first.
    fn source_register(&mut self, id: RegId, class: Class) -> Result<Slot, Problem> {
        let (run, from): (crate::engine::op::Handler, _) = match (self.class_of(id), class) {
            (Class::W64, Class::W32) => (select::narrow, Class::W64),
            (Class::W32, Class::W64) => (select::widen, Class::W32),
            _ => return self.register(id, class),
        };
        let mut op = Op::new(run);
        op.a = self.register(id, from)?;
        op.d = self.frame.register(class);
        self.push(op);
        Ok(op.d)
    }

    /// What a constant, special register or symbol is worth.
    pub(crate) fn value(&self, operand: &Operand, kind: Kind) -> Result<PresetValue, Problem> {
        let bits = match (operand, kind) {
            (Operand::Int(v), Kind::W32) => u64::from(*v as u32),
            (Operand::Int(v), Kind::W64) => *v,
            (Operand::Int(v), Kind::F32) => u64::from(*v as u32),
            (Operand::Int(v), Kind::F64) => *v,
            (Operand::Int(v), Kind::Pred) => u64::from(*v != 0),
            (Operand::F32(b), Kind::F32 | Kind::W32) => u64::from(*b),
            (Operand::F64(b), Kind::F32) => u64::from((f64::from_bits(*b) as f32).to_bits()),
            (Operand::F64(b), Kind::F64 | Kind::W64) => *b,
            (Operand::F32(b), Kind::F64) => f64::from(f32::from_bits(*b)).to_bits(),
            (Operand::Special(name), _) if name == "is_explicit_cluster" => {
                u64::from(self.function.required_cluster.is_some())
            }
            (Operand::Special(name), _) => return special::value(name).ok_or(OPERANDS),
            (Operand::Symbol(symbol, offset), Kind::W32 | Kind::W64) => {
                return self.symbol(*symbol, *offset);
            }
            _ => return Err(OPERANDS),
        };
        Ok(PresetValue::Const(bits))
    }

    /// The address of a symbol in its own space (generic, for parameters).
    pub(crate) fn symbol(&self, symbol: Symbol, offset: i64) -> Result<PresetValue, Problem> {
        let at = |base: u64| Ok(PresetValue::Const(base.wrapping_add_signed(offset)));
        let local = |base: u32| {
            let at = i64::from(base).checked_add(offset).and_then(|at| u32::try_from(at).ok());
            at.map(PresetValue::Local).ok_or("an offset far outside of its variable")
        };
        match symbol {
            Symbol::Module(i) => match self.layout.module_address(i) {
                Some(address) => at(address),
                None if offset == 0 => Ok(PresetValue::DynamicShared),
                None => Err("an offset from dynamic shared memory"),
            },
            Symbol::Body(i) => {
                let variable = self.body.variables.get(i as usize).ok_or(OPERANDS)?;
                match variable.space {
                    Space::Local | Space::Param => local(self.locals.variables[i as usize]),
                    _ => match self.layout.body_address(self.index, i) {
                        Some(address) => at(address),
                        None if offset == 0 => Ok(PresetValue::DynamicShared),
                        None => Err("an offset from dynamic shared memory"),
                    },
                }
            }
            Symbol::Param(i) if self.function.is_entry => {
                let param = self.function.params.get(i as usize).ok_or(OPERANDS)?;
                at(PARAM_WINDOW + u64::from(param.offset))
            }
            Symbol::Param(i) => local(*self.locals.params.get(i as usize).ok_or(OPERANDS)?),
            Symbol::Return(i) => local(*self.locals.returns.get(i as usize).ok_or(OPERANDS)?),
            Symbol::Function(i) => at(FUNCTION_WINDOW + FUNCTION_STEP * u64::from(i)),
        }
    }

    /// The symbol is a parameter that lies in local memory: of a call, or of a `.func` itself. Its address is one of
    /// local space.
    pub(crate) fn is_local_param(&self, symbol: Symbol) -> bool {
        match symbol {
            Symbol::Param(_) | Symbol::Return(_) => !self.function.is_entry,
            Symbol::Body(i) => {
                self.body.variables.get(i as usize).is_some_and(|v| v.space == Space::Param)
            }
            _ => false,
        }
    }

    /// A destination of this kind. If its register is wider, the result is extended afterwards.
    pub(crate) fn dest(
        &mut self,
        operand: &Operand,
        kind: Kind,
        signed: bool,
    ) -> Result<Slot, Problem> {
        let class = kind.class();
        let id = match operand {
            Operand::Discard => return Ok(self.frame.sink(class)),
            Operand::Reg(id) => *id,
            _ => return Err(OPERANDS),
        };
        if (self.class_of(id), class) != (Class::W64, Class::W32) {
            return self.register(id, class);
        }
        let narrow = self.frame.register(Class::W32);
        let mut op = Op::new(select::widen);
        op.a = narrow;
        op.d = self.register(id, Class::W64)?;
        op.imm = u64::from(signed);
        self.after.push(op);
        Ok(narrow)
    }

    /// A predicate source and whether it is inverted.
    pub(crate) fn pred(&mut self, operand: &Operand) -> Result<(Slot, bool), Problem> {
        match operand {
            Operand::Reg(id) => Ok((self.register(*id, Class::Pred)?, false)),
            Operand::NotReg(id) => Ok((self.register(*id, Class::Pred)?, true)),
            Operand::Int(v) => {
                let value = PresetValue::Const(u64::from(*v != 0));
                Ok((self.frame.preset(Class::Pred, value), false))
            }
            _ => Err(OPERANDS),
        }
    }

    /// The register that an address is relative to, the offset, and whether it has 32 bits.
    pub(crate) fn address(&mut self, address: &Address) -> Result<(Slot, i64, bool), Problem> {
        match address.base {
            AddressBase::Reg(id) => {
                let class = self.class_of(id);
                Ok((self.register(id, class)?, address.offset, class == Class::W32))
            }
            AddressBase::Symbol(symbol) => {
                let value = self.symbol(symbol, 0)?;
                Ok((self.frame.preset(Class::W64, value), address.offset, false))
            }
            AddressBase::Absolute => {
                Ok((self.frame.preset(Class::W64, PresetValue::Const(0)), address.offset, false))
            }
        }
    }

    /// An address with its offset in one 64-bit register.
    pub(crate) fn wide_address(&mut self, address: &Address) -> Result<Slot, Problem> {
        let (mut base, offset, narrow) = self.address(address)?;
        if narrow {
            let mut op = Op::new(select::widen);
            (op.a, op.d) = (base, self.frame.temporary(Class::W64));
            base = op.d;
            self.push(op);
        }
        if offset != 0 {
            let mut op = Op::new(add_window);
            (op.a, op.imm, op.d) = (base, offset as u64, self.frame.temporary(Class::W64));
            base = op.d;
            self.push(op);
        }
        Ok(base)
    }
}
