//! Finds the registers that an instruction reads and writes, and the rule by which its results are defined.

use cuda_ptx::{
    AddressBase, Instruction, Modifier, Opcode as O, Operand, RegId, ScalarType, Word as W,
};

use crate::isa::slot::Slot;
use crate::isa::table::{Registers, Rule};

/// Returns the registers of an instruction. `slot` maps a register to its slot, `upper` to the slot of the upper half
/// of a 128-bit one.
pub(crate) fn registers(
    ins: &Instruction,
    slot: impl Fn(RegId) -> Option<Slot>,
    upper: impl Fn(RegId) -> Option<Slot>,
) -> Registers {
    let rule = rule(ins);
    let mut found =
        Registers { rule, dests: Vec::new(), sources: Vec::new(), addresses: Vec::new() };
    let has_dest = match rule {
        Rule::Store | Rule::Uses { results: false } => false,
        Rule::Call => matches!(ins.operands.first(), Some(Operand::List(_))),
        _ => true,
    };
    for (i, operand) in ins.operands.iter().enumerate() {
        if rule == Rule::Call && !(i == 0 && has_dest) {
            if let Operand::Reg(callee) = operand {
                found.addresses.extend(slot(*callee));
            }
            continue;
        }
        if i == 0 && has_dest {
            // A discarded element keeps its position.
            each(operand, &mut |register, _| {
                found.dests.push(register.and_then(&slot).unwrap_or(Slot::NONE));
                found.dests.extend(register.and_then(&upper));
            });
            continue;
        }
        if let Operand::Address(address) = operand {
            if let AddressBase::Reg(id) = address.base {
                found.addresses.extend(slot(id));
            }
            continue;
        }
        each(operand, &mut |register, negated| {
            let slot = register.and_then(&slot).unwrap_or(Slot::NONE);
            found.sources.push((slot, negated));
            found.sources.extend(register.and_then(&upper).map(|slot| (slot, negated)));
        });
    }
    found
}

/// Calls `found` for each element of an operand: with its register, or `None` if it is none, and whether it is negated.
fn each(operand: &Operand, found: &mut impl FnMut(Option<RegId>, bool)) {
    match operand {
        Operand::Reg(id) => found(Some(*id), false),
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

fn rule(ins: &Instruction) -> Rule {
    let Ok(opcode) = ins.opcode else { return Rule::Uses { results: false } };
    let has = |word| ins.modifiers.contains(&Modifier::Word(word));
    let of_predicates = || ins.modifiers.contains(&Modifier::Type(ScalarType::Pred));
    match opcode {
        O::Ld | O::Ldu => Rule::Load,
        O::St => Rule::Store,
        O::And if of_predicates() => Rule::And,
        O::Or if of_predicates() => Rule::Or,
        O::Setp | O::Set if has(W::And) => Rule::CompareAnd,
        O::Setp | O::Set if has(W::Or) => Rule::CompareOr,
        O::Selp => Rule::Select,
        O::Shfl => Rule::Shuffle,
        // Only one bit of the result depends on each lane, so undefined inputs are tracked by bit.
        O::Vote if has(W::Ballot) => Rule::Ballot,
        // Values that are passed in registers count as written.
        O::Call => Rule::Call,
        O::Bar | O::Barrier => Rule::Uses { results: has(W::Red) },
        #[rustfmt::skip]
        O::Mov | O::Cvt | O::Cvta | O::Isspacep | O::Set | O::Setp | O::Slct | O::Testp | O::And
        | O::Or | O::Xor | O::Not | O::Cnot | O::Lop3 | O::Shl | O::Shr | O::Shf | O::Prmt | O::Popc
        | O::Clz | O::Brev | O::Bfind | O::Bfe | O::Bfi | O::Bmsk | O::Szext | O::Fns | O::Add
        | O::Sub | O::Mul | O::Mad | O::Fma | O::Addc | O::Subc | O::Madc | O::Mul24 | O::Mad24
        | O::Div | O::Rem | O::Min | O::Max | O::Neg | O::Abs | O::Sad | O::Dp4a | O::Dp2a
        | O::Copysign | O::Rcp | O::Sqrt | O::Rsqrt | O::Ex2 | O::Lg2 | O::Sin | O::Cos | O::Tanh
        | O::Vabsdiff | O::Vabsdiff2 | O::Vabsdiff4 | O::Vadd | O::Vadd2 | O::Vadd4 | O::Vavrg2
        | O::Vavrg4 | O::Vmad | O::Vmax | O::Vmax2 | O::Vmax4 | O::Vmin | O::Vmin2 | O::Vmin4
        | O::Vset | O::Vset2 | O::Vset4 | O::Vshl | O::Vshr | O::Vsub | O::Vsub2 | O::Vsub4 => Rule::Data,
        #[rustfmt::skip]
        O::Atom | O::Vote | O::Match | O::Redux | O::Activemask | O::Mma | O::Ldmatrix
        | O::Movmatrix | O::Elect | O::Mapa | O::Getctarank | O::Createpolicy | O::Alloca
        | O::Stacksave => Rule::Uses { results: true },
        // The first operand is a destination unless it is an address.
        O::Wmma | O::Mbarrier => {
            Rule::Uses { results: !matches!(ins.operands.first(), Some(Operand::Address(_))) }
        }
        #[rustfmt::skip]
        O::Applypriority | O::Bra | O::Brkpt | O::Brx | O::Clusterlaunchcontrol | O::Cp | O::Discard
        | O::Exit | O::Fence | O::Griddepcontrol | O::Istypep | O::Membar | O::Multimem
        | O::Nanosleep | O::Pmevent | O::Prefetch | O::Prefetchu | O::Red | O::Ret | O::Setmaxnreg
        | O::Stackrestore | O::Stmatrix | O::Suld | O::Suq | O::Sured | O::Sust | O::Tcgen05
        | O::Tensormap | O::Tex | O::Tld4 | O::Trap | O::Txq | O::Wgmma => Rule::Uses { results: false },
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
        let all: Vec<_> =
            body.instructions.iter().map(|ins| registers(ins, slot, |_| None)).collect();
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
}
