//! Every form of `mma` and `wmma.mma`, on fragments of raw bits.

use std::collections::HashMap;
use std::rc::Rc;

use super::inputs::{
    BF16, E4M3, E5M2, Elem, F16, F32, F64, REGISTERS, TF32, fragments, with_metadata,
};
use super::{Case, kernel};

/// The element type and number of registers of an operand.
#[derive(Clone, Copy)]
struct Fragment {
    elem: Elem,
    registers: usize,
}

struct Form {
    name: String,
    /// For a sparse A: the selector of the lanes with the metadata.
    selector: Option<u32>,
    /// The fragments of A, B, C and D.
    fragments: [Fragment; 4],
    tiles: usize,
}

/// Returns the fragment of a matrix of `size` elements of this type.
fn fragment(ty: &str, size: usize) -> Fragment {
    let (elem, bits) = match ty {
        "f16" => (F16, 16),
        "bf16" => (BF16, 16),
        "tf32" => (TF32, 32),
        "f32" => (F32, 32),
        "f64" => (F64, 64),
        "e4m3" => (E4M3, 8),
        "e5m2" => (E5M2, 8),
        "s8" | "u8" => (Elem::Bits, 8),
        "s4" | "u4" => (Elem::Bits, 4),
        "b1" => (Elem::Bits, 1),
        _ => (Elem::Bits, 32),
    };
    let lane = if bits == 64 { 64 } else { 32 };
    Fragment { elem, registers: (size * bits / 32).div_ceil(lane) }
}

fn sizes(shape: &str) -> [usize; 3] {
    let numbers = shape.split(['m', 'n', 'k']).skip(1).map(|n| n.parse().unwrap());
    numbers.collect::<Vec<_>>().try_into().unwrap()
}

/// Creates a form. `types` are those of D, A, B and C.
fn form(name: String, shape: &str, types: [&str; 4], copies: usize, tiles: usize) -> Form {
    let [m, n, k] = sizes(shape);
    let [d, a, b, c] = types;
    let fragments = [
        fragment(a, m * k * copies),
        fragment(b, k * n * copies),
        fragment(c, m * n * copies),
        fragment(d, m * n * copies),
    ];
    Form { name, selector: None, fragments, tiles }
}

fn mma_floats(forms: &mut Vec<Form>) {
    for (al, bl) in LAYOUTS {
        for (d, c) in [("f16", "f16"), ("f32", "f16"), ("f32", "f32")] {
            let name = format!("mma.sync.aligned.m8n8k4.{al}.{bl}.{d}.f16.f16.{c}");
            forms.push(form(name, "m8n8k4", [d, "f16", "f16", c], 4, 200));
        }
    }
    let mut one = |shape: &str, d: &str, a: &str, b: &str, tiles: usize| {
        let name = format!("mma.sync.aligned.{shape}.row.col.{d}.{a}.{b}.{d}");
        forms.push(form(name, shape, [d, a, b, d], 1, tiles));
    };
    for shape in ["m16n8k8", "m16n8k16"] {
        for d in ["f16", "f32"] {
            one(shape, d, "f16", "f16", 1000);
        }
        one(shape, "f32", "bf16", "bf16", 1000);
    }
    for shape in ["m16n8k4", "m16n8k8"] {
        one(shape, "f32", "tf32", "tf32", 1000);
    }
    for shape in ["m16n8k16", "m16n8k32"] {
        for (a, b) in [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
            for d in ["f16", "f32"] {
                one(shape, d, a, b, 200);
            }
        }
    }
}

fn mma_others(forms: &mut Vec<Form>) {
    for shape in ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"] {
        for round in ["", ".rn", ".rz", ".rm", ".rp"] {
            let name = format!("mma.sync.aligned.{shape}.row.col{round}.f64.f64.f64.f64");
            forms.push(form(name, shape, ["f64"; 4], 1, 100));
        }
    }
    let bytes = ["m8n8k16", "m16n8k16", "m16n8k32"].map(|shape| (shape, ["s8", "u8"]));
    let nibbles = ["m8n8k32", "m16n8k32", "m16n8k64"].map(|shape| (shape, ["s4", "u4"]));
    for (shape, types) in bytes.into_iter().chain(nibbles) {
        for (a, b) in types.into_iter().flat_map(|a| types.map(|b| (a, b))) {
            for sat in ["", ".satfinite"] {
                let name = format!("mma.sync.aligned.{shape}.row.col{sat}.s32.{a}.{b}.s32");
                forms.push(form(name, shape, ["s32", a, b, "s32"], 1, 40));
            }
        }
    }
    for shape in ["m8n8k128", "m16n8k128", "m16n8k256"] {
        for op in ["xor", "and"] {
            let name = format!("mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{op}.popc");
            forms.push(form(name, shape, ["s32", "b1", "b1", "s32"], 1, 40));
        }
    }
}

