//! State for decoding one function: the conversion of operands to slots, and the emission of ops.
//!
//! [`Known`] eliminates copies of launch constants: kernel parameters, special registers and immediate values.
//! Compilers copy such values into registers before they use them. The frame keeps each constant in a slot of its own,
//! a *preset*. If a single unguarded instruction copies a constant to a register, the register shares the slot of the
//! preset, and no op is emitted for the instruction.

use cuda_ptx::{
    Address, AddressBase, Body, Checked, Function, Instruction, Module, Operand, RegId, ScalarKind,
    ScalarType, Space, Special as Register, SpecialName as Name, Symbol,
};
use rustc_hash::FxHashMap;

use super::frame::{Frame, Locals};
use super::metadata::{kind_name, registers};
use crate::decode::layout::Layout;
use crate::exec::alu::int_arithmetic::{Add, MadLo};
use crate::exec::alu::select;
use crate::exec::control::{self, guarded};
use crate::exec::map;
use crate::exec::memory::atomics::upper;
use crate::exec::number::lane::Kind;
use crate::exec::special::{add_window, clock_32, clock_64, global_timer, global_timer_32};
use crate::isa::address::{
    FUNCTION_STEP, FUNCTION_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, SpaceKind,
};
use crate::isa::effect::Effect;
use crate::isa::index;
use crate::isa::operand::{Class, PresetValue, Slot, Special};
use crate::machine::code::{Code, Control, Handler, Op};

/// The reason why an instruction cannot be decoded.
pub(crate) type Problem = &'static str;

/// The internal error for an instruction that the table has and its decoder does not. The table is compared first, so
/// an invalid instruction has another error.
pub(crate) const DISAGREES: Problem = "internal error: the decoder of the CPU device does not take a form that the table of instructions has";

