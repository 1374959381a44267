//! The differences between the loader and `ptxas` that are known and justified.

use crate::Judged;
use crate::place::{Case, Place};

/// A kind of instruction that only one of both refuses.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) refused_by: Refused,
    /// A pattern of the instruction without its guard: `*` stands for any characters.
    pub(crate) text: &'static str,
    /// A pattern of the message.
    pub(crate) message: &'static str,
    /// The reason why it remains.
    pub(crate) reason: &'static str,
    /// An instruction with the difference, as a report of this test writes it, or without its place.
    pub(crate) example: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    ByLoader,
    ByPtxas,
}

impl Difference {
    /// Returns the example, in a new module unless its text has another place in front.
    pub(crate) fn case(&self) -> Case {
        let (place, text) = self.example.split_once(": ").unwrap_or(("9.2 sm_100a", self.example));
        Case { place: Place::from_text(place), text: text.to_owned() }
    }

    pub(crate) fn matches(&self, judged: &Judged) -> bool {
        let message = match (self.refused_by, &judged.loader, &judged.assembler) {
            (Refused::ByLoader, Err(message), Ok(())) => message,
            (Refused::ByPtxas, Ok(()), Err(message)) => message,
            _ => return false,
        };
        let text = judged.case.text.as_str();
        let text = match text.split_once(' ') {
            Some((guard, text)) if guard.starts_with('@') => text,
            _ => text,
        };
        is_like(text, self.text) && is_like(message, self.message)
    }
}

/// Returns whether a text matches a pattern with `*` for any characters.
fn is_like(text: &str, pattern: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return text == pattern };
    let Some(text) = text.strip_prefix(start) else { return false };
    rest.is_empty()
        || (0..=text.len()).any(|at| text.get(at..).is_some_and(|end| is_like(end, rest)))
}

use Refused::{ByLoader, ByPtxas};

const fn difference(
    refused_by: Refused,
    text: &'static str,
    message: &'static str,
    reason: &'static str,
    example: &'static str,
) -> Difference {
    Difference { refused_by, text, message, reason, example }
}

const IGNORED: &str = "ptxas ignores some words of other instructions";
const ORDER: &str = "the table does not know the order of these words";
const UNKNOWN: &str = "PTX has no such instruction*";
const NO_MOV: &str = "Arguments mismatch for instruction 'mov'*";
const SMALL_ADDRESS: &str =
    "the CPU device extends addresses of 8 and 16 bits; ptxas does so in some instructions only";

