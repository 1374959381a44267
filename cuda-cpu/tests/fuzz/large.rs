//! Texts that are too large for a fuzzer to find and once took disproportionate time or memory. A quadratic algorithm
//! would not finish here.

use cuda_cpu::{Launch, LaunchDims, LaunchError, Limits, Memory, Program};

const HEAD: &str = ".version 8.6 .target sm_90 .address_size 64\n";
const MANY: usize = 20_000;

fn load(text: &str) -> Result<(), String> {
    let memory = Memory::new(1 << 30);
    let module = cuda_ptx::parse(text).map_err(|error| error.to_string())?;
    let program = Program::load(&module, &memory).map_err(|error| error.to_string())?;
    program.unload(&memory);
    Ok(())
}

/// Concatenates the results of `write` for each number.
fn each(write: impl Fn(usize) -> String) -> String {
    (0..MANY).map(write).collect()
}

#[test]
fn a_long_list_of_targets_that_many_branches_name() {
    let list = "L, ".repeat(MANY);
    let branches = "brx.idx i, list;\n".repeat(MANY);
    let text = format!(
        "{HEAD}.entry k() {{ .reg .b32 i; list: .branchtargets {list} L;\n L: {branches} ret; }}"
    );
    assert_eq!(load(&text), Ok(()));
}

#[test]
fn many_kernels_and_many_variables() {
    let variables = each(|i| format!(".shared .b8 s{i};\n"));
    let kernels = each(|i| format!(".entry k{i}() {{ .reg .b64 a; mov.b64 a, s{i}; ret; }}\n"));
    assert_eq!(load(&format!("{HEAD}{variables}{kernels}")), Ok(()));
}

#[test]
fn a_long_name_and_many_variables_inside() {
    let name = "k".repeat(1 << 20);
    let variables = each(|i| format!(".shared .b8 s{i};\n"));
    let uses = each(|i| format!("mov.b64 a, s{i};\n"));
    let text = format!("{HEAD}.entry {name}() {{ .reg .b64 a; {variables} {uses} ret; }}");
    assert_eq!(load(&text), Ok(()));
}

#[test]
fn a_long_name_and_many_problems() {
    let name = "k".repeat(1 << 20);
    let text = format!("{HEAD}.entry {name}() {{ {} }}", each(|i| format!("wrong{i};\n")));
    let error = load(&text).unwrap_err();
    assert!(error.len() < 1 << 20 && error.contains("19000 more"), "{}", error.len());
}

#[test]
fn many_modifiers() {
    let text = format!("{HEAD}.entry k() {{ ld{} ; }}", ".ca".repeat(50 * MANY));
    assert!(load(&text).unwrap_err().contains("MAX_MODIFIERS"));
}

#[test]
fn many_registers_of_the_module_and_many_functions() {
    let registers = each(|i| format!(".reg .b32 a{i}, b{i}<9>;\n"));
    let functions = each(|i| format!(".func f{i}() {{ add.u32 a{i}, a{i}, b{i}8; }}\n"));
    assert_eq!(load(&format!("{HEAD}{registers}{functions}.entry k() {{ ret; }}")), Ok(()));
}

#[test]
fn a_line_of_white_space_and_number_signs() {
    let (blank, signs) = (" ".repeat(50 * MANY), "#".repeat(50 * MANY));
    assert!(load(&format!("{HEAD}{blank}x{signs}")).unwrap_err().contains("found `x`"));
}

#[test]
fn many_constants_and_many_tests_of_the_space() {
    let constants = each(|i| format!(".const .b8 c{i};\n"));
    let tests = "isspacep.const p, a;\n".repeat(MANY);
    let before = resident();
    let text = format!("{HEAD}{constants}.entry k() {{ .reg .b64 a; .reg .pred p; {tests} ret; }}");
    assert_eq!(load(&text), Ok(()));
    assert!(resident() < before + (1 << 30), "{before} {}", resident());
}