/// The state for decoding one function.
pub(crate) struct Builder<'a> {
    pub(crate) module: &'a Module,
    pub(crate) function: &'a Function,
    /// Index of the function.
    index: u32,
    pub(crate) body: &'a Body,
    pub(crate) layout: &'a Layout,
    pub(crate) code: &'a mut Code,
    pub(crate) frame: Frame,
    pub(in crate::decode) registers: Vec<Option<Slot>>,
    known: Known,
    /// Offsets of the function's own variables, parameters and results in its local memory.
    pub(crate) locals: Locals,
    /// The hidden carry register.
    carry: Option<Slot>,
    /// The hidden register with the end of each lane's local memory, in functions with `alloca`.
    pub(crate) stack_top: Option<Slot>,
    /// Ops whose `imm` is still a label index.
    pub(crate) jumps: Vec<u32>,
    /// For each target list that a `brx` names, its jump table in the code. Its targets are still label indices.
    pub(crate) tables: FxHashMap<u32, u32>,
    /// Ops that follow the one being decoded, to widen its results.
    after: Vec<Op>,
    ins: Option<&'a Instruction>,
    /// The uses of the instruction's operands.
    checked: Option<Checked<'a>>,
    /// Whether an op has been emitted by which the instruction is counted.
    counted: bool,
    /// The memory effects of the next emitted op.
    effects: Vec<Effect>,
    /// Mask of the loaded bytes that the program uses.
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
            stack_top: None,
            jumps: Vec::new(),
            tables: FxHashMap::default(),
            after: Vec::new(),
            ins: None,
            checked: None,
            counted: false,
            effects: Vec::new(),
            used_bytes: u64::MAX,
        }
    }

    /// Starts an instruction. The ops that follow belong to it.
    pub(crate) fn begin(&mut self, ins: &'a Instruction) {
        self.ins = Some(ins);
        self.checked = None;
        self.after.clear();
        self.frame.free_temporaries();
        self.counted = false;
        self.effects.clear();
    }

    /// Sets the row of the table that the instruction matches.
    pub(crate) fn check(&mut self, checked: Checked<'a>) {
        self.checked = Some(checked);
    }

    /// Declares an effect of the next emitted op, for the observers.
    pub(crate) fn states(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Returns the index of the next op.
    pub(crate) fn pc(&self) -> u32 {
        index(self.code.ops.len())
    }

    fn push(&mut self, mut op: Op) {
        op.pc = self.pc();
        self.code.ops.push(op);
        self.code.lines.push(self.ins.map_or(self.function.line, |i| i.line));
        self.code.table.push();
    }

    /// Pushes an op that represents the instruction, with its declared effects.
    fn push_own(&mut self, op: Op) {
        self.push(op);
        if let Some(ins) = self.ins.filter(|_| !std::mem::replace(&mut self.counted, true)) {
            let slot = |id: RegId| self.registers.get(id.0 as usize).copied().flatten();
            let upper = |id: RegId| slot(id).filter(|_| self.is_wide(id)).map(upper);
            let registers = self.checked.map(|checked| registers(&checked, slot, upper));
            if let Some(registers) = registers {
                self.code.table.is_instruction(&kind_name(ins), registers);
            }
        }
        self.effects.drain(..).for_each(|effect| self.code.table.has_effect(effect));
    }

    /// Emits an op that every lane executes.
    pub(crate) fn emit_plain(&mut self, op: Op) {
        self.push(op);
    }

    /// Emits an op under the instruction's guard, followed by the pending `after` ops.
    pub(crate) fn emit(&mut self, op: Op) -> Result<(), Problem> {
        let op = self.with_guard(op)?;
        self.push_own(op);
        for after in std::mem::take(&mut self.after) {
            let after = self.with_guard(after)?;
            self.push(after);
        }
        Ok(())
    }

    /// Emits an op under the instruction's guard, before the instruction's own op.
    pub(in crate::decode) fn emit_before(&mut self, op: Op) -> Result<(), Problem> {
        let op = self.with_guard(op)?;
        self.push(op);
        Ok(())
    }

    /// Emits an op whose handler evaluates the guard itself.
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
        op.extra = self.add_control(control);
        self.emit_self_guarded(op)
    }

    /// Adds the data of a control op and returns its index, which is the op's `extra`.
    pub(crate) fn add_control(&mut self, control: Control) -> u32 {
        self.code.controls.push(control);
        index(self.code.controls.len()) - 1
    }

    /// Returns the jump table of a target list. Branches share it, because a long list named by many of them would
    /// otherwise take unbounded memory.
    pub(crate) fn jump_table(&mut self, list: u32) -> Result<u32, Problem> {
        let targets = self.body.target_lists.get(list as usize).ok_or(DISAGREES)?;
        let tables = &mut self.code.jump_tables;
        Ok(*self.tables.entry(list).or_insert_with(|| {
            tables.push(targets.labels.iter().map(|label| label.0).collect());
            index(tables.len()) - 1
        }))
    }

    /// Appends extra operands and returns the index of the first one.
    pub(crate) fn extras(&mut self, slots: impl IntoIterator<Item = Slot>) -> u32 {
        let first = index(self.code.extras.len());
        self.code.extras.extend(slots);
        first
    }

    pub(crate) fn new_cache(&mut self) -> u32 {
        self.code.caches += 1;
        self.code.caches - 1
    }

    /// Returns the hidden carry register.
    pub(crate) fn carry(&mut self) -> Slot {
        let frame = &mut self.frame;
        *self.carry.get_or_insert_with(|| frame.register(Class::Pred))
    }
}

