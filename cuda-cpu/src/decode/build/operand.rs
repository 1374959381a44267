//! Conversion of operands to slots: registers, constants, symbols and addresses.

use cuda_ptx::{Address, AddressBase, Operand, RegId, ScalarKind, ScalarType, Space, Symbol};

use super::builder::{Builder, DISAGREES, Problem};
use super::special::{self, Value};
use crate::exec::alu::int_arithmetic::{Add, MadLo};
use crate::exec::alu::select;
use crate::exec::map;
use crate::exec::number::lane::Kind;
use crate::exec::special::add_window;
use crate::isa::address::{
    FUNCTION_STEP, FUNCTION_WINDOW, LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW, SpaceKind,
};
use crate::isa::preset::PresetValue;
use crate::isa::slot::{Class, Slot};
use crate::machine::code::Op;

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
                if let Value::Changing(run, imm, own) = special::of(*register) =>
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
            (Operand::Special(register), _) => match special::of(*register) {
                Value::Preset(value) => return Ok(value),
                Value::Changing(..) => return Err(DISAGREES),
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
}
