//! Checks the memory that `module_signature` reports.
// Helper functions of tests may panic.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use cuda_ptx::{ModuleSignature, Space, Variable, module_signature, parse};

fn read(text: &str) -> ModuleSignature {
    let header = ".version 9.9\n.target sm_200\n.address_size 64\n";
    module_signature(&format!("{header}{text}")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Returns the static shared memory of the only kernel.
fn shared(text: &str) -> Option<u64> {
    read(text).entries[0].static_shared_bytes
}

fn ptx_files(folder: PathBuf, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            ptx_files(path, files);
        } else if path.extension().is_some_and(|extension| extension == "ptx") {
            files.push(path);
        }
    }
}

/// Returns the sum of sizes without padding.
fn sizes<'m>(variables: impl IntoIterator<Item = &'m Variable>, space: Space) -> u64 {
    let own = |v: &&Variable| v.space == space && !v.external;
    variables.into_iter().filter(own).filter_map(|v| v.size).sum()
}

/// Returns the maximum padding of the bound: less than the alignment of each variable.
fn slack<'m>(variables: impl IntoIterator<Item = &'m Variable>, space: Space) -> u64 {
    variables.into_iter().filter(|v| v.space == space).map(|v| u64::from(v.align) - 1).sum()
}

#[test]
fn sizes_agree_with_the_parsed_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    ptx_files(root.join("tests/corpus"), &mut files);
    ptx_files(root.join("../kernels"), &mut files);
    assert!(files.len() > 30, "{}", files.len());
    let mut with_shared = 0;
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let (module, signature) = (parse(&text).unwrap(), module_signature(&text).unwrap());
        let bodies = |entries: bool| {
            let functions = module.functions.iter().filter(move |f| f.is_entry == entries);
            functions.filter_map(|f| f.body.as_ref()).flat_map(|body| &body.variables)
        };
        let within = |bound: Option<u64>, variables: &[&Variable], space| {
            let (bound, least) = (bound.unwrap(), sizes(variables.iter().copied(), space));
            let most = least + slack(variables.iter().copied(), space);
            assert!((least..=most).contains(&bound), "{path:?}: {bound} of {least}..={most}");
        };
        let common: Vec<_> = module.variables.iter().chain(bodies(false)).collect();
        let all: Vec<_> = common.iter().copied().chain(bodies(true)).collect();
        within(signature.global_bytes, &all, Space::Global);
        within(signature.const_bytes, &all, Space::Const);
        for (entry, kernel) in module.entries().zip(&signature.entries) {
            let own = &entry.body.as_ref().unwrap().variables;
            let seen: Vec<_> = common.iter().copied().chain(own).collect();
            within(kernel.static_shared_bytes, &seen, Space::Shared);
            within(kernel.local_bytes, &seen, Space::Local);
            with_shared += u32::from(kernel.static_shared_bytes > Some(0));
        }
    }
    assert!(with_shared >= 5, "{with_shared}");
}

#[test]
fn known_kernels_declare_these_bytes() {
    let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels");
    for (file, kernel, shared) in [
        ("matmul.ptx", "matmul", 2048),
        ("histogram.ptx", "histogram", 1024),
        ("softmax.ptx", "softmax", 4096),
        ("warp_reduce.ptx", "warp_sum_f32", 128),
        // Dynamic shared memory is not counted.
        ("reduce.ptx", "block_sum", 0),
        ("saxpy.ptx", "saxpy", 0),
    ] {
        let text = std::fs::read_to_string(kernels.join(file)).unwrap();
        let module = module_signature(&text).unwrap();
        let found = module.entries.iter().find(|entry| entry.name.contains(kernel));
        let found = found.unwrap_or_else(|| panic!("{file}: {:?}", module.entries));
        assert_eq!(found.static_shared_bytes, Some(shared), "{file}");
    }
}

