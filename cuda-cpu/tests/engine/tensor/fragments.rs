//! Loads and stores of fragments: `wmma.load`, `wmma.store`, `ldmatrix`, `stmatrix` and `movmatrix`.

use std::rc::Rc;

use super::inputs::random;
use super::mma::{WMMA_SHAPES, list};
use super::{Case, kernel};

/// Size of shared memory, and of the input, in bytes.
pub(super) const ROOM: usize = 4096;

pub(super) fn bytes(seed: u64, count: usize) -> Rc<Vec<u8>> {
    Rc::new((0..count).map(|i| random(seed << 20 | i as u64) as u8).collect())
}

/// Declarations of the shared array and of registers. [`fill_shared`] sets `x` and `y` to the array's shared and
/// generic address.
pub(super) const SHARED: &str =
    ".shared .align 32 .b8 room[4096]; .reg .b32 w<4>, r<32>; .reg .b64 d<32>;";

pub(super) fn fill_shared() -> String {
    let copy = |i: usize| {
        format!(
            "ld.global.v4.b32 {{w0, w1, w2, w3}}, [a+{0}]; st.shared.v4.b32 [x+{0}], {{w0, w1, w2, w3}};\n",
            i * 512
        )
    };
    format!(
        "mov.u64 x, room; mul.wide.u32 y, lane, 16; add.u64 a, a, y; add.u64 x, x, y;\n{}
sub.u64 a, a, y; mov.u64 x, room; cvta.shared.u64 y, x; bar.sync 0;\n",
        (0..ROOM / 512).map(copy).collect::<String>()
    )
}

/// Copies the shared array to `o`.
pub(super) fn drain_shared() -> String {
    let copy = |i: usize| {
        format!(
            "ld.shared.v4.b32 {{w0, w1, w2, w3}}, [x+{0}]; st.global.v4.b32 [o+{0}], {{w0, w1, w2, w3}};\n",
            i * 512
        )
    };
    format!(
        "bar.sync 0; mul.wide.u32 y, lane, 16; add.u64 o, o, y; add.u64 x, x, y;\n{}",
        (0..ROOM / 512).map(copy).collect::<String>()
    )
}

/// A fragment of `wmma`.
struct Matrix {
    which: &'static str,
    layout: &'static str,
    shape: &'static str,
    ty: &'static str,
    /// Length of its rows or columns in memory, in elements.
    length: usize,
    bits: usize,
    registers: usize,
}

impl Matrix {
    fn new(
        which: &'static str,
        layout: &'static str,
        shape: &'static str,
        ty: &'static str,
    ) -> Self {
        let numbers = shape.split(['m', 'n', 'k']).skip(1).map(|n| n.parse().unwrap());
        let [m, n, k]: [usize; 3] = numbers.collect::<Vec<_>>().try_into().unwrap();
        let (rows, columns) = match which {
            "a" => (m, k),
            "b" => (k, n),
            _ => (m, n),
        };
        let bits = match ty {
            "f64" => 64,
            "f16" | "bf16" => 16,
            "s8" | "u8" => 8,
            "s4" | "u4" => 4,
            "b1" => 1,
            _ => 32,
        };
        let lane = if bits == 64 { 64 } else { 32 };
        let registers = match (which, ty) {
            ("a" | "b", "f16") => 8,
            _ => (rows * columns * bits / 32).div_ceil(lane),
        };
        let length = if layout == "row" { columns } else { rows };
        Self { which, layout, shape, ty, length, bits, registers }
    }

    /// Returns a stride above the default one.
    fn stride(&self) -> usize {
        self.length + 128 / self.bits.min(4).max(self.bits.min(32))
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for layout in ["row", "col"] {
            for shape in WMMA_SHAPES {
                for ty in ["f16", "bf16", "s8", "u8"] {
                    all.extend(["a", "b"].map(|which| Self::new(which, layout, shape, ty)));
                }
                all.extend(["f16", "f32", "s32"].map(|ty| Self::new("c", layout, shape, ty)));
            }
            for (shape, ty, c) in [("m16n16k8", "tf32", "f32"), ("m8n8k4", "f64", "f64")] {
                all.extend(["a", "b"].map(|which| Self::new(which, layout, shape, ty)));
                all.push(Self::new("c", layout, shape, c));
            }
            all.extend(["m8n8k32", "m8n8k128"].map(|shape| Self::new("c", layout, shape, "s32")));
        }
        for (shape, ty) in [("m8n8k32", "s4"), ("m8n8k32", "u4"), ("m8n8k128", "b1")] {
            all.push(Self::new("a", "row", shape, ty));
            all.push(Self::new("b", "col", shape, ty));
        }
        all
    }

    fn register(&self) -> (&'static str, &'static str, usize) {
        if self.ty == "f64" { ("d", "b64", 8) } else { ("r", "b32", 4) }
    }

