//! The options `--list`, `--time` and `--repeat`, the default device, and the help.

use std::process::{Command, Stdio};

use crate::{
    on_every_device,
    support::{Folder, Run, has_gpu, kernels, words},
};

on_every_device! {
    list time repeat_keeps_array_contents kernel_output_goes_to_stdout three_dimensions
    blocks_of_a_cooperative_grid_wait_for_each_other size_of_a_cluster_is_that_of_the_option
}

/// Every block of `meet` waits until all blocks have come. `cluster` writes the blocks of a cluster in x, y and z.
const ATTRIBUTES: &str = ".version 7.8
.target sm_90
.address_size 64
.visible .entry meet(.param .u64 count, .param .u64 met) {
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %d<5>;
    ld.param.u64 %d1, [count];
    atom.global.add.u32 %r1, [%d1], 1;
    mov.u32 %r2, %nctaid.x;
again:
    ld.volatile.global.u32 %r3, [%d1];
    setp.lt.u32 %p, %r3, %r2;
    @%p bra again;
    ld.param.u64 %d2, [met];
    mov.u32 %r4, %ctaid.x;
    mul.wide.u32 %d3, %r4, 4;
    add.u64 %d4, %d2, %d3;
    st.global.u32 [%d4], %r3;
    ret;
}
.visible .entry cluster(.param .u64 out) {
    .reg .b32 %r<4>;
    .reg .b64 %d;
    ld.param.u64 %d, [out];
    mov.u32 %r1, %cluster_nctaid.x;
    mov.u32 %r2, %cluster_nctaid.y;
    mov.u32 %r3, %cluster_nctaid.z;
    st.global.u32 [%d], %r1;
    st.global.u32 [%d+4], %r2;
    st.global.u32 [%d+8], %r3;
    ret;
}
";

fn with_attributes(device: &'static str) -> Folder {
    let folder = Folder::on(device);
    std::fs::write(folder.path("k.ptx"), ATTRIBUTES).unwrap();
    folder
}

fn blocks_of_a_cooperative_grid_wait_for_each_other(device: &'static str) {
    let folder = with_attributes(device);
    let meet = |blocks: u32| {
        folder.run(&format!(
            "k.ptx meet --cooperative --grid {blocks} --block 1 out=u32:1@count.npy out=u32:8@met.npy"
        ))
    };
    meet(8).done();
    assert_eq!(folder.load::<u32>("met.npy", "(8,)"), [8; 8]);
    meet(1 << 20).failed(2, "1048576 blocks");
}

fn size_of_a_cluster_is_that_of_the_option(device: &'static str) {
    let folder = with_attributes(device);
    let run = |cluster: &str| {
        folder.run(&format!("k.ptx cluster --grid 8,4,2 --block 1 {cluster} out=u32:3@out.npy"))
    };
    for (cluster, expected) in
        [("", [1, 1, 1]), ("--cluster 2", [2, 1, 1]), ("--cluster 2,2,2", [2, 2, 2])]
    {
        run(cluster).done();
        assert_eq!(folder.load::<u32>("out.npy", "(3,)"), expected);
    }
    run("--cluster 3").failed(2, "not a multiple of cluster [3, 1, 1]");
}

fn list(device: &'static str) {
    let listed = Folder::on(device).run("K/params.ptx --list").done();
    let lines: Vec<_> = listed.lines().map(str::trim_end).collect();
    let first = lines.iter().position(|line| *line == "struct_by_value").unwrap();
    assert_eq!(
        lines[first + 1..first + 4],
        [
            "    0 b8[16] 16 bytes struct_by_value_param_0",
            "    1 u64 8 bytes struct_by_value_param_1",
            "    2 u32 4 bytes struct_by_value_param_2",
        ]
    );
    let kernels = lines.iter().filter(|line| !line.starts_with(' ')).count();
    assert_eq!(kernels, 6);
}

fn time(device: &'static str) {
    let folder = Folder::on(device);
    for (repeat, launches) in [("", "1"), ("--repeat 5", "5")] {
        let line = format!("K/basic.ptx empty --grid 1 --block 32 --time {repeat}");
        let printed = folder.run(&line).done();
        let rest = printed.strip_prefix("median launch time: ").unwrap();
        let (time, rest) = rest.split_once(' ').unwrap();
        assert_eq!(rest, format!("us ({launches} launches)\n"));
        assert!(time.parse::<f64>().unwrap() > 0.0, "{printed}");
    }
}

fn repeat_keeps_array_contents(device: &'static str) {
    let folder = Folder::on(device);
    let line =
        "K/basic.ptx add_scalar_u32 --grid 1 --block 32 out=u32:10@x.npy u32=3 u32=10 --repeat 7";
    folder.run(line).done();
    assert_eq!(folder.load::<u32>("x.npy", "(10,)"), [21; 10]);
}

fn kernel_output_goes_to_stdout(device: &'static str) {
    let printed = Folder::on(device).run("K/print.ptx print_hello --grid 1 --block 1").done();
    assert_eq!(printed, "hello from the device\n");
}

fn three_dimensions(device: &'static str) {
    let folder = Folder::on(device);
    let line = "K/params.ptx where_am_i --grid 2,3,2 --block 3,2,2 out=u32:12x12x2@at.npy";
    folder.run(line).done();
    let expected: Vec<_> =
        (0..12).flat_map(|block| (0..12).flat_map(move |thread| [block, thread])).collect();
    assert_eq!(folder.load::<u32>("at.npy", "(12, 12, 2)"), expected);
}

#[test]
fn the_default_device_is_the_first_gpu_or_the_cpu() {
    let folder = Folder::on("cpu");
    folder.save("x.npy", &words(4, 1));
    let file = format!("{}basic.ptx", kernels());
    let args = ["iota", "--grid", "1", "--block", "4", "inout=@x.npy@x.npy", "u32=5", "u32=4"];
    Run::new(folder.command().arg(file).args(args).output().unwrap()).done();
    assert_eq!(folder.load::<u32>("x.npy", "(4,)"), [5, 6, 7, 8]);
}

#[test]
fn gpu_is_selected_by_ordinal() {
    if has_gpu() {
        Folder::on("cuda:0").run("K/basic.ptx empty --grid 1 --block 1").done();
    }
}

#[test]
fn help_explains_arguments_and_statuses() {
    let folder = Folder::on("cpu");
    let help = folder.run("--help").done();
    for words in ["--grid", "inout=@x.npy@y.npy", "Exit status:", "no such device"] {
        assert!(help.contains(words), "{help}");
    }
    assert!(folder.run("--version").done().starts_with("cuda-run "));
}

/// A reader may close the pipe early, as in `cuda-run .. --list | head -1`.
#[test]
fn closed_pipe_is_not_a_failure() {
    let folder = Folder::on("cpu");
    for args in [&["--help"][..], &["--list", "--device", "cpu"]] {
        let mut command: Command = folder.command();
        let file = format!("{}basic.ptx", kernels());
        let mut child = command
            .arg(file)
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        Run::new(child.wait_with_output().unwrap()).done();
    }
}
