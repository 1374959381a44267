//! The kinds of instructions that profiles count separately.

use cuda_ptx::{Instruction, Modifier, Opcode as O, Word};

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
    use Word as W;
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