#[test]
fn one_tebibyte_of_shared_memory_is_reported() {
    let tebibyte = 1_u64 << 40;
    let declare = |size: &str| format!(".entry k() {{ .shared .align 4 .b8 x[{size}]; ret; }}");
    assert_eq!(shared(&declare("1099511627776")), Some(tebibyte));
    assert_eq!(shared(&declare("1 << 30][1024")), Some(tebibyte));
    assert_eq!(
        shared(&(".shared .b8 y[1099511627776];".to_owned() + &declare("1099511627776"))),
        Some(2 * tebibyte)
    );
    // Sizes beyond the parser's limit saturate.
    assert_eq!(shared(&declare("0xFFFFFFFFFFFFFFFF")), Some(u64::MAX));
    assert_eq!(shared(&declare("1 << 40][1 << 40")), Some(u64::MAX));
    let many = ".shared .b64 a[0x7FFFFFFFFFFFFFFF];".repeat(3) + ".entry k() { ret; }";
    assert_eq!(shared(&many), Some(u64::MAX));
}

#[test]
fn module_functions_and_kernels_are_counted() {
    let module = read(
        ".global .align 8 .b8 a[64]; .const .f32 b[] = {0f00000000, 0f3F800000};
        .visible .global .u64 c[2] = {a, generic(a)}, d; .extern .global .b8 elsewhere[999];
        .shared .b32 common[4]; .extern .shared .align 16 .b8 dynamic[];
        .global .texref t;
        .func f() { .shared .b32 s; .local .align 8 .b8 depot[16]; ret; }
        .entry one() { .local .align 8 .b8 depot[48]; { .shared .b32 inner[2]; } ret; }
        .entry two() .maxntid 64 { .const .b32 e; ret; }",
    );
    assert_eq!((module.global_bytes, module.const_bytes), (Some(64 + 24), Some(8 + 4)));
    let shared: Vec<_> = module.entries.iter().map(|entry| entry.static_shared_bytes).collect();
    assert_eq!(shared, [Some(16 + 4 + 8), Some(16 + 4)]);
    let local: Vec<_> = module.entries.iter().map(|entry| entry.local_bytes).collect();
    assert_eq!((local, module.local_bytes), (vec![Some(64), Some(16)], Some(64)));
    assert_eq!(module.entries[1].max_threads, Some([64, 1, 1]));
}

#[test]
fn modifiers_of_instructions_declare_nothing() {
    let text = ".entry k(.param .u64 .ptr .shared .align 4 p) {
        .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p;
        .loc 1 2 3
        .shared .b32 first;
        .loc 1 2 3, function_name $L, inlined_at 1 4 5
        .shared .b32 second;
    $label: .shared .b32 third;
        @%p ld.shared.u32 %r1, [first];
        st.shared.v2.u32 [first], {%r1, %r2};
        cvta.shared.u64 %rd1, %rd2;
        cvta.to.shared.u64 %rd1, %rd2;
        call (%r1), f, (%r2);
        ret;
    }";
    assert_eq!(shared(text), Some(12));
}

#[test]
fn newer_texts_are_read() {
    let text = ".novel 3 .shared .b32 a; .banner { .shared .b32 hidden; }
        .entry k() { wondrous.shared.op {%x; %y}, <~>; .marvel 1, 2 .shared .b32 b;
            .pragma \"x\"; .shared .b32 c; } .entry l() { ret; }";
    assert_eq!(shared(text), Some(12));
    // The size of an unknown type is unknown. Other spaces are not affected.
    let module = read(".entry k() { .shared .fp4 x[8]; .local .b32 y; } .global .fp4 z = {1};");
    assert_eq!(module.entries[0].static_shared_bytes, None);
    assert_eq!((module.entries[0].local_bytes, module.global_bytes), (Some(4), None));
    assert_eq!((module.local_bytes, module.const_bytes), (Some(4), Some(0)));
}

#[test]
fn time_is_linear_in_broken_declarations() {
    let started = std::time::Instant::now();
    for part in [
        ".shared .attribute(",
        ".shared .b8 x = (",
        ".entry k() { .shared .b8 x = ( }",
        ".entry k() { .shared .attribute( } ",
        ".global .b8 x[] = {{",
        "{ .shared .b8 x[] = {1,",
    ] {
        let text = format!(".version 8.0\n.target sm_80\n{}", part.repeat(50_000));
        _ = module_signature(&text);
        _ = module_signature(&format!("{text}{}", ")".repeat(50_000)));
        let inner = format!(".version 8.0\n.target sm_80\n.entry k() {{{}}}", part.repeat(50_000));
        _ = module_signature(&inner);
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}