/// Runs one warp.
fn run(
    declared: &str,
    body: &str,
    memory: &Memory,
    iterations: Option<u64>,
) -> Result<(), LaunchError> {
    let registers = ".reg .b64 a, b; .reg .b32 n; .reg .pred p;";
    let text = format!("{HEAD}{declared} .entry k() {{ {registers} {body} ret; }}");
    let program = Program::load(&cuda_ptx::parse(&text).unwrap(), memory).unwrap();
    let dims = LaunchDims { grid: [1; 3], block: [32, 1, 1], dynamic_shared: 0 };
    let limits = Limits { iterations, ..Limits::default() };
    program.launch(memory, 0, &Launch { limits, ..Launch::new(dims, &[], &|_| {}) })
}

fn is_over_budget(ended: &Result<(), LaunchError>) -> bool {
    matches!(ended, Err(LaunchError::Fault(fault)) if fault.to_string().contains("budget"))
}

/// The limit of iterations counts the copied or printed bytes, not only the iterations.
#[test]
fn loops_around_large_copies() {
    let declared = ".shared .align 128 .b8 s[200000]; .global .align 128 .b8 g[200000];\n";
    let body = "mov.b64 a, s; mov.b64 b, g; mov.u32 n, 200000;
        L: cp.async.bulk.global.shared::cta.bulk_group [b], [a], n;
        cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bra L;";
    let ended = run(declared, body, &Memory::new(1 << 24), Some(1 << 14));
    assert!(is_over_budget(&ended), "{ended:?}");
}

#[test]
fn loops_around_long_texts() {
    let format = "37, 52, 48, 57, 54, 100, ".repeat(10_000); // %4096d
    let declared = format!(
        ".global .b8 f[60001] = {{{format} 0}}; .global .b8 v[80000];
        .extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"
    );
    let body = "mov.b64 a, f; mov.b64 b, v;
        L: { .param .b64 x; .param .b64 y; .param .b32 z; st.param.b64 [x], a; st.param.b64 [y], b;
        call.uni (z), vprintf, (x, y); } bra L;";
    let ended = run(&declared, body, &Memory::new(1 << 24), Some(1 << 14));
    assert!(is_over_budget(&ended), "{ended:?}");
}

/// Each of these allocations takes host memory but no device memory.
#[test]
fn allocations_of_nothing() {
    let memory = Memory::new(1 << 24);
    let declared = ".extern .func (.param .b64 r) malloc (.param .b64 a);\n";
    let calls = "{ .param .b64 x; .param .b64 z; st.param.b64 [x], a; call.uni (z), malloc, (x);
        ld.param.b64 b, [z]; }"
        .repeat(32);
    let body = format!(
        "mov.b64 a, 0; mov.u32 n, 300; L: {calls} sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra L;"
    );
    assert_eq!(run(declared, &body, &memory, None), Ok(()));
    assert_eq!(memory.usage().allocations, 1 << 18);
}

/// Memory that a kernel has freed is also returned to the host.
#[test]
fn allocations_that_are_used_and_freed() {
    let memory = Memory::new(1 << 24);
    let declared = ".extern .func (.param .b64 r) malloc (.param .b64 a);
        .extern .func free (.param .b64 a);\n";
    let body = "mov.b64 a, 262144; mov.u32 n, 1000;
        L: { .param .b64 x; .param .b64 z; st.param.b64 [x], a; call.uni (z), malloc, (x);
        ld.param.b64 b, [z]; } st.u64 [b+65536], b;
        { .param .b64 x; st.param.b64 [x], b; call.uni free, (x); }
        sub.u32 n, n, 1; setp.ne.u32 p, n, 0; @p bra L;";
    let before = resident();
    assert_eq!(run(declared, body, &memory, None), Ok(()));
    assert_eq!(memory.usage().allocations, 0);
    assert!(resident() < before + (1 << 30), "{before} {}", resident());
}

/// Returns the peak memory of this process in bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse().ok());
    kilobytes.unwrap_or(0u64) << 10
}
