//! The kinds of instructions that profiles count separately.

use cuda_ptx::{Instruction, Opcode as O, ScalarType, Word as W};

/// Returns the kind of an instruction. For instructions on a thread's own data, it is the opcode with state space,
/// vector size and types, as in `ld.global.v2.f32` or `setp.s32`, without rounding, caching or comparison. Instructions
/// that involve several threads keep their whole name: `bar.sync`, `atom.global.add.u32`.
pub(crate) fn kind_name(ins: &Instruction) -> String {
    if !is_data(&ins.opcode) {
        return ins.name().to_string();
    }
    let mut name = ins.opcode.clone();
    for modifier in ins.modifiers.iter().filter(|m| is_part_of_kind(m)) {
        name.push('.');
        name.push_str(modifier);
    }
    name
}

/// Returns whether the instruction works on a thread's own data.
fn is_data(opcode: &str) -> bool {
    const OTHERS: [&str; 12] = [
        O::Atom,
        W::Red,
        O::Bar,
        O::Barrier,
        O::Shfl,
        O::Vote,
        O::Match,
        O::Redux,
        O::Membar,
        W::Fence,
        O::Cp,
        O::Elect,
    ];
    let matrix = opcode.contains(O::Mma) || opcode.contains("matrix");
    !OTHERS.contains(&opcode) && !matrix && opcode != O::Mbarrier
}

fn is_part_of_kind(modifier: &str) -> bool {
    const INCLUDED: [&str; 11] = [
        W::Global,
        W::Shared,
        W::Local,
        W::Param,
        W::Const,
        W::V2,
        W::V4,
        W::V8,
        W::Wide,
        W::Lo,
        W::Hi,
    ];
    let base = modifier.split("::").next().unwrap_or(modifier);
    INCLUDED.contains(&base) || ScalarType::from_name(modifier).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

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
