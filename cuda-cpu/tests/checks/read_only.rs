//! Writes through arguments that a launch only reads.

use cuda_cpu::{Checks, FaultKind, LaunchError, Operand, Schedule};

use crate::args;
use crate::host::Host;

/// One kernel for each way to write global memory. Each takes an input and an output of 64 bytes.
const PTX: &str = r"
.version 8.6
.target sm_90
.address_size 64
.visible .entry store(.param .u64 input, .param .u64 output) {
    .reg .b64 %a<2>; .reg .b32 %r<2>;
    ld.param.u64 %a0, [input]; cvta.to.global.u64 %a0, %a0;
    mov.u32 %r0, 7; st.global.u32 [%a0+4], %r0; ret;
}
.visible .entry vector(.param .u64 input, .param .u64 output) {
    .reg .b64 %a<2>; .reg .b32 %r<2>;
    ld.param.u64 %a0, [input];
    mov.u32 %r0, 7; st.v2.u32 [%a0+8], {%r0, %r0}; ret;
}
.visible .entry atomic(.param .u64 input, .param .u64 output) {
    .reg .b64 %a<2>; .reg .b32 %r<2>;
    ld.param.u64 %a0, [input];
    atom.add.u32 %r0, [%a0], 1; ret;
}
.visible .entry reduction(.param .u64 input, .param .u64 output) {
    .reg .b64 %a<2>;
    ld.param.u64 %a0, [input];
    red.global.add.u32 [%a0], 1; ret;
}
.visible .entry bulk(.param .u64 input, .param .u64 output) {
    .reg .b64 %a<2>; .shared .align 16 .b8 room[16]; .reg .b32 %r<2>;
    ld.param.u64 %a0, [input]; mov.u32 %r0, room; mov.u32 %r1, 1;
    st.shared.v4.u32 [%r0], {%r1, %r1, %r1, %r1};
    fence.proxy.async;
    cp.async.bulk.global.shared::cta.bulk_group [%a0+16], [room], 16;
    cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; ret;
}
.visible .entry copy(.param .u64 input, .param .u64 output) {
    .reg .b64 %a<2>; .reg .b32 %r<2>;
    ld.param.u64 %a0, [input]; ld.param.u64 %a1, [output];
    ld.global.u32 %r0, [%a0]; st.global.u32 [%a1], %r0; ret;
}
";

/// Runs a kernel of one thread. The launch reads the first buffer and writes the second one.
fn run(host: &mut Host, kernel: &str) -> Result<(), LaunchError> {
    let (input, output) = (host.zeros::<u32>(16), host.zeros::<u32>(16));
    let operand =
        |at: u32, address, writes| Operand { range: address..address + 64, writes, at: Some(at) };
    host.operands = vec![operand(0, input, false), operand(8, output, true)];
    host.launch(kernel, 1, 1, args![input, output])
}

#[test]
fn write_through_an_argument_that_is_only_read_names_the_parameter() {
    for schedule in [Schedule::Parallel, Schedule::Fixed] {
        let mut host = Host::new(PTX);
        host.schedule = schedule;
        for (kernel, offset, size) in [
            ("store", 4, 4),
            ("vector", 8, 8),
            ("atomic", 0, 4),
            ("reduction", 0, 4),
            ("bulk", 16, 16),
        ] {
            let Err(LaunchError::Fault(fault)) = run(&mut host, kernel) else { panic!("{kernel}") };
            let input = host.operands[0].range.start;
            let FaultKind::ReadOnlyArgument { address, bytes, parameter, name } = &fault.kind
            else {
                panic!("{kernel}: {fault}")
            };
            assert_eq!((*address, *bytes), (input + offset, size), "{kernel}");
            assert_eq!((*parameter, &**name), (0, "input"), "{kernel}");
            assert!(fault.to_string().contains("through parameter 0 (`input`)"), "{fault}");
            assert!(fault.line > 0 && fault.nearest.is_some(), "{fault}");
        }
        run(&mut host, "copy").unwrap();
    }
}

#[test]
fn write_is_no_fault_without_the_check() {
    let mut host = Host::new(PTX);
    host.checks = Checks::none().uninitialized().races();
    for kernel in ["store", "vector", "atomic", "reduction", "bulk"] {
        run(&mut host, kernel).unwrap();
    }
}
