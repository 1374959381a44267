//! Metadata of an instruction for observers: the registers that it reads and writes, the rule by which its results are
//! defined, and its kind.

use cuda_ptx::{
    AddressBase, Checked, Instruction, Modifier, Opcode as O, Operand, RegId, Role, ScalarType,
    Word as W,
};

use crate::isa::effect::{Registers, Rule};
use crate::isa::operand::Slot;

/// Returns the registers of an instruction. `slot` maps a register to its slot, `upper` to the slot of the upper half
/// of a 128-bit one.
pub(crate) fn registers(
    checked: &Checked<'_>,
    slot: impl Fn(RegId) -> Option<Slot>,
    upper: impl Fn(RegId) -> Option<Slot>,
) -> Registers {
    let rule = rule(checked);
    let mut found =
        Registers { rule, dests: Vec::new(), sources: Vec::new(), addresses: Vec::new() };
    for (i, (operand, role)) in checked.roles().enumerate() {
        match (role, operand) {
            // The callee, or the results of a call. Arguments depend on the called function.
            (_, Operand::Reg(callee)) if rule == Rule::Call => {
                found.addresses.extend(slot(*callee))
            }
            (_, Operand::List(_)) if rule == Rule::Call && i == 0 => {
                found.results(operand, &slot, &upper);
            }
            _ if rule == Rule::Call => {}
            (Role::Result, _) => found.results(operand, &slot, &upper),
            (Role::Address { .. }, Operand::Address(address)) => match address.base {
                AddressBase::Reg(id) | AddressBase::Element { index: id, .. } => {
                    found.addresses.extend(slot(id));
                }
                AddressBase::Symbol(_) | AddressBase::Absolute => {}
            },
            (Role::Source | Role::Label | Role::Address { .. }, _) => {
                each(operand, &mut |register, negated| {
                    let slot = register.and_then(&slot).unwrap_or(Slot::NONE);
                    found.sources.push((slot, negated));
                    found.sources.extend(register.and_then(&upper).map(|slot| (slot, negated)));
                });
            }
        }
    }
    found
}

impl Registers {
    /// Adds the results of an operand. A discarded element keeps its position.
    fn results(
        &mut self,
        operand: &Operand,
        slot: impl Fn(RegId) -> Option<Slot>,
        upper: impl Fn(RegId) -> Option<Slot>,
    ) {
        each(operand, &mut |register, _| {
            self.dests.push(register.and_then(&slot).unwrap_or(Slot::NONE));
            self.dests.extend(register.and_then(&upper));
        });
    }
}

/// Calls `found` for each element of an operand: with its register, or `None` if it is none, and whether it is negated.
fn each(operand: &Operand, found: &mut impl FnMut(Option<RegId>, bool)) {
    match operand {
        Operand::Reg(id) => found(Some(*id), false),
        Operand::RegPlus(id, _) => found(Some(*id), false),
        Operand::NotReg(id) => found(Some(*id), true),
        Operand::Pair(a, b) => {
            each(a, found);
            each(b, found);
        }
        Operand::Vector(parts) | Operand::List(parts) => parts.iter().for_each(|p| each(p, found)),
        Operand::Address(address) => match address.base {
            AddressBase::Reg(id) => found(Some(id), false),
            _ => found(None, false),
        },
        _ => found(None, false),
    }
}

/// Returns the rule of an instruction. Those that the table does not call data, and that no rule of their own
/// describes, use all of their sources, so an unwritten one is reported.
fn rule(checked: &Checked<'_>) -> Rule {
    let row = checked.row();
    let of_predicates = checked.ty() == Some(ScalarType::Pred);
    match row.opcode() {
        O::Ld | O::Ldu => Rule::Load,
        O::St if !checked.has(W::Async) => Rule::Store,
        O::And if of_predicates => Rule::And,
        O::Or if of_predicates => Rule::Or,
        O::Setp | O::Set if checked.has(W::And) => Rule::CompareAnd,
        O::Setp | O::Set if checked.has(W::Or) => Rule::CompareOr,
        O::Selp => Rule::Select,
        O::Shfl => Rule::Shuffle,
        // Only one bit of the result depends on each lane, so undefined inputs are tracked by bit.
        O::Vote if checked.has(W::Ballot) => Rule::Ballot,
        // Values that are passed in registers count as written.
        O::Call => Rule::Call,
        _ if row.is_data() => Rule::Data,
        _ => Rule::Uses,
    }
}

