//! Parses the compiled `.cu` files in `corpus/` and checks the known properties of each.
// Helper functions of tests may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use cuda_ptx::{
    AddressBase, Body, Function, InitValue, Module, Operand, ScalarType, Space, Symbol, parse,
    signatures,
};

fn corpus() -> BTreeMap<String, String> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "ptx") {
            let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
            files.insert(name, std::fs::read_to_string(path).unwrap());
        }
    }
    files
}

fn module(name: &str) -> Module {
    parse(&corpus()[name]).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn body<'m>(module: &'m Module, name: &str) -> &'m Body {
    module.function(name).unwrap().body.as_ref().unwrap()
}

fn names(body: &Body) -> Vec<String> {
    body.instructions.iter().map(|instruction| instruction.name().to_string()).collect()
}

#[test]
fn corpus_files_parse_with_expected_counts() {
    // The numbers of entries, functions (with and without body), variables and instructions.
    let known = [
        ("asm_13_sm_90", 1, 1, 0, 43),
        ("clang_sm_80", 1, 3, 6, 169),
        ("control_12_sm_80", 4, 9, 3, 178),
        ("control_13_sm_120", 4, 9, 3, 216),
        ("cooperative_13_sm_80", 1, 1, 1186, 35),
        ("debug_12_sm_80", 1, 1, 0, 19),
        ("half_13_sm_120", 3, 3, 0, 221),
        ("memory_13_sm_90", 3, 3, 12, 180),
        ("params_12_sm_80", 5, 5, 0, 110),
        ("params_13_sm_120", 5, 5, 0, 104),
        ("print_12_sm_80", 2, 6, 6, 74),
        ("tensor_13_sm_90a", 2, 2, 0, 60),
        ("warp_12_sm_80", 3, 3, 0, 166),
        ("warp_13_sm_120", 3, 3, 0, 152),
    ];
    let files = corpus();
    assert_eq!(files.len(), known.len());
    for (name, entries, functions, variables, instructions) in known {
        let module = module(name);
        assert_eq!(module.address_size, 64, "{name}");
        assert_eq!(module.entries().count(), entries, "{name}");
        assert_eq!(files[name].matches(".entry").count(), entries, "{name}");
        assert_eq!(module.functions.len(), functions, "{name}");
        assert_eq!(module.variables.len(), variables, "{name}");
        let bodies = module.functions.iter().filter_map(|function| function.body.as_ref());
        let count: usize = bodies.map(|body| body.instructions.len()).sum();
        assert_eq!(count, instructions, "{name}");
    }
}

#[test]
fn signatures_agree_with_the_parsed_module() {
    for (name, text) in corpus() {
        let module = module(&name);
        let list = signatures(&text).unwrap();
        assert_eq!(list.len(), module.entries().count(), "{name}");
        for (signature, function) in list.iter().zip(module.entries()) {
            assert_eq!(signature.name, function.name);
            assert_eq!(signature.params, function.params);
            assert_eq!(signature.max_threads, function.max_threads);
            assert_eq!(signature.required_threads, function.required_threads);
            assert_eq!(signature.line, function.line);
        }
    }
}

/// Every instruction has its correct line and column, and every index is in range.
#[test]
fn positions_and_indices_are_valid() {
    for (name, text) in corpus() {
        let lines: Vec<&str> = text.lines().collect();
        let module = module(&name);
        for body in module.functions.iter().filter_map(|function| function.body.as_ref()) {
            for instruction in &body.instructions {
                let line = lines[instruction.line as usize - 1];
                let rest = &line[instruction.column as usize - 1..];
                assert!(rest.starts_with(&instruction.name().to_string()), "{name}: {line}");
                instruction.operands.iter().for_each(|operand| check(operand, body, &module));
                if let Some(guard) = instruction.guard {
                    assert_eq!(body.registers[guard.register.0 as usize].ty, ScalarType::Pred);
                }
            }
            for label in &body.labels {
                assert!(label.target as usize <= body.instructions.len());
            }
        }
    }
}

