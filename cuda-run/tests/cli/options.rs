//! The options `--list`, `--time` and `--repeat`, the default device, and the help.

use std::process::{Command, Stdio};

use crate::{
    on_every_device,
    support::{Folder, Run, has_gpu, kernels, words},
};

on_every_device! { list time repeat_keeps_array_contents kernel_output_goes_to_stdout three_dimensions }

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
