//! Tests hand-written and future PTX, and the errors of invalid texts.
// Helper functions of tests may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use cuda_ptx::{
    Body, Error, ErrorKind, InitValue, LabelId, Module, Operand, Space, Special, SpecialName,
    Symbol, parse, signatures,
};

fn with_header(text: &str) -> String {
    format!(".version 9.1\n.target sm_90a, debug\n.address_size 64\n{text}")
}

fn module(text: &str) -> Module {
    parse(&with_header(text)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the text of a kernel with these statements and a few registers.
fn kernel(statements: &str) -> String {
    let registers = ".reg .b32 %r<10>; .reg .b64 %rd<10>; .reg .f32 %f<300>; .reg .pred %p<3>;";
    format!(".entry k(.param .u64 a, .param .u32 b) {{ {registers}\n{statements}\n}}")
}

fn body(statements: &str) -> Body {
    module(&kernel(statements)).functions.remove(0).body.unwrap()
}

fn refused(text: &str) -> Error {
    parse(&with_header(text)).expect_err(text)
}

fn message(text: &str) -> String {
    refused(text).to_string()
}

#[test]
fn preamble() {
    let module = module("");
    assert_eq!((module.version, module.address_size), ((9, 1), 64));
    assert_eq!(module.target, ["sm_90a", "debug"]);
    assert_eq!(module.architecture(), Some(90));
    let parse_error = |text: &str| parse(text).unwrap_err().to_string();
    let start = "PTX line 1, column 1: expected `.version` at the start of a PTX text, found";
    assert_eq!(parse_error(""), format!("{start} the end of the text"));
    assert_eq!(parse_error("int main() {}"), format!("{start} `int`"));
    let bad = ".version 9.1 .target sm_80 .address_size 16";
    assert_eq!(parse_error(bad), "PTX line 1, column 42: expected 32 or 64, found `16`");
}

#[test]
fn each_function_has_its_own_registers_of_module_scope() {
    let declared = ".reg .b32 a, %r<9>; .reg .v2 .b64 %q;";
    let module = module(&format!(
        "{declared} .func f() {{ add.u32 %r3, a, a; {{ .reg .b64 a; add.u64 a, a, %q.y; }} }}
        .func g() {{ ret; }} .func h(.param .b32 b) {{ add.u32 a, %r8, a; }}"
    ));
    let registers = |i: usize| {
        let body = module.functions[i].body.as_ref().unwrap();
        let name = |own: &cuda_ptx::Register| format!("{} {}", own.name, own.ty);
        body.registers.iter().map(name).collect::<Vec<_>>()
    };
    assert_eq!(registers(0), ["%r3 b32", "a b32", "a b64", "%q.x b64", "%q.y b64"]);
    assert_eq!(registers(1), [""; 0]);
    assert_eq!(registers(2), ["a b32", "%r8 b32"]);
    for text in [".reg .b64 a;", ".reg .b64 %r8;", ".reg .b64 %r<3>;", ".func f(.reg .b32 a) { }"] {
        let error = refused(&format!("{declared}\n{text}"));
        assert_eq!((error.kind, error.line), (ErrorKind::Duplicate { first_line: 4 }, 5), "{text}");
    }
}

#[test]
fn vector_register_declares_one_register_per_element() {
    let vectors = ".reg .v4 .f32 %v, %w<2>; .reg .v2 .u64 %q;";
    let body = body(&format!(
        "{vectors} mov.v4.f32 %w1, %v; add.f32 %f1, %v.g, %w1.w; mov.u64 %q.y, %q.x;"
    ));
    let operands = |i: usize| &body.instructions[i].operands;
    let names = |operand: &Operand| match operand {
        Operand::Reg(id) => body.registers[id.0 as usize].name.clone(),
        Operand::Vector(parts) => format!("{}", parts.len()),
        other => format!("{other:?}"),
    };
    let all = (0..3).flat_map(operands).map(names).collect::<Vec<_>>();
    assert_eq!(all, ["4", "4", "%f1", "%v.y", "%w1.w", "%q.y", "%q.x"]);
    let Operand::Vector(parts) = &operands(0)[1] else { panic!("{:?}", operands(0)) };
    assert_eq!(parts[1], operands(1)[1]);
    for bad in [
        "mov.f32 %f1, %q.z;",
        "mov.f32 %f1, %v.h0;",
        "mov.v2.u64 %q, {%q, %q};",
        "mov.f32 %f1, %v.;",
    ] {
        let text = kernel(&format!("{vectors} {bad}"));
        assert!(matches!(refused(&text).kind, ErrorKind::Expected(_)), "{bad}: {}", message(&text));
    }
    refused(&kernel(".reg .v8 .f32 %v;"));
    refused(&kernel(".reg .v4 .f32 %v; .reg .f32 %v;"));
}

#[test]
fn branch_target_lists_are_parsed() {
    let body = body(
        "brx.idx %r1, $Table; $A: add.u32 %r1, %r1, 1; $B: ret;
         $Table: .branchtargets $B, $A, $B;",
    );
    assert_eq!(body.instructions[0].operands[1], Operand::Targets(0));
    assert_eq!(body.target_lists[0].labels, [LabelId(1), LabelId(0), LabelId(1)]);
    assert_eq!(body.labels[1].target, 2);
}

/// Names in sections are separate from the names of the code.
#[test]
fn sections_declare_nothing() {
    let body = body(
        "$A: ret; .section .debug { $A: .b8 1 { $Other: .branchtargets $A; } $More: .b8 2 }
         $B: brx.idx %r1, $Table; $Table: .branchtargets $B, $A;",
    );
    assert_eq!(body.instructions[1].operands[1], Operand::Targets(0));
    assert_eq!(body.target_lists[0].labels, [LabelId(1), LabelId(0)]);
    assert_eq!(body.labels.len(), 2);
}

#[test]
fn indirect_calls_name_targets_or_prototype() {
    let text = ".func (.param .b32 r) f(.param .b32 x); .func g(.reg .b32 x) { ret; }
        .entry k() { .reg .b64 %rd1; .param .b32 r, x;
        Fs: .calltargets f;
        Ps: .callprototype (.param .b32 _) _ (.param .b32 _, .reg .b32 _) .noreturn;
        mov.u64 %rd1, f; call (r), %rd1, (x), Fs; call (r), %rd1, (x, 4), Ps; call g, (7); call.uni h_; }";
    let text = text.replace("call.uni h_;", "call.uni g, (-1);");
    let module = module(&text);
    let body = module.entry("k").unwrap().body.as_ref().unwrap();
    assert_eq!(body.target_lists[0].functions, [0]);
    assert_eq!(body.instructions[1].operands[3], Operand::Targets(0));
    assert_eq!(body.instructions[2].operands[3], Operand::Prototype(0));
    let list = Operand::List(vec![Operand::Int(u64::MAX)]);
    assert_eq!(body.instructions[4].operands[1], list);
    let g = module.function("g").unwrap().body.as_ref().unwrap();
    assert_eq!(g.registers[0].name, "x");
}

#[test]
fn operands_of_every_kind() {
    let body = body(
        ".shared .b32 s[4];
         ld.shared.u32 %r1, [s+4]; ld.shared.u32 %r1, [16]; ld.param.u64 %rd1, [a];
         mov.u64 %rd1, s+8; mov.u32 %r1, %ctaid.z; mov.v4.u32 {%r1, _, %r2, %r3}, %tid;
         setp.eq.and.f32 %p1|_, %f1, -1.5, !%p2; mov.f32 %f1, 0f7F800000;
         add.u32 %r1, %r2, (1 << 4) - 1; bar.sync 0; mov.b64 %rd1, 0xFFFFFFFFFFFFFFFFU;",
    );
    let operand = |instruction: usize, at: usize| &body.instructions[instruction].operands[at];
    let symbol = Symbol::Body(0);
    let address = |base, offset| Operand::Address(cuda_ptx::Address { base, offset });
    assert_eq!(operand(0, 1), &address(cuda_ptx::AddressBase::Symbol(symbol), 4));
    assert_eq!(operand(1, 1), &address(cuda_ptx::AddressBase::Absolute, 16));
    assert_eq!(operand(2, 1), &address(cuda_ptx::AddressBase::Symbol(Symbol::Param(0)), 0));
    assert_eq!(operand(3, 1), &Operand::Symbol(symbol, 8));
    assert_eq!(operand(4, 1), &Operand::Special(Special::Element(SpecialName::Ctaid, 2)));
    assert!(matches!(operand(5, 0), Operand::Vector(list) if list[1] == Operand::Discard));
    assert_eq!(operand(5, 1), &Operand::Special(Special::Named(SpecialName::Tid)));
    assert!(matches!(operand(6, 0), Operand::Pair(_, second) if **second == Operand::Discard));
    assert_eq!(operand(6, 2), &Operand::F64((-1.5_f64).to_bits()));
    assert!(matches!(operand(6, 3), Operand::NotReg(_)));
    assert_eq!(operand(7, 1), &Operand::F32(f32::INFINITY.to_bits()));
    assert_eq!(operand(8, 2), &Operand::Int(15));
    assert_eq!(operand(9, 0), &Operand::Int(0));
    assert_eq!(operand(10, 1), &Operand::Int(u64::MAX));
}

/// The value of `s[1]` is an address, that of `[s]` is in memory.
#[test]
fn elements_are_values_of_moves_and_memory_operands_are_not() {
    let body = body(".shared .b32 s[4]; mov.u32 %r1, s[1]; mov.u32 %r1, [s];");
    let operands: Vec<_> = body.instructions.iter().map(|own| &own.operands[1]).collect();
    assert_eq!(*operands[0], Operand::Symbol(Symbol::Body(0), 4));
    assert!(matches!(operands[1], Operand::Address(_)));
}

#[test]
fn instructions_of_newer_architectures() {
    let accumulators: Vec<String> = (0..128).map(|i| format!("%f{i}")).collect();
    let statements = format!(
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16 {{{}}}, %rd1, %rd2, %p1, 1, -1, 0, 1;
         tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;
         tex.2d.v4.f32.f32 {{%f1, %f2, %f3, %f4}}, [%rd1, {{%f5, %f6}}];
         cp.async.bulk.tensor.1d.global.shared::cta.tile.bulk_group [%rd1, {{%r1}}], [%r2];
         multimem.ld_reduce.acquire.gpu.global.add.v2.f32 {{%f1, %f2}}, [%rd1];
         mov.u64 %rd1, %current_graph_exec; setmaxnreg.inc.sync.aligned.u32 40;",
        accumulators.join(", ")
    );
    let body = body(&statements);
    assert!(matches!(&body.instructions[0].operands[0], Operand::Vector(v) if v.len() == 128));
    assert!(matches!(&body.instructions[2].operands[1], Operand::List(parts) if parts.len() == 2));
    assert_eq!(body.instructions[1].name().to_string(), "tcgen05.mma.cta_group::1.kind::f16");
}

#[test]
fn variables_of_every_kind() {
    let module = module(
        ".visible .global .align 8 .b8 a[2][3] = {{1, 2}, {4, 5, 6}};
         .global .v4 .f32 v = {1.0, 0f40000000, 3, -1};
         .global .u16 open[] = {1, 0xFFFF, -2};
         .global .attribute(.managed) .s32 m = (3 + 4) * 2;
         .weak .const .u64 p[3] = {a, generic(a)+4, f};
         .extern .shared .align 16 .b8 dyn[]; .common .global .b32 x, y[4];
         .global .align 1 .b8 packed[10] = {7, 0xFF(a), 0xFF00(a), 0xFF0000(a), 0xFF000000(a),
            0xFF00000000(a), 0xFF0000000000(a), 0xFF000000000000(a), 0xFF00000000000000(a), 9};
         .extern .global .u32 late; .global .u32 late = 5;
         .visible .func f() { ret; }",
    );
    let variable = |name: &str| module.variable(name).unwrap().clone();
    let bytes = |name: &str| match variable(name).init.as_slice() {
        [cuda_ptx::Init { at: 0, value: InitValue::Bytes(bytes) }] => bytes.clone(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(bytes("a"), [1, 2, 0, 4, 5, 6]);
    let floats = [1.0_f32, 2.0, 3.0, -1.0].map(f32::to_le_bytes).concat();
    assert_eq!((bytes("v"), variable("v").align, variable("v").size), (floats, 16, Some(16)));
    assert_eq!((bytes("open"), variable("open").size), (vec![1, 0, 255, 255, 254, 255], Some(6)));
    assert_eq!(bytes("m"), [14, 0, 0, 0]);
    assert_eq!(variable("p").init[2].at, 16);
    let InitValue::Address { addend, generic, size, .. } = variable("p").init[1].value else {
        panic!()
    };
    assert_eq!((addend, generic, size), (4, true, 8));
    assert_eq!((variable("dyn").size, variable("dyn").space), (None, Space::Shared));
    assert_eq!(variable("y").size, Some(16));
    let packed: Vec<u64> = variable("packed").init.iter().map(|init| init.at).collect();
    assert_eq!(packed, [0, 1, 9]);
    assert_eq!((variable("late").external, bytes("late")), (false, vec![5, 0, 0, 0]));
}

/// The initializer of an `.extern` variable would replace the bytes of the definition.
#[test]
fn extern_variable_with_initializer_is_refused() {
    let text = ".global .b8 a[1] = {7}; .extern .global .b8 a[4] = {1, 2, 3, 4};";
    assert!(message(text).contains("cannot have an initializer"), "{}", message(text));
}

#[test]
fn attribute_without_a_list_is_refused() {
    for text in [
        ".global .attribute .managed .u32 x;",
        ".global .attribute { .u32 x;",
        ".global .u32 .attribute x;",
        ".entry k() .attribute { { ret; }",
    ] {
        let message = message(text);
        assert!(message.contains("expected an opening bracket"), "{text}: {message}");
    }
}

#[test]
fn warp_sz_is_not_a_label() {
    let twice = "mov.u32 %r1, 1 ? WARP_SZ : 2; mov.u32 %r2, 0 ? WARP_SZ : 2;";
    assert_eq!(body(twice).instructions.len(), 2);
}

#[test]
fn alias_resolves_to_its_target() {
    let module = module(
        ".func f() { ret; } .func g(); .entry k() { call g; } .alias g, f; .global .u64 p = g;",
    );
    let body = module.entry("k").unwrap().body.as_ref().unwrap();
    assert_eq!(body.instructions[0].operands[0], Operand::Symbol(Symbol::Function(0), 0));
    let InitValue::Address { symbol, .. } = module.variables[0].init[0].value else { panic!() };
    assert_eq!(symbol, Symbol::Function(0));
}

#[test]
fn errors_name_the_unresolved_token() {
    let of = |statements: &str| message(&kernel(statements));
    let unknown = "is neither a declared register nor a special register";
    assert_eq!(of("add.u32 %r1, %r10, 1;"), format!("PTX line 5, column 14: `%r10` {unknown}"));
    assert_eq!(of("mov.u32 %r1, %tdi.x;"), format!("PTX line 5, column 14: `%tdi` {unknown}"));
    let undefined = "undefined label, variable or function";
    assert_eq!(of("bra $L1;"), format!("PTX line 5, column 5: {undefined} `$L1`"));
    assert_eq!(of("bra X; { X: ret; }"), format!("PTX line 5, column 5: {undefined} `X`"));
    assert_eq!(of("ret"), "PTX line 6, column 1: expected an operand or `;`, found `}`");
    assert_eq!(of("add.u32 %r1, ;"), "PTX line 5, column 14: expected an operand, found `;`");
    assert_eq!(
        of("mov.u32 %r1, %tid.q;"),
        "PTX line 5, column 18: expected `,` or `;`, found `.q`"
    );
    assert_eq!(
        message(".global .u64 x = nowhere;"),
        "PTX line 4, column 18: undefined variable or function `nowhere`"
    );
    assert_eq!(
        message(".glbal .u32 x;"),
        "PTX line 4, column 1: unknown or misplaced directive `.glbal`"
    );
}

#[test]
fn duplicate_declarations_are_refused() {
    for text in [
        ".global .u32 x; .global .u32 x;",
        ".func f() { ret; } .func f() { ret; }",
        ".global .u32 f; .func f();",
        ".func f(.param .u32 a); .func f(.param .u64 a) { ret; }",
        ".entry k(.param .u32 a, .param .u32 a) { ret; }",
        ".entry k() { .reg .b32 %r<3>; .reg .b32 %r1; }",
        ".entry k() { L: ret; L: ret; }",
        ".entry k() { .local .b32 L; L: ret; }",
    ] {
        let kind = refused(text).kind;
        assert!(matches!(kind, ErrorKind::Duplicate { .. } | ErrorKind::Mismatch(_)), "{kind:?}");
    }
}

#[test]
fn errors_name_the_exceeded_limit() {
    let nested = format!(".entry k() {{ {} }}", "{".repeat(100_000));
    let vectors = kernel(&format!("mov {};", "{".repeat(100_000)));
    let dims = format!(".global .b8 x{};", "[1]".repeat(100));
    for (text, limit) in [
        (".entry k() { .reg .b32 %r<4000000000>; }", "MAX_REGISTER_RANGE"),
        (".global .b8 x[1<<60];", "MAX_VARIABLE_BYTES"),
        (".global .b64 x[0xFFFFFFFFFFFFFFFF][0xFFFFFFFFFFFFFFFF];", "MAX_VARIABLE_BYTES"),
        (".entry k(.param .b8 x[1<<30]);", "MAX_PARAMETER_BYTES"),
        (".global .align 0x100000000 .b8 x;", "MAX_ALIGNMENT"),
        (&*nested, "MAX_NESTING"),
        (&*vectors, "MAX_NESTING"),
        (&*dims, "MAX_DIMENSIONS"),
    ] {
        let message = message(text);
        assert!(message.contains(limit), "{message}");
    }
}

#[test]
fn unsupported_constructs_are_refused() {
    let message = message(".global .b8 x; .global .b8 y[2] = {0xFF00(x), 1};");
    assert!(message.contains("masks") && message.contains("not supported"), "{message}");
}

#[test]
fn parts_of_registers() {
    let body = body(
        "vadd2.u32.u32.u32 %r1.h1, %r2.h30, %r3, %r4; vmad.s32.s32.s32 %r1, -%r2.b3, %r3, -%r4;",
    );
    let part = |at: usize, operand: usize| match &body.instructions[at].operands[operand] {
        Operand::Part(p) => (p.part.as_str(), p.negated),
        other => panic!("{other:?}"),
    };
    assert_eq!((part(0, 0), part(0, 1)), (("h1", false), ("h30", false)));
    assert_eq!((part(1, 1), part(1, 3)), (("b3", true), ("", true)));
    for (wrong, what) in [
        ("vadd.u32.u32.u32 %r1, %r2.b8, %r3;", "a part of a register"),
        ("vadd.u32.u32.u32 %r1, %r2.h012, %r3;", "a part of a register"),
        ("vadd.u32.u32.u32 %r1, %r2.x, %r3;", "a part of a register"),
        ("vadd.u32.u32.u32 %r1, -a, %r3;", "a register"),
    ] {
        let message = message(&kernel(wrong));
        assert!(message.contains(what), "{message}");
    }
}

#[test]
fn signatures_accept_future_syntax() {
    let text = with_header(
        ".novelty 3 { .entry no() } ;\n.func .quantum f(.param .b512 x) { ? # }
         .visible .newlinkage .entry k(.param .align 4 .b8 s[12], .param .u64 p) .novel 1, 2 .maxntid 64
         { add.b512 ~~ <{ 'x ; /* } */ \"}\" § }; .b512 y[2] = { {1}, {2} }; }
         .global .fp4 z = {1}; .entry declared(); .weak .entry last() { ret; }",
    );
    assert!(parse(&text).is_err());
    let list = signatures(&text).unwrap();
    let names: Vec<_> = list.iter().map(|signature| signature.name.as_str()).collect();
    assert_eq!(names, ["k", "last"]);
    assert_eq!((list[0].params[1].offset, list[0].max_threads), (16, Some([64, 1, 1])));
}

#[test]
fn trailing_nul_bytes_are_ignored() {
    assert!(parse(&(with_header(&kernel("ret;")) + "\0\0")).is_ok());
}

#[test]
fn used_bytes_pragmas_are_parsed() {
    let module = parse(
        r#".version 8.0 .target sm_80 .address_size 64 .visible .entry k() {
        .pragma "nounroll";
        .reg .b32 %r; .reg .b64 %d;
        .pragma "used_bytes_mask 3";
        ld.u32 %r, [%d];
        .pragma "used_bytes_mask 0xf0F", "nounroll";
        .pragma "used_bytes_mask 0xf0F";
        ld.u32 %r, [%d];
        .pragma "used_bytes_mask none";
        ret; }"#,
    )
    .unwrap();
    let body = module.functions[0].body.as_ref().unwrap();
    assert_eq!(body.used_bytes, [(0, 3), (1, 0xf0f)]);
}