/// Returns the kind of an instruction. For instructions on a thread's own data, it is the opcode with state space,
/// vector size and types, as in `ld.global.v2.f32` or `setp.s32`, without rounding, caching or comparison. Instructions
/// that involve several threads keep their whole name: `bar.sync`, `atom.global.add.u32`.
pub(crate) fn kind_name(ins: &Instruction) -> String {
    let Some(opcode) = ins.opcode.as_ref().ok().filter(|opcode| is_data(**opcode)) else {
        return ins.name().to_string();
    };
    let mut name = opcode.name().to_owned();
    for modifier in ins.modifiers.iter().filter(|m| is_part_of_kind(**m)) {
        name.push('.');
        name.push_str(modifier.name());
    }
    name
}

/// Returns whether the instruction works on a thread's own data.
fn is_data(opcode: O) -> bool {
    match opcode {
        #[rustfmt::skip]
        O::Atom | O::Red | O::Bar | O::Barrier | O::Shfl | O::Vote | O::Match | O::Redux | O::Membar
        | O::Fence | O::Cp | O::Elect | O::Mma | O::Wmma | O::Wgmma | O::Ldmatrix | O::Stmatrix
        | O::Movmatrix | O::Mbarrier | O::Multimem | O::Tcgen05 | O::Clusterlaunchcontrol => false,
        #[rustfmt::skip]
        O::Abs | O::Activemask | O::Add | O::Addc | O::Alloca | O::And | O::Applypriority | O::Bfe
        | O::Bfi | O::Bfind | O::Bmsk | O::Bra | O::Brev | O::Brkpt | O::Brx | O::Call | O::Clz
        | O::Cnot | O::Copysign | O::Cos | O::Createpolicy | O::Cvt | O::Cvta | O::Discard | O::Div
        | O::Dp2a | O::Dp4a | O::Ex2 | O::Exit | O::Fma | O::Fns | O::Getctarank | O::Griddepcontrol
        | O::Isspacep | O::Istypep | O::Ld | O::Ldu | O::Lg2 | O::Lop3 | O::Mad | O::Mad24 | O::Madc
        | O::Mapa | O::Max | O::Min | O::Mov | O::Mul | O::Mul24 | O::Nanosleep | O::Neg | O::Not
        | O::Or | O::Pmevent | O::Popc | O::Prefetch | O::Prefetchu | O::Prmt | O::Rcp | O::Rem
        | O::Ret | O::Rsqrt | O::Sad | O::Selp | O::Set | O::Setmaxnreg | O::Setp | O::Shf | O::Shl
        | O::Shr | O::Sin | O::Slct | O::Sqrt | O::St | O::Stackrestore | O::Stacksave | O::Sub
        | O::Subc | O::Suld | O::Suq | O::Sured | O::Sust | O::Szext | O::Tanh | O::Tensormap
        | O::Testp | O::Tex | O::Tld4 | O::Trap | O::Txq | O::Vabsdiff | O::Vabsdiff2 | O::Vabsdiff4
        | O::Vadd | O::Vadd2 | O::Vadd4 | O::Vavrg2 | O::Vavrg4 | O::Vmad | O::Vmax | O::Vmax2
        | O::Vmax4 | O::Vmin | O::Vmin2 | O::Vmin4 | O::Vset | O::Vset2 | O::Vset4 | O::Vshl
        | O::Vshr | O::Vsub | O::Vsub2 | O::Vsub4 | O::Xor => true,
    }
}