    /// Loads from global memory with a stride, from shared memory without, and from either with generic addresses.
    fn load(&self) -> Case {
        let Self { which, layout, shape, ty, .. } = self;
        let name = format!("wmma.load.{which}.sync.aligned.{layout}.{shape}.{ty}");
        let (register, width, size) = self.register();
        let into = list(register, self.registers);
        let (head, tail) = name.rsplit_once('.').unwrap();
        let stride = self.stride();
        let loads = [
            format!("{head}.global.{tail} {into}, [a+32], {stride};"),
            format!("{head}.shared.{tail} {into}, [x];"),
            format!("{head}.{tail} {into}, [y+32], {};", self.length),
            format!("{head}.{tail} {into}, [a], {};", stride + 128 / self.bits.min(32)),
        ];
        let mut body =
            format!("{}mul.wide.u32 d31, lane, {size}; add.u64 o, o, d31;\n", fill_shared());
        for (i, load) in loads.iter().enumerate() {
            body += load;
            for j in 0..self.registers {
                let at = (i * self.registers + j) * 32 * size;
                body += &format!("\nst.global.{width} [o+{at}], {register}{j};");
            }
            body += "\n";
        }
        let ptx = kernel(SHARED, &body);
        let inputs = [bytes(1, ROOM), bytes(2, 64), bytes(3, 64)];
        Case::new(name, ptx, inputs, 1, loads.len() * self.registers * 32 * size)
    }

    fn store(&self) -> Case {
        let Self { layout, shape, ty, .. } = self;
        let name = format!("wmma.store.d.sync.aligned.{layout}.{shape}.{ty}");
        let (register, width, size) = self.register();
        let from = list(register, self.registers);
        let (head, tail) = name.rsplit_once('.').unwrap();
        let mut body = fill_shared();
        body += &format!("mul.wide.u32 d31, lane, {size}; add.u64 a, a, d31;\n");
        for j in 0..self.registers {
            body += &format!("ld.global.{width} {register}{j}, [a+{}];\n", j * 32 * size);
        }
        let stride = self.stride();
        body += &format!("{head}.global.{tail} [o+{ROOM}], {from}, {stride};\n");
        body += &format!("{head}.{tail} [o+{}], {from}, {};\n", 2 * ROOM, self.length);
        body += &format!("{head}.shared.{tail} [x+32], {from}, {stride};\n");
        body += &drain_shared();
        let inputs = [bytes(4, ROOM), bytes(2, 64), bytes(3, 64)];
        Case::new(name, kernel(SHARED, &body), inputs, 1, 3 * ROOM)
    }
}

/// Returns addresses of rows: random ones, or non-overlapping ones.
fn rows(apart: bool) -> Rc<Vec<u8>> {
    let row = |lane: u64| match apart {
        true => ((lane * 13 + 5) % 32 * 48) as u32,
        false => (random(lane) % (ROOM as u64 / 16) * 16) as u32,
    };
    Rc::new((0..32).flat_map(|lane| row(lane).to_le_bytes()).collect())
}

fn matrices(opcode: &str, count: usize, trans: &str) -> Vec<Case> {
    let inputs = || [bytes(5, ROOM), rows(opcode == "stmatrix"), bytes(3, 64)];
    let address =
        "mul.wide.u32 d30, lane, 4; add.u64 b, b, d30; ld.global.u32 t, [b]; cvt.u64.u32 d31, t;
        add.u64 y, y, d31; cvt.u32.u64 u, x; add.u32 u, u, t;\n";
    let space = [(".shared", "u"), ("", "y")];
    let one = |(space, at): (&str, &str)| {
        let name = format!("{opcode}.sync.aligned.m8n8.x{count}{trans}{space}.b16");
        let registers = list("r", count);
        let mut body = fill_shared() + address;
        let out = if opcode == "ldmatrix" {
            body += &format!("{name} {registers}, [{at}]; add.u64 o, o, d30;\n");
            for j in 0..count {
                body += &format!("st.global.b32 [o+{}], r{j};\n", j * 128);
            }
            count * 128
        } else {
            body += "add.u64 a, a, d30;\n";
            for j in 0..count {
                body += &format!("ld.global.b32 r{j}, [a+{}];\n", j * 128);
            }
            body += &format!("{name} [{at}], {registers};\n{}", drain_shared());
            ROOM
        };
        Case::new(name, kernel(SHARED, &body), inputs(), 1, out)
    };
    space.map(one).into()
}

fn movmatrix() -> Case {
    let name = "movmatrix.sync.aligned.m8n8.trans.b16".to_owned();
    let body = format!(
        "mul.wide.u32 x, lane, 4; add.u64 a, a, x; add.u64 o, o, x;
        ld.global.b32 t, [a]; {name} u, t; st.global.b32 [o], u;"
    );
    let inputs = [bytes(6, 128), bytes(2, 64), bytes(3, 64)];
    Case::new(name, kernel("", &body), inputs, 1, 128)
}

pub(super) fn cases() -> Vec<Case> {
    let all = Matrix::all();
    let stored = all.iter().filter(|m| m.which == "c").map(Matrix::store);
    let mut cases: Vec<Case> = all.iter().map(Matrix::load).chain(stored).collect();
    for opcode in ["ldmatrix", "stmatrix"] {
        for count in [1, 2, 4] {
            cases.extend(
                ["", ".trans"].into_iter().flat_map(|trans| matrices(opcode, count, trans)),
            );
        }
    }
    cases.push(movmatrix());
    cases
}