/// Adds the sparse forms. `types` are those of D, A, B and C, and `selectors` is the number of valid selectors.
fn sparse_forms(forms: &mut Vec<Form>) {
    let mut one = |shape: &str, sat: &str, [d, a, b, c]: [&str; 4], selectors: u32| {
        for selector in 0..selectors {
            for variant in ["sp", "sp::ordered_metadata"] {
                let name =
                    format!("mma.{variant}.sync.aligned.{shape}.row.col{sat}.{d}.{a}.{b}.{c}");
                let mut form =
                    form(name, shape, [d, a, b, c], 1, if variant == "sp" { 65 } else { 13 });
                form.fragments[0].registers /= 2;
                form.selector = Some(selector);
                forms.push(form);
            }
        }
    };
    for (shape, selectors) in [("m16n8k16", 4), ("m16n8k32", 2)] {
        one(shape, "", ["f16"; 4], selectors);
        one(shape, "", ["f32", "f16", "f16", "f32"], selectors);
        one(shape, "", ["f32", "bf16", "bf16", "f32"], selectors);
    }
    for (shape, selectors) in [("m16n8k8", 4), ("m16n8k16", 2)] {
        one(shape, "", ["f32", "tf32", "tf32", "f32"], selectors);
    }
    for (a, b) in [("e4m3", "e4m3"), ("e4m3", "e5m2"), ("e5m2", "e4m3"), ("e5m2", "e5m2")] {
        one("m16n8k64", "", ["f32", a, b, "f32"], 1);
    }
    let bytes = [("m16n8k32", 2), ("m16n8k64", 1)].map(|shape| (shape, ["s8", "u8"]));
    let nibbles = [("m16n8k64", 2), ("m16n8k128", 1)].map(|shape| (shape, ["s4", "u4"]));
    for ((shape, selectors), types) in bytes.into_iter().chain(nibbles) {
        for (a, b) in types.into_iter().flat_map(|a| types.map(|b| (a, b))) {
            for sat in ["", ".satfinite"] {
                one(shape, sat, ["s32", a, b, "s32"], selectors);
            }
        }
    }
}

pub(super) const LAYOUTS: [(&str, &str); 4] =
    [("row", "row"), ("row", "col"), ("col", "row"), ("col", "col")];

pub(super) const WMMA_SHAPES: [&str; 3] = ["m16n16k16", "m8n32k16", "m32n8k16"];

fn wmma(forms: &mut Vec<Form>) {
    let mut one = |name: String, shape: &str, types: [&str; 4]| {
        let mut form = form(name, shape, types, 1, 40);
        if types[1] == "f16" {
            form.fragments[0].registers = 8;
            form.fragments[1].registers = 8;
        }
        forms.push(form);
    };
    for (al, bl) in LAYOUTS {
        let sync = format!("wmma.mma.sync.aligned.{al}.{bl}");
        for shape in WMMA_SHAPES {
            for (d, c) in ["f16", "f32"].into_iter().flat_map(|d| ["f16", "f32"].map(|c| (d, c))) {
                one(format!("{sync}.{shape}.{d}.{c}"), shape, [d, "f16", "f16", c]);
            }
            let name = format!("{sync}.{shape}.f32.bf16.bf16.f32");
            one(name, shape, ["f32", "bf16", "bf16", "f32"]);
            for a in ["s8", "u8"] {
                for sat in ["", ".satfinite"] {
                    let name = format!("{sync}.{shape}.s32.{a}.{a}.s32{sat}");
                    one(name, shape, ["s32", a, a, "s32"]);
                }
            }
        }
        let name = format!("{sync}.m16n16k8.f32.tf32.tf32.f32");
        one(name, "m16n16k8", ["f32", "tf32", "tf32", "f32"]);
        for round in ["", ".rn", ".rz", ".rm", ".rp"] {
            one(format!("{sync}.m8n8k4{round}.f64.f64.f64.f64"), "m8n8k4", ["f64"; 4]);
        }
    }
    for a in ["s4", "u4"] {
        for sat in ["", ".satfinite"] {
            let name = format!("wmma.mma.sync.aligned.row.col.m8n8k32.s32.{a}.{a}.s32{sat}");
            one(name, "m8n8k32", ["s32", a, a, "s32"]);
        }
    }
    for op in ["xor", "and"] {
        let name = format!("wmma.mma.{op}.popc.sync.aligned.row.col.m8n8k128.s32.b1.b1.s32");
        one(name, "m8n8k128", ["s32", "b1", "b1", "s32"]);
    }
}