fn check(operand: &Operand, body: &Body, module: &Module) {
    match operand {
        Operand::Reg(register) | Operand::NotReg(register) => {
            assert!((register.0 as usize) < body.registers.len());
        }
        Operand::Label(label) => assert!((label.0 as usize) < body.labels.len()),
        Operand::Targets(index) => assert!((*index as usize) < body.target_lists.len()),
        Operand::Prototype(index) => assert!((*index as usize) < body.prototypes.len()),
        Operand::Symbol(Symbol::Body(index), _) => {
            assert!((*index as usize) < body.variables.len());
        }
        Operand::Symbol(Symbol::Function(index), _) => {
            assert!((*index as usize) < module.functions.len());
        }
        Operand::Vector(list) | Operand::List(list) => {
            list.iter().for_each(|inner| check(inner, body, module));
        }
        _ => {}
    }
}

fn offsets(function: &Function) -> Vec<(u32, u32)> {
    function.params.iter().map(|param| (param.offset, param.size)).collect()
}

#[test]
fn parameter_offsets_match_cuda() {
    for name in ["params_12_sm_80", "params_13_sm_120"] {
        let module = module(name);
        let mixed = module.entry("mixed").unwrap();
        let expected = [(0, 1), (8, 16), (24, 2), (32, 64), (96, 1), (104, 8)];
        assert_eq!(offsets(mixed), expected, "{name}");
        assert_eq!(mixed.parameter_bytes(), 112);
        assert_eq!(module.entry("vectors").unwrap().max_threads, Some([256, 1, 1]));
    }
    assert!(module("params_13_sm_120").entry("vecadd").unwrap().params[0].pointer);
    let clang = module("clang_sm_80");
    assert_eq!(offsets(clang.entry("mixed").unwrap()), [(0, 8), (8, 8), (16, 11), (32, 8)]);
}

#[test]
fn initializers_contain_numbers_and_addresses() {
    let module = module("memory_13_sm_90");
    let taps = module.variable("taps").unwrap();
    let floats = [0.1_f32, 0.2, 0.4, 0.2, 0.1].map(f32::to_le_bytes).concat();
    assert_eq!((taps.space, taps.size), (Space::Const, Some(20)));
    assert_eq!(taps.init[0].value, InitValue::Bytes(floats));
    let rows = module.variable("rows").unwrap();
    let bytes = vec![1, 2, 3, 0, 4, 0, 0, 0, 5, 6, 7, 8];
    assert_eq!(rows.init[0].value, InitValue::Bytes(bytes));
    assert_eq!(module.variable("big").unwrap().init, []);
    let dynamic = module.variable("dynamic").unwrap();
    assert_eq!((dynamic.size, dynamic.external, dynamic.space), (None, true, Space::Shared));
    let first = module.variable("first").unwrap();
    let targets: Vec<_> = first.init.iter().filter_map(|init| address(&module, init)).collect();
    assert_eq!(targets, [(8, "second".to_owned(), true)]);
}

/// The offset of an address, its symbol, and whether it is generic.
fn address(module: &Module, init: &cuda_ptx::Init) -> Option<(u64, String, bool)> {
    let InitValue::Address { symbol, generic, .. } = init.value else { return None };
    let name = match symbol {
        Symbol::Module(index) => &module.variables[index as usize].name,
        Symbol::Function(index) => &module.functions[index as usize].name,
        other => panic!("{other:?} in an initializer"),
    };
    Some((init.at, name.clone(), generic))
}