pub(crate) const DIFFERENCES: &[Difference] = &[
    difference(ByLoader, "*.finite*", UNKNOWN, IGNORED, "max.u16.finite %h1, %h2, %h3;"),
    difference(ByLoader, "*.infinite*", UNKNOWN, IGNORED, "max.u16.infinite %h1, %h2, %h3;"),
    difference(ByLoader, "*.normal*", UNKNOWN, IGNORED, "max.u16.normal %h1, %h2, %h3;"),
    difference(ByLoader, "*.subnormal*", UNKNOWN, IGNORED, "max.u16.subnormal %h1, %h2, %h3;"),
    difference(ByLoader, "*.number*", UNKNOWN, IGNORED, "max.u16.number %h1, %h2, %h3;"),
    difference(ByLoader, "*.notanumber*", UNKNOWN, IGNORED, "max.u16.notanumber %h1, %h2, %h3;"),
    difference(
        ByLoader,
        "*.b8x16*",
        UNKNOWN,
        IGNORED,
        "wmma.load.a.sync.aligned.row.m8n8k32.b8x16.u4 {%w1}, [%a];",
    ),
    difference(
        ByLoader,
        "*.b6x16_p32*",
        UNKNOWN,
        IGNORED,
        "fma.rn.f32.b6x16_p32 %w1, %w2, %w3, %w4;",
    ),
    difference(
        ByLoader,
        "*.b4x16_p64*",
        UNKNOWN,
        IGNORED,
        "fma.rn.f32.b4x16_p64 %w1, %w2, %w3, %w4;",
    ),
    difference(
        ByLoader,
        "*mma.*.v*",
        UNKNOWN,
        "ptxas ignores a vector size of matrices",
        "wmma.load.b.v4.sync.aligned.row.m16n16k16.bf16 {%w1, %w2, %w3, %w4}, [%a];",
    ),
    difference(ByLoader, "*.pred*", UNKNOWN, IGNORED, "sub.pred.bf16 %h1, %h2, %h3;"),
    difference(ByLoader, "bar*.all*", UNKNOWN, IGNORED, "bar.all.sync %w1;"),
    difference(
        ByLoader,
        "mma.*16*.f64.f64.f64.f64 *",
        UNKNOWN,
        "ptxas ignores some further types of matrices",
        "9.2 sm_90a: mma.sync.bf16.aligned.m16n8k4.row.col.rm.f64.f64.f64.f64 {%l1, %l2, %l3, %l4}, {%l5, %l6}, {%l7}, {%l1, %l2, %l3, %l4};",
    ),
    difference(
        ByLoader,
        "*.v8.*16 *",
        UNKNOWN,
        "ptxas takes vectors of eight halves, which PTX does not have",
        "st.L1::evict_last.v8.s16 [%a], {%w1, %w2, %w3, %w4, %w5, %w6, %w7, %w8};",
    ),
    difference(ByLoader, "barrier*.aligned*.sync*", UNKNOWN, ORDER, "barrier.aligned.sync %w1;"),
    difference(
        ByLoader,
        "red.*_, *",
        "operand 1 is `_`*",
        "ptxas takes `_` as an address, without a defined meaning",
        "red.shared::cluster.inc.u32 _, %w1;",
    ),
    difference(
        ByLoader,
        "cp.*bulk.*mbarrier::complete_tx::bytes*",
        "operand 4 is *write an address*",
        "ptxas takes a number as the address of the barrier",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u64 [%a], [%a], %w1, 70000;",
    ),
    difference(
        ByLoader,
        "fence.proxy*",
        "operand 1 is a memory operand*",
        "ptxas does not check the type of the address of this fence",
        "fence.proxy.tensormap::generic.acquire.cta [%f3], 128;",
    ),
    difference(
        ByLoader,
        "movmatrix.*",
        "operand * is *",
        "ptxas does not check the type of this matrix",
        "movmatrix.sync.aligned.m8n8.trans.b16 %w1, %p1;",
    ),
    difference(
        ByLoader,
        "*{%*",
        "*is a vector of*write a register*",
        "ptxas takes a vector for a single register in some instructions",
        "mbarrier.arrive.b64 %l1, [%a], {%w1, %w2};",
    ),
    difference(
        ByLoader,
        "mma.sp*",
        "operand * is the register*write a vector of*",
        "ptxas takes a register for a vector of some sparse multiplications",
        "7.8 sm_90: mma.sp.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32 {%w1, %w2, %w3, %w4}, %w13, {%w7, %w8}, {%w9, %w10, %w11, %w12}, {%w5, %w6}, 0;",
    ),
    difference(
        ByLoader,
        "mma.sp*",
        "operand 5 is *pred*",
        "ptxas does not check the type of the metadata",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%w1, %w2, %w3, %w4}, {%w5, %w6, %w7, %w8}, {%w9, %w10, %w11, %w12}, {%w13, %w14, %w15, %w16}, %p3, 0;",
    ),
    difference(
        ByLoader,
        "ldmatrix*.col*",
        UNKNOWN,
        IGNORED,
        "ldmatrix.sync.aligned.m8n8.x1.col.b16 {%w1}, [%a];",
    ),
    difference(
        ByLoader,
        "mov.b128 *, %*",
        "operand 2 is the special register*",
        "ptxas reads a special register as 128 bits, without a defined meaning",
        "mov.b128 %q1, %tid;",
    ),
    difference(
        ByLoader,
        "st.volatile*.L2::evict_*.v*",
        UNKNOWN,
        "ptxas takes a hint for L2 with volatile vectors of 32 bytes, which PTX does not have",
        "st.volatile.L2::evict_last.v4.u64 [%a], {%l1, %l2, %l3, %l4};",
    ),
    difference(
        ByPtxas,
        "st*.param*[P*",
        "Illegal to write to function input parameter*",
        "the CPU device has a function's parameters in its local memory, which can be written",
        "8.6 sm_100 func: st.param::func.b128 [P], %q1;",
    ),
    difference(
        ByPtxas,
        "mbarrier.arrive*, %w*;",
        "Feature * requires .target sm_90*",
        "the CPU device takes a number of arrivals on every target",
        "7.1 sm_80: mbarrier.arrive_drop.b64 %l1, [%a], %w2;",
    ),
    difference(
        ByPtxas,
        "mov.*32 *v[1]*",
        "*Program uses 32-bit address*",
        "the CPU device moves addresses of 32 bits; ptxas refuses them on newer targets",
        "9.2 sm_90a: mov.b32 %w1, gv[1];",
    ),
    difference(ByLoader, "fence*.async*", UNKNOWN, IGNORED, "fence.cta.async ;"),
    difference(
        ByLoader,
        "ldmatrix*.row*",
        UNKNOWN,
        IGNORED,
        "ldmatrix.sync.aligned.m8n8.x2.row.b16 {%w1, %w2}, [%a];",
    ),
    difference(
        ByLoader,
        "fence.proxy*",
        UNKNOWN,
        "ptxas ignores a state space of these fences",
        "fence.proxy.tensormap::generic.release.shared::cta.cta;",
    ),
    difference(
        ByLoader,
        "mov.v4.u32 *, %*",
        "operand 2 is the special register*write a vector of 4*",
        "ptxas reads four elements from a special register that has one, without a defined meaning",
        "mov.v4.u32 {%w1, %w2, %w3, %w4}, %laneid;",
    ),
    difference(
        ByLoader,
        "*%hx*",
        "*of type f16x2*",
        "a register of two halves is no integer; ptxas treats it as one in some instructions",
        "add.s32 %w1, %hx1, %w2;",
    ),
    difference(
        ByLoader,
        "*%w1+4*",
        "*is a register plus a constant*",
        "ptxas does not check the type of a register plus a constant",
        "rsqrt.approx.ftz.f32 %w1, %w1+4;",
    ),
    difference(
        ByLoader,
        "*",
        "*is the address of a symbol*",
        "ptxas takes the address of a symbol as a number of any type",
        "neg.f16 %h1, f;",
    ),
    difference(
        ByLoader,
        "*{%*",
        "*is a vector of*write a vector of*",
        "ptxas does not check the types of all elements of a vector",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%w1, %w2, %w3, %w4}, {%p3, %w6, %w7, %w8}, {%w9, %w10}, {%w11, %w12, %w13, %w14};",
    ),
    difference(
        ByLoader,
        "v*",
        "operand 1 is the register*write a part of a register*",
        "ptxas ignores the value to merge with, if no part of the register is selected",
        "vmin.u32.u32.s32.sat %w1, %w2, %w3, %w4;",
    ),
    difference(
        ByLoader,
        "call* (1.5), *",
        "operand 2 is a function, and 1 results are given*",
        "ptxas takes a constant as the place of a result",
        "call (1.5), both, (pd);",
    ),
    difference(
        ByLoader,
        "call* (0f*), *",
        "operand 2 is a function, and 1 results are given*",
        "ptxas takes a constant as the place of a result",
        "call (0f3F800000), both, (pd);",
    ),
    difference(
        ByLoader,
        "*async*mbarrier::complete_tx::bytes*",
        "takes 3 operands, not 2",
        "ptxas does not require the barrier, without a defined meaning",
        "st.async.mbarrier::complete_tx::bytes.u32 [%a], %w1;",
    ),
    difference(
        ByLoader,
        "*",
        "*an operand's register has the wrong size*",
        "the CPU device converts no 128-bit registers",
        "cvt.sat.u8.s64 %q3, %l2;",
    ),
    difference(
        ByLoader,
        "*.b128*",
        "*no constants of 128 bits*",
        "the CPU device has no constants of 128 bits",
        "mov.b128 %q1, -1;",
    ),
    difference(
        ByLoader,
        "createpolicy.fractional*%w*",
        "*write the fraction as a number",
        "the CPU device encodes a policy when it loads a module",
        "createpolicy.fractional.L2::evict_first.b64 %l1, %w1;",
    ),
    difference(
        ByLoader,
        "call*(_)*",
        "*needs a place for each result of a call",
        "the CPU device needs a place for each result",
        "call (_), returns32;",
    ),
    difference(
        ByPtxas,
        "*[%*",
        "*Program uses 32-bit address*",
        "the CPU device extends addresses of 32 bits; ptxas refuses them where it does not remove the code",
        "prefetch.global.L1 [%u3];",
    ),
    difference(
        ByPtxas,
        "call*takes16*",
        "*In ABI compilation, passing predicate, 8-bit and 16-bit parameters*",
        "the CPU device passes parameters of any size",
        "call takes16, (%h1);",
    ),
    difference(
        ByPtxas,
        "*[%h*",
        NO_MOV,
        SMALL_ADDRESS,
        "stmatrix.sync.aligned.m8n8.x1.b16 [%h3], {%w1};",
    ),
    difference(
        ByPtxas,
        "*[%uh*",
        NO_MOV,
        SMALL_ADDRESS,
        "stmatrix.sync.aligned.m8n8.x1.b16 [%uh3], {%w1};",
    ),
    difference(
        ByPtxas,
        "*[%b*",
        NO_MOV,
        SMALL_ADDRESS,
        "stmatrix.sync.aligned.m8n8.x1.b16 [%b3], {%w1};",
    ),
    difference(
        ByPtxas,
        "cvt.rna*.tf32.f32 *",
        NO_MOV,
        "ptxas takes constants of 32 bits here, but none of 64 bits",
        "cvt.rna.tf32.f32 %w1, 1.5;",
    ),
    difference(
        ByPtxas,
        "*gv[1]*",
        "Arguments mismatch*",
        "ptxas takes an element of an array as an address in some instructions only",
        "applypriority.global.L2::evict_normal gv[1], 128;",
    ),
    difference(
        ByPtxas,
        "*mma*",
        "Arguments mismatch*",
        "ptxas requires registers of untyped bits for some fragments",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 {%w1, %w2, %w3, %w4}, {%w5, %w6, %w7, %w8}, {%w9, %w10}, {%s3, %w12, %w13, %w14};",
    ),
    difference(
        ByPtxas,
        "*mma.*",
        "Illegal *layout*",
        ORDER,
        "mma.sp::ordered_metadata.sync.aligned.m16n8k8.col.row.f32.tf32.tf32.f32 {%w1, %w2, %w3, %w4}, {%w5, %w6}, {%w7, %w8}, {%w9, %w10, %w11, %w12}, %w13, 0;",
    ),
    difference(
        ByPtxas,
        "*mma.*",
        "Illegal reduction operation*",
        ORDER,
        "mma.popc.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and {%w1, %w2, %w3, %w4}, {%w5, %w6}, {%w7}, {%w8, %w9, %w10, %w11};",
    ),
    difference(
        ByPtxas,
        "ldmatrix*.b8x16*",
        "Illegal modifier*",
        ORDER,
        "ldmatrix.sync.aligned.m16n16.x2.trans.shared.b4x16_p64.b8x16 {%w1, %w2, %w3, %w4}, [%a];",
    ),
    difference(
        ByPtxas,
        "mma.*{*_*}*",
        "Result discard mode is not allowed*",
        "ptxas takes a discarded element of a result in some multiplications only",
        "mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e5m2.f16 {%w1, _}, {%w3, %w4}, {%w5}, {%w6, %w7};",
    ),
    difference(
        ByPtxas,
        "bar*",
        "Number of threads participating in barrier must be in multiple of warp size",
        "the CPU device reports it when the barrier runs, like a number in a register",
        "bar.sync 0, 70000;",
    ),
    difference(
        ByPtxas,
        "*.param::func*",
        "Illegal state space for address operand*",
        "a kernel may read its parameters by this name, and the CPU device checks the address",
        "ld.param::func.s64 %l1, [P];",
    ),
    difference(
        ByPtxas,
        "*%w1+4*",
        "*<builtin>*",
        "ptxas makes invalid text of a register plus a constant",
        "vsub.u32.u32.u32.sat %w2.h0, %w1+4, %w4, %w5;",
    ),
    difference(
        ByLoader,
        "testp.f*",
        UNKNOWN,
        "ptxas does not require the property, without a defined meaning",
        "testp.f32 %p1, %w2;",
    ),
    difference(
        ByLoader,
        "st.async*.shared*",
        UNKNOWN,
        "ptxas takes the spaces `shared` and `shared::cta` for `shared::cluster`",
        "st.async.weak.shared.mbarrier::complete_tx::bytes.u64 [%a], %l1, [%a];",
    ),
    difference(
        ByLoader,
        "mov.v*",
        "operand 2 is *write a vector of*",
        "ptxas repeats a constant in all elements",
        "mov.v4.f32 {%w1, %w2, %w3, %w4}, 0d3FF0000000000000;",
    ),
    difference(
        ByLoader,
        "v*%hx*",
        "operand 1 is a part of a register*",
        "a register of two halves is no integer; ptxas treats it as one in some instructions",
        "vadd.u32.s32.s32 %hx3.h0, %w3, %w4, %w5;",
    ),
    difference(
        ByLoader,
        "st*.param.*",
        "*kernel parameters cannot be written",
        "the CPU device keeps parameters of a kernel in memory that cannot be written",
        "3.1 sm_35: st.v4.param.b16 [%a], {%h1, %h2, %h3, %h4};",
    ),
];