impl Builder<'_> {
    /// Returns the class of a declared register.
    pub(crate) fn class_of(&self, id: RegId) -> Class {
        match self.body.registers.get(id.0 as usize).map(|r| r.ty) {
            Some(ScalarType::Pred) => Class::Pred,
            Some(ty) if ty.size() > 4 => Class::W64,
            _ => Class::W32,
        }
    }

    /// Returns the slot of a register. Fails if it has another class.
    pub(crate) fn register(&mut self, id: RegId, class: Class) -> Result<Slot, Problem> {
        let declared = self.body.registers.get(id.0 as usize).ok_or(DISAGREES)?;
        if declared.ty == ScalarType::B128 || self.class_of(id) != class {
            return Err("an operand's register has the wrong size");
        }
        let frame = &mut self.frame;
        Ok(*self.registers[id.0 as usize].get_or_insert_with(|| frame.register(class)))
    }

    /// Returns a register for a source operand of this kind.
    pub(crate) fn source(&mut self, operand: &Operand, kind: Kind) -> Result<Slot, Problem> {
        let class = kind.class();
        match operand {
            Operand::Reg(id) => self.source_register(*id, class),
            Operand::RegPlus(id, constant) => self.sum(*id, *constant, class),
            Operand::Special(register)
                if let SpecialValue::Changing(run, imm, own) = special_value(*register) =>
            {
                let mut op = Op::new(run);
                (op.imm, op.d) = (imm, self.frame.register(own.class()));
                self.push(op);
                Ok(self.converted(op.d, own.class(), class))
            }
            _ => {
                let value = self.value(operand, kind)?;
                Ok(self.frame.preset(class, value))
            }
        }
    }

    /// Returns a register that is used as a source. A register of another width is converted first.
    fn source_register(&mut self, id: RegId, class: Class) -> Result<Slot, Problem> {
        let own = match (self.class_of(id), class) {
            (own @ Class::W64, Class::W32) | (own @ Class::W32, Class::W64) => own,
            _ => class,
        };
        let slot = self.register(id, own)?;
        Ok(self.converted(slot, own, class))
    }

    /// Returns a register with a value of another width.
    fn converted(&mut self, slot: Slot, own: Class, class: Class) -> Slot {
        if own == class {
            return slot;
        }
        let mut op = Op::new(if own == Class::W64 { select::narrow } else { select::widen });
        (op.a, op.d) = (slot, self.frame.register(class));
        self.push(op);
        op.d
    }

    /// Returns a register with the sum of a register and a constant.
    fn sum(&mut self, id: RegId, constant: i64, class: Class) -> Result<Slot, Problem> {
        let add = match class {
            Class::W64 => map::binary::<Add<u64>>(),
            Class::W32 => map::binary::<Add<u32>>(),
            Class::Pred => return Err(DISAGREES),
        };
        let mut op = Op::new(add.run);
        op.a = self.source_register(id, class)?;
        op.b = self.frame.preset(class, PresetValue::Const(constant as u64));
        op.d = self.frame.register(class);
        self.push(op);
        Ok(op.d)
    }

    /// Returns a 64-bit register with the address of an element of a variable, in the variable's own state space.
    fn element(&mut self, symbol: Symbol, index: RegId, size: u32) -> Result<Slot, Problem> {
        let base = self.symbol(symbol, 0)?;
        let own = self.body.registers.get(index.0 as usize);
        let signed = own.is_some_and(|own| own.ty.kind() == ScalarKind::Signed);
        let mut wide = self.source_register(index, self.class_of(index))?;
        if self.class_of(index) == Class::W32 {
            let mut op = Op::new(select::widen);
            (op.a, op.imm, op.d) = (wide, signed.into(), self.frame.temporary(Class::W64));
            wide = op.d;
            self.push(op);
        }
        let mut op = Op::new(map::ternary::<MadLo<u64>>().run);
        op.a = wide;
        op.b = self.frame.preset(Class::W64, PresetValue::Const(size.into()));
        op.c = self.frame.preset(Class::W64, base);
        op.d = self.frame.temporary(Class::W64);
        self.push(op);
        Ok(op.d)
    }

    /// Returns the value of a constant, special register or symbol.
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
            (Operand::Special(register), _) => match special_value(*register) {
                SpecialValue::Preset(value) => return Ok(value),
                SpecialValue::Changing(..) => return Err(DISAGREES),
            },
            (Operand::Symbol(symbol, offset), Kind::W32 | Kind::W64) => {
                return self.symbol(*symbol, *offset);
            }
            _ => return Err(DISAGREES),
        };
        Ok(PresetValue::Const(bits))
    }

    /// Returns the address of a symbol in its own state space. It is generic for parameters.
    pub(crate) fn symbol(&self, symbol: Symbol, offset: i64) -> Result<PresetValue, Problem> {
        let at = |base: u64| Ok(PresetValue::Const(base.wrapping_add_signed(offset)));
        let local = |base: u32| {
            let at = i64::from(base).checked_add(offset).and_then(|at| u32::try_from(at).ok());
            at.map(PresetValue::Local).ok_or("the offset is far outside of the variable")
        };
        match symbol {
            Symbol::Module(i) => match self.layout.module_address(i) {
                Some(address) => at(address),
                None if offset == 0 => Ok(PresetValue::DynamicShared),
                None => Err("offsets from a dynamic shared variable are not supported"),
            },
            Symbol::Body(i) => {
                let variable = self.body.variables.get(i as usize).ok_or(DISAGREES)?;
                match variable.space {
                    Space::Local | Space::Param => local(self.locals.variables[i as usize]),
                    _ => match self.layout.body_address(self.index, i) {
                        Some(address) => at(address),
                        None if offset == 0 => Ok(PresetValue::DynamicShared),
                        None => Err("offsets from a dynamic shared variable are not supported"),
                    },
                }
            }
            Symbol::Param(i) if self.function.is_entry => {
                let param = self.function.params.get(i as usize).ok_or(DISAGREES)?;
                at(PARAM_WINDOW + u64::from(param.offset))
            }
            Symbol::Param(i) => local(*self.locals.params.get(i as usize).ok_or(DISAGREES)?),
            Symbol::Return(i) => local(*self.locals.returns.get(i as usize).ok_or(DISAGREES)?),
            Symbol::Function(i) => at(FUNCTION_WINDOW + FUNCTION_STEP * u64::from(i)),
        }
    }

    /// Returns whether the symbol is a parameter in local memory: of a call, or of the device function itself.
    pub(crate) fn is_local_param(&self, symbol: Symbol) -> bool {
        match symbol {
            Symbol::Param(_) | Symbol::Return(_) => !self.function.is_entry,
            Symbol::Body(i) => {
                self.body.variables.get(i as usize).is_some_and(|v| v.space == Space::Param)
            }
            _ => false,
        }
    }

    /// Returns the register of a destination of this kind. If the declared register is wider, the result is extended
    /// afterwards.
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
            _ => return Err(DISAGREES),
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

    /// Returns a predicate source, and whether it is negated.
    pub(crate) fn pred(&mut self, operand: &Operand) -> Result<(Slot, bool), Problem> {
        match operand {
            Operand::Reg(id) => Ok((self.register(*id, Class::Pred)?, false)),
            Operand::NotReg(id) => Ok((self.register(*id, Class::Pred)?, true)),
            Operand::Int(v) => {
                let value = PresetValue::Const(u64::from(*v != 0));
                Ok((self.frame.preset(Class::Pred, value), false))
            }
            _ => Err(DISAGREES),
        }
    }

    /// Returns the base register of an address in a space, the offset, and whether the register has 32 bits.
    pub(crate) fn address(
        &mut self,
        address: &Address,
        space: SpaceKind,
    ) -> Result<(Slot, i64, bool), Problem> {
        match address.base {
            AddressBase::Reg(id) => {
                let class = self.class_of(id);
                Ok((self.register(id, class)?, address.offset, class == Class::W32))
            }
            AddressBase::Symbol(symbol) => {
                let base = self.frame.preset(Class::W64, self.symbol(symbol, 0)?);
                let window = if space == SpaceKind::Generic { self.window(symbol) } else { 0 };
                Ok((base, address.offset.wrapping_add_unsigned(window), false))
            }
            AddressBase::Element { symbol, index, size } => {
                let base = self.element(symbol, index, size)?;
                let window = if space == SpaceKind::Generic { self.window(symbol) } else { 0 };
                Ok((base, address.offset.wrapping_add_unsigned(window), false))
            }
            AddressBase::Absolute => {
                Ok((self.frame.preset(Class::W64, PresetValue::Const(0)), address.offset, false))
            }
        }
    }

    /// Returns the difference between a symbol's generic address and its address in its own state space.
    fn window(&self, symbol: Symbol) -> u64 {
        let variable = match symbol {
            Symbol::Module(i) => self.module.variables.get(i as usize),
            Symbol::Body(i) => self.body.variables.get(i as usize),
            Symbol::Param(_) | Symbol::Return(_) | Symbol::Function(_) => None,
        };
        match variable.map(|variable| variable.space) {
            Some(Space::Shared) => SHARED_WINDOW,
            Some(Space::Local) => LOCAL_WINDOW,
            Some(Space::Global | Space::Const | Space::Param) | None => 0,
        }
    }

    /// Returns a 64-bit register with an address in a space, including its offset.
    pub(crate) fn wide_address(
        &mut self,
        address: &Address,
        space: SpaceKind,
    ) -> Result<Slot, Problem> {
        let (mut base, offset, narrow) = self.address(address, space)?;
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

    /// Makes a register share the slot of its only value. Returns false if that is impossible and an op must write it.
    pub(crate) fn is_always(&mut self, dest: &Operand, class: Class, value: PresetValue) -> bool {
        let Some(id) = self.written_once(dest, class) else { return false };
        self.registers[id.0 as usize] = Some(self.frame.preset(class, value));
        self.known.set(id);
        true
    }

    /// As [`is_always`](Self::is_always), for a copy of a constant register.
    pub(crate) fn is_always_as(&mut self, dest: &Operand, class: Class, source: &Operand) -> bool {
        let (Some(id), Operand::Reg(from)) = (self.written_once(dest, class), source) else {
            return false;
        };
        if !self.known.holds(*from) || self.class_of(*from) != class {
            return false;
        }
        self.registers[id.0 as usize] = self.registers[from.0 as usize];
        self.known.set(id);
        true
    }

    /// Returns the destination, if this instruction is its only write, is unguarded, and the register is not used
    /// before.
    fn written_once(&self, dest: &Operand, class: Class) -> Option<RegId> {
        let Operand::Reg(id) = *dest else { return None };
        let unguarded = self.ins.is_some_and(|ins| ins.guard.is_none());
        let fits =
            self.class_of(id) == class && self.body.registers[id.0 as usize].ty != ScalarType::B128;
        let fresh = self.registers.get(id.0 as usize).is_some_and(Option::is_none);
        (unguarded && fits && fresh && self.known.is_written_once(id)).then_some(id)
    }
}

