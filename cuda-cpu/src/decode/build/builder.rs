//! State for decoding one function, and the emission of ops. For operands see `operand`.

use cuda_ptx::{Body, Checked, Function, Instruction, Module, RegId};
use rustc_hash::FxHashMap;

use super::frame::Frame;
use super::kind::kind_name;
use super::known::Known;
use super::locals::Locals;
use super::registers::registers;
use crate::decode::layout::Layout;
use crate::exec::control;
use crate::exec::control::guarded;
use crate::exec::memory::wide::upper;
use crate::isa::effect::Effect;
use crate::isa::sizes::index;
use crate::isa::slot::{Class, Slot};
use crate::machine::code::{Code, Control, Op};

/// The reason why an instruction cannot be decoded.
pub(crate) type Problem = &'static str;

/// The internal error for an instruction that the table has and its decoder does not. The table is compared first, so an
/// invalid instruction has another error.
pub(crate) const DISAGREES: Problem = "internal error: the decoder of the CPU device does not take a form that the table of instructions has";

/// The state for decoding one function.
pub(crate) struct Builder<'a> {
    pub(crate) module: &'a Module,
    pub(crate) function: &'a Function,
    /// Index of the function.
    pub(super) index: u32,
    pub(crate) body: &'a Body,
    pub(crate) layout: &'a Layout,
    pub(crate) code: &'a mut Code,
    pub(crate) frame: Frame,
    pub(in crate::decode) registers: Vec<Option<Slot>>,
    pub(super) known: Known,
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
    pub(super) after: Vec<Op>,
    pub(super) ins: Option<&'a Instruction>,
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

    pub(super) fn push(&mut self, mut op: Op) {
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