/// Returns a register list, as in `{r0, r1}`.
pub(super) fn list(name: &str, count: usize) -> String {
    let registers: Vec<String> = (0..count).map(|i| format!("{name}{i}")).collect();
    format!("{{{}}}", registers.join(", "))
}

/// Returns a kernel that loads the fragments, executes the instruction and stores the result.
fn ptx(form: &Form) -> String {
    let wide = form.fragments[3].elem == F64;
    let (ty, width) = if wide { ("b64", 8) } else { ("b32", 4) };
    let mut body =
        format!("mad.lo.u32 u, blk, {}, lane; mul.wide.u32 x, u, {width};\n", REGISTERS * 32);
    for (operand, f) in ["a", "b", "c"].into_iter().zip(&form.fragments) {
        body += &format!("add.u64 y, {operand}, x;\n");
        for i in 0..f.registers {
            body += &format!("ld.global.{ty} {operand}r{i}, [y+{}];\n", i * 32 * width);
        }
    }
    let [a, b, c, d] =
        [0, 1, 2, 3].map(|i| list(["ar", "br", "cr", "dr"][i], form.fragments[i].registers));
    match form.selector {
        Some(selector) => {
            body += &format!("ld.global.b32 e, [y+{}];\n", (REGISTERS - 1) * 32 * width);
            body += &format!("{} {d}, {a}, {b}, {c}, e, {selector};\n", form.name);
        }
        None => body += &format!("{} {d}, {a}, {b}, {c};\n", form.name),
    }
    let results = form.fragments[3].registers;
    body += &format!(
        "mad.lo.u32 u, blk, {}, lane; mul.wide.u32 x, u, {width}; add.u64 o, o, x;\n",
        results * 32
    );
    for i in 0..results {
        body += &format!("st.global.{ty} [o+{}], dr{i};\n", i * 32 * width);
    }
    kernel(&format!(".reg .b32 e; .reg .{ty} ar<8>, br<8>, cr<8>, dr<8>;"), &body)
}

pub(super) fn cases() -> Vec<Case> {
    let mut forms = Vec::new();
    mma_floats(&mut forms);
    mma_others(&mut forms);
    wmma(&mut forms);
    sparse_forms(&mut forms);
    // Caches inputs, because they are large and many forms share them.
    let mut known = HashMap::new();
    let mut input = |elem: Elem, role: u8, tiles: usize, pairs: &'static [u64]| {
        let make = || match pairs {
            [] => Rc::new(fragments(elem, role, tiles)),
            pairs => Rc::new(with_metadata(elem, role, tiles, pairs)),
        };
        known.entry((elem, role, tiles, pairs)).or_insert_with(make).clone()
    };
    let case = |form: &Form| {
        let pairs: &[u64] = match (form.selector, form.fragments[0].elem) {
            (None, _) => &[],
            // One of two positions, encoded as two each.
            (_, TF32) => &[0x4, 0xE],
            _ => &[0x4, 0x8, 0xC, 0x9, 0xD, 0xE],
        };
        let inputs = [0u8, 1, 2].map(|role| {
            let pairs = if role == 2 { pairs } else { &[] };
            input(form.fragments[usize::from(role)].elem, role, form.tiles, pairs)
        });
        let d = form.fragments[3];
        let width = if d.elem == F64 { 8 } else { 4 };
        let (blocks, out) = (form.tiles as u32, form.tiles * d.registers * 32 * width);
        let name = match form.selector {
            Some(selector) => format!("{} of {selector}", form.name),
            None => form.name.clone(),
        };
        Case::new(name, ptx(form), inputs, blocks, out)
    };
    forms.iter().map(case).collect()
}