/// The constant registers of a function.
struct Known {
    /// For each register, the number of instructions that write it. 2 means two or more.
    writes: Vec<u8>,
    holds: Vec<bool>,
}

impl Known {
    /// Counts the possible writes of each register. Registers that are read in the position of a result are also
    /// counted. That prevents an elimination but is otherwise harmless.
    fn new(function: &Function, body: &Body) -> Self {
        let count = body.registers.len();
        let mut known = Self { writes: vec![0; count], holds: vec![false; count] };
        let own = function.returns.iter().chain(&function.params).filter_map(|p| p.register);
        own.for_each(|id| known.write(id));
        body.instructions.iter().filter_map(|i| i.operands.first()).for_each(|o| known.written(o));
        known
    }

    fn written(&mut self, operand: &Operand) {
        match operand {
            Operand::Reg(id) | Operand::NotReg(id) => self.write(*id),
            Operand::Part(part) => self.write(part.register),
            Operand::Pair(a, b) => {
                self.written(a);
                self.written(b);
            }
            Operand::Vector(parts) | Operand::List(parts) => {
                parts.iter().for_each(|part| self.written(part));
            }
            _ => {}
        }
    }

    fn write(&mut self, id: RegId) {
        if let Some(writes) = self.writes.get_mut(id.0 as usize) {
            *writes = (*writes + 1).min(2);
        }
    }