#[test]
fn functions_are_called_directly_and_through_pointers() {
    let module = module("control_12_sm_80");
    let steps = module.variable("steps").unwrap();
    let targets: Vec<_> = steps.init.iter().filter_map(|init| address(&module, init)).collect();
    let names: Vec<_> = targets.iter().map(|(at, name, _)| (*at, name.as_str())).collect();
    assert_eq!(names, [(0, "_Z5twicei"), (8, "_Z6squarei")]);

    let fib = body(&module, "_Z3fibi");
    let call = fib.instructions.iter().find(|i| i.opcode == Ok(cuda_ptx::Opcode::Call)).unwrap();
    let this = module.functions.iter().position(|f| f.name == "_Z3fibi").unwrap() as u32;
    assert_eq!(call.operands[1], Operand::Symbol(Symbol::Function(this), 0));
    assert!(matches!(&call.operands[0], Operand::List(list) if list.len() == 1));

    let indirect = body(&module, "indirect");
    let call =
        indirect.instructions.iter().find(|i| i.opcode == Ok(cuda_ptx::Opcode::Call)).unwrap();
    assert!(matches!(call.operands[1], Operand::Reg(_)));
    assert_eq!(call.operands[3], Operand::Prototype(0));
    let prototype = &indirect.prototypes[0];
    assert_eq!((prototype.returns.len(), prototype.params[0].size), (1, 4));
}

#[test]
fn inlined_assembly_has_its_own_scopes() {
    let module = module("asm_13_sm_90");
    let body = body(&module, "assembly");
    let labels: Vec<_> = body.labels.iter().map(|label| label.name.as_str()).collect();
    assert_eq!(labels, ["LOOP", "DONE", "LOOP", "DONE"]);
    let loops: Vec<_> =
        body.instructions.iter().filter(|i| i.name().to_string() == "bra").collect();
    assert_ne!(loops[0].operands, loops[1].operands);
    assert_eq!(body.registers.iter().filter(|register| register.name == "t0").count(), 2);
    let atom = body.instructions.iter().find(|i| i.opcode == Ok(cuda_ptx::Opcode::Atom)).unwrap();
    assert_eq!(atom.operands[2], Operand::Int(32));
    assert!(matches!(&atom.operands[1], Operand::Address(address) if address.offset == -8));
    let elect = body.instructions.iter().find(|i| i.opcode == Ok(cuda_ptx::Opcode::Elect)).unwrap();
    assert!(matches!(&elect.operands[0], Operand::Pair(first, _) if **first == Operand::Discard));
}

#[test]
fn printf_and_assert_are_functions_without_a_body() {
    let module = module("print_12_sm_80");
    for (name, params) in [("vprintf", 2), ("__assertfail", 5), ("malloc", 1), ("free", 1)] {
        let function = module.function(name).unwrap();
        assert_eq!((function.params.len(), function.body.is_none()), (params, true), "{name}");
    }
}

#[test]
fn tensor_operands_are_lists() {
    let module = module("tensor_13_sm_90a");
    let body = body(&module, "load");
    let name = "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes";
    let at = names(body).iter().position(|own| own == name).unwrap();
    let Operand::List(parts) = &body.instructions[at].operands[1] else { panic!() };
    assert!(matches!(&parts[0], Operand::Address(a) if matches!(a.base, AddressBase::Reg(_))));
    assert!(matches!(&parts[1], Operand::Vector(xy) if xy.len() == 2));
}

#[test]
fn source_lines_are_parsed() {
    let module = module("debug_12_sm_80");
    assert_eq!(module.files, [(1, "/debug.cu".to_owned())]);
    let body = body(&module, "lines");
    let first = body.locations[0];
    assert_eq!((first.instruction, first.file, first.line), (0, 1, 3));
    assert!(body.locations.is_sorted_by_key(|location| location.instruction));
}

#[test]
fn inlined_calls_are_parsed() {
    let module = module("control_13_sm_120");
    let body = body(&module, "shapes");
    let inlined = body.locations.iter().filter_map(|l| Some(((l.line, l.column), l.inlined_at?)));
    let inlined: Vec<_> = inlined.map(|(at, call)| (at, (call.line, call.column))).collect();
    assert_eq!(inlined[..3], [((10, 8), (20, 5)), ((9, 8), (10, 8)), ((10, 8), (20, 5))]);
    assert!(body.locations.iter().any(|l| l.inlined_at.is_none()));
}
