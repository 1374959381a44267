//! Results may overwrite the registers of factors, sums and addresses.

use super::fragments::{ROOM, SHARED, bytes, drain_shared, fill_shared};
use super::mma::list;
use super::{Case, kernel, run};

/// Returns the bytes of `count` registers named `into` after an instruction.
fn results(instruction: &str, registers: &str, into: &str, count: usize) -> Vec<u8> {
    let loads: String =
        (0..32).map(|i| format!("ld.global.b32 v{i}, [y+{}];\n", i * 128)).collect();
    let stores: String =
        (0..count).map(|i| format!("st.global.b32 [y+{}], {into}{i};\n", i * 128)).collect();
    let body = format!(
        "{} mul.wide.u32 d0, lane, 4; add.u64 y, a, d0; {loads} {registers} {instruction}
        add.u64 y, o, d0; {stores}",
        fill_shared()
    );
    let ptx = kernel(&format!("{SHARED} .reg .b32 v<32>;"), &body);
    let inputs = [bytes(21, ROOM), bytes(22, 64), bytes(23, 64)];
    run(&Case::new(String::new(), ptx, inputs, 1, count * 128))
}

#[test]
fn results_over_factors() {
    // Number of registers of A, B, C and D.
    for (name, [a, b, c, d]) in [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", [4, 2, 4, 4]),
        ("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16", [4, 2, 2, 2]),
        ("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", [4, 2, 4, 4]),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", [4, 2, 4, 4]),
        ("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", [4, 2, 4, 4]),
        ("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc", [4, 2, 4, 4]),
        ("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32", [2, 2, 8, 8]),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", [8, 8, 8, 8]),
        ("wmma.mma.sync.aligned.col.row.m16n16k16.f16.f16", [8, 8, 4, 4]),
        ("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", [4, 4, 8, 8]),
        ("wmma.mma.sync.aligned.row.col.m32n8k16.s32.s8.s8.s32", [4, 1, 8, 8]),
    ] {
        let part = |from: usize, count: usize| {
            let names: Vec<String> = (from..from + count).map(|i| format!("v{i}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let factors = format!("{}, {}, {}", part(0, a), part(a, b), part(a + b, c));
        let apart = results(&format!("{name} {}, {factors};", list("r", d)), "", "r", d);
        for over in 0..=(a + b + c - d) {
            let copy: String = (0..d).map(|i| format!("mov.b32 r{i}, v{};", over + i)).collect();
            let instruction = format!("{name} {}, {factors}; {copy}", part(over, d));
            assert_eq!(results(&instruction, "", "r", d), apart, "{name} over register {over}");
        }
    }
}

#[test]
fn results_over_addresses() {
    for (instruction, d) in [
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {r0, r1, r2, r3}, [ADDRESS];", 4),
        (
            "wmma.load.c.sync.aligned.row.m16n16k16.shared.f16 {r0, r1, r2, r3}, [ADDRESS], STRIDE;",
            4,
        ),
    ] {
        let apart = "cvt.u32.u64 t, x; mov.u32 u, 24;";
        let want =
            results(&instruction.replace("ADDRESS", "t").replace("STRIDE", "u"), apart, "r", d);
        for (address, stride) in [("r0", "r1"), ("r3", "r0")] {
            let set = format!("cvt.u32.u64 {address}, x; mov.u32 {stride}, 24;");
            let text = instruction.replace("ADDRESS", address).replace("STRIDE", stride);
            assert_eq!(results(&text, &set, "r", d), want, "{text}");
        }
    }
}

/// Matrices of bytes, 16 x 16 and 16 x 8: forms of sm_100 and later.
#[test]
fn matrices_of_bytes() {
    let input = bytes(21, ROOM);
    let at = "mul.wide.u32 d1, lane, 48; add.u64 x, x, d1;";
    let row = |line: usize| &input[48 * line..][..16];
    for count in [1, 2] {
        let name = format!("ldmatrix.sync.aligned.m16n16.x{count}.trans.shared.b8");
        let text = format!("{name} {}, [x];", list("r", 2 * count));
        let loaded = results(&text, at, "r", 2 * count);
        for (i, &byte) in loaded.iter().enumerate() {
            let (register, lane, part) = (i / 128, i / 4 % 32, i % 4);
            // Four rows for each lane of a group of four. The columns of the second register are 8 further.
            let line = register / 2 * 16 + lane % 4 * 4 + part;
            assert_eq!(byte, row(line)[lane / 4 + register % 2 * 8], "{name} {i}");
        }
    }
    for count in [1, 2, 4] {
        let name = format!("stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8");
        let body = format!(
            "{} mul.wide.u32 d0, lane, 4; add.u64 y, a, d0; {}
            mul.wide.u32 d1, lane, 48; add.u64 d1, x, d1; {name} [d1], {}; {}",
            fill_shared(),
            (0..count)
                .map(|i| format!("ld.global.b32 r{i}, [y+{}];\n", i * 128))
                .collect::<String>(),
            list("r", count),
            drain_shared()
        );
        let ptx = kernel(SHARED, &body);
        let stored = run(&Case::new(
            String::new(),
            ptx,
            [input.clone(), bytes(1, 64), bytes(2, 64)],
            1,
            ROOM,
        ));
        let mut want = input.to_vec();
        // In the register layout of a product's sums: rows 0 and 8 further, two columns each.
        for register in 0..count {
            for (lane, part) in (0..32).flat_map(|lane| (0..4).map(move |part| (lane, part))) {
                let (line, column) = (lane / 4 + part / 2 * 8, lane % 4 * 2 + part % 2);
                want[48 * (8 * register + column) + line] = input[register * 128 + lane * 4 + part];
            }
        }
        assert!(stored == want, "{name}");
    }
}