fn is_part_of_kind(modifier: Modifier) -> bool {
    match modifier {
        Modifier::Type(_) => true,
        #[rustfmt::skip]
        Modifier::Word(word) => matches!(
            word,
            W::Global | W::Shared | W::SharedCta | W::SharedCluster | W::Local | W::Param
            | W::ParamEntry | W::ParamFunc | W::Const | W::V2 | W::V4 | W::V8 | W::Wide | W::Lo | W::Hi
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_results_sources_and_addresses() {
        let ptx = ".version 8.0 .target sm_80 .address_size 64 .visible .entry k() {
            .reg .b32 %r<9>; .reg .b64 %d<2>; .reg .pred %p<3>;
            ld.shared.v2.u32 {%r0, _}, [%d0+4];
            st.v2.u32 [%d0], {%r1, 5};
            setp.lt.and.s32 %p0|%p1, %r2, 3, !%p2;
            atom.add.u32 %r3, [%d1], %r4;
            @%p0 bra L;
        L:  add.u32 %r5, %r6, %r7;
            ret; }";
        let module = cuda_ptx::parse(ptx).unwrap();
        let body = module.functions[0].body.as_ref().unwrap();
        let name = |id: RegId| body.registers[id.0 as usize].name[1..].to_owned();
        let slots = std::cell::RefCell::new(Vec::new());
        let slot = |id: RegId| {
            slots.borrow_mut().push(name(id));
            Some(Slot(slots.borrow().len() as u32 - 1))
        };
        let checker = cuda_ptx::Checker::new(&module, body);
        let all: Vec<_> = body
            .instructions
            .iter()
            .map(|ins| registers(&checker.check(ins).unwrap(), slot, |_| None))
            .collect();
        let names = slots.borrow();
        let named = |slot: &Slot| names.get(slot.0 as usize).map_or("-", |n| n.as_str()).to_owned();
        let told = |r: &Registers| {
            let sources = r
                .sources
                .iter()
                .map(|(slot, not)| format!("{}{}", if *not { "!" } else { "" }, named(slot)));
            let list = |slots: &[Slot]| slots.iter().map(named).collect::<Vec<_>>().join(" ");
            format!(
                "{} = {} at {}",
                list(&r.dests),
                sources.collect::<Vec<_>>().join(" "),
                list(&r.addresses)
            )
        };
        let told: Vec<_> = all.iter().map(told).collect();
        assert_eq!(
            told,
            [
                "r0 - =  at d0",
                " = r1 - at d0",
                "p0 p1 = r2 - !p2 at ",
                "r3 = r4 at d1",
                " = - at ",
                "r5 = r6 r7 at ",
                " =  at ",
            ]
        );
        assert_eq!(all[2].rule, Rule::CompareAnd);
    }

    #[test]
    fn kind_excludes_rounding_and_caching() {
        let ptx = ".version 8.0 .target sm_80 .address_size 64 .visible .entry k() {
            .reg .b32 %r<9>; .reg .b64 %d<2>; .reg .pred %p;
            ld.volatile.shared::cta.v2.f32 {%r1, %r2}, [%d1];
            setp.lt.and.s32 %p, %r1, %r2, %p;
            cvt.rzi.s32.f32 %r1, %r2;
            mul.wide.u32 %d1, %r1, %r2;
            atom.global.add.u32 %r1, [%d1], %r2;
            ret; }";
        let module = cuda_ptx::parse(ptx).unwrap();
        let body = module.functions[0].body.as_ref().unwrap();
        let kinds: Vec<_> = body.instructions.iter().map(kind_name).collect();
        assert_eq!(
            kinds,
            [
                "ld.shared::cta.v2.f32",
                "setp.s32",
                "cvt.s32.f32",
                "mul.wide.u32",
                "atom.global.add.u32",
                "ret"
            ]
        );
    }
}