    fn is_written_once(&self, id: RegId) -> bool {
        self.writes.get(id.0 as usize) == Some(&1)
    }

    /// Marks a register as constant.
    fn set(&mut self, id: RegId) {
        if let Some(holds) = self.holds.get_mut(id.0 as usize) {
            *holds = true;
        }
    }

    fn holds(&self, id: RegId) -> bool {
        self.holds.get(id.0 as usize) == Some(&true)
    }
}

/// The value of a special register.
enum SpecialValue {
    /// Constant while a block runs.
    Preset(PresetValue),
    /// Read by a handler with this `imm`.
    Changing(Handler, u64, Kind),
}

/// Returns the value of a special register.
fn special_value(register: Register) -> SpecialValue {
    let (name, axis) = match register {
        Register::Named(name) => (name, 0),
        Register::Element(_, 3..) => return SpecialValue::Preset(PresetValue::Const(0)),
        Register::Element(name, axis) => (name, axis),
        // CUDA's cooperative groups find the workspace of a cooperative launch in these two.
        Register::Envreg(number @ (1 | 2)) => {
            let special = Special::Workspace { high: number == 1 };
            return SpecialValue::Preset(PresetValue::Special(special));
        }
        // The device supports no other driver-defined registers and no performance counters.
        Register::Envreg(_) | Register::Pm(_) | Register::Pm64(_) => {
            return SpecialValue::Preset(PresetValue::Const(0));
        }
    };
    let special = match name {
        Name::Tid => Special::Tid(axis),
        Name::Ntid => Special::Ntid(axis),
        Name::Ctaid => Special::Ctaid(axis),
        Name::Nctaid => Special::Nctaid(axis),
        Name::Laneid => Special::LaneId,
        Name::Warpid => Special::WarpId,
        Name::Nwarpid => Special::NWarpId,
        Name::Smid => Special::SmId,
        Name::Nsmid => Special::NSmId,
        Name::Gridid => Special::GridId,
        Name::LanemaskEq => Special::LaneMaskEq,
        Name::LanemaskLt => Special::LaneMaskLt,
        Name::LanemaskLe => Special::LaneMaskLe,
        Name::LanemaskGt => Special::LaneMaskGt,
        Name::LanemaskGe => Special::LaneMaskGe,
        Name::DynamicSmemSize => Special::DynamicSharedSize,
        Name::TotalSmemSize | Name::AggrSmemSize => Special::TotalSharedSize,
        Name::ClusterCtarank => Special::ClusterRank,
        Name::ClusterNctarank => Special::ClusterSize,
        Name::ClusterCtaid => Special::ClusterCtaid(axis),
        Name::ClusterNctaid => Special::ClusterNctaid(axis),
        Name::Clusterid => Special::ClusterId(axis),
        Name::Nclusterid => Special::NClusterId(axis),
        Name::IsExplicitCluster => Special::IsExplicitCluster,
        // The device supports no device-side graph launch, and reserves no shared memory.
        Name::CurrentGraphExec
        | Name::ReservedSmemOffset0
        | Name::ReservedSmemOffset1
        | Name::ReservedSmemOffsetBegin
        | Name::ReservedSmemOffsetCap
        | Name::ReservedSmemOffsetEnd => return SpecialValue::Preset(PresetValue::Const(0)),
        Name::Clock => return SpecialValue::Changing(clock_32, 0, Kind::W32),
        Name::ClockHi => return SpecialValue::Changing(clock_32, 32, Kind::W32),
        Name::Clock64 => return SpecialValue::Changing(clock_64, 0, Kind::W64),
        Name::Globaltimer => return SpecialValue::Changing(global_timer, 0, Kind::W64),
        Name::GlobaltimerLo => return SpecialValue::Changing(global_timer_32, 0, Kind::W32),
        Name::GlobaltimerHi => return SpecialValue::Changing(global_timer_32, 32, Kind::W32),
    };
    SpecialValue::Preset(PresetValue::Special(special))
}
