//! The options of the CPU device: `--check`, `--seed`, `--budget` and `--profile`; and its list of unknown
//! instructions.

use std::fs;

use crate::support::{Folder, Run, kernels};

/// Runs a kernel of `kernels/bugs` on the CPU device.
fn bug(kernel: &str, rest: &str) -> Run {
    Folder::on("cpu").run(&format!("K/bugs/{kernel} --grid 1 {rest}"))
}

#[test]
fn check_detects_uninitialized_reads_and_races() {
    let args = "out=u32:64@x.npy u32=50 --block 64";
    let unwritten = format!("unwritten.ptx unwritten_shared {args}");
    bug(&unwritten, "").done();
    for words in [
        "read of 4 bytes of shared memory that was never written in kernel `unwritten_shared`",
        ", block (0, 0, 0), thread (0, 0, 0), PTX line ",
        ", kernels/bugs/unwritten.cu:",
        ", address 0xfc (at byte 252 of `tile` (256 bytes",
    ] {
        bug(&unwritten, "--check").failed(3, words);
    }
    bug(&format!("unwritten.ptx unwritten_shared_mended {args}"), "--check").done();

    let race = format!("races.ptx race_block {args}");
    bug(&race, "").done();
    for words in [
        "race: write of 4 bytes of shared memory; nothing orders it",
        "nothing orders it and the read by thread (31, 0, 0), PTX line ",
        "in kernel `race_block`, block (0, 0, 0), thread (32, 0, 0), PTX line ",
        ", kernels/bugs/races.cu:",
    ] {
        bug(&race, "--check").failed(3, words);
    }
    bug(&format!("races.ptx race_block_mended {args}"), "--check").done();
}

/// Uploaded and zeroed arrays count as initialized.
#[test]
fn check_accepts_initialized_arguments() {
    let folder = Folder::on("cpu");
    folder.save("x.npy", &[1.0f32, 2.0, 3.0]);
    let line = "K/saxpy.ptx saxpy in=@x.npy inout=@x.npy@y.npy f32=2 u32=3 --grid 1 --block 32";
    folder.run(&format!("{line} --check --repeat 3")).done();
    let line = "K/saxpy.ptx saxpy in=@x.npy out=f32:3@y.npy f32=2 u32=3 --grid 1 --block 32";
    folder.run(&format!("{line} --check")).done();
}

#[test]
fn budget_ends_endless_loops() {
    let line = "waiting.ptx endless out=u32:2@x.npy u32=7 --block 1";
    bug(line, "--budget 100000")
        .failed(3, "the budget of 100000 instructions is used up: a loop without end");
    bug(line, "--budget 100000").failed(3, "kernels/bugs/waiting.cu:");
    let line = "waiting.ptx endless_mended out=u32:2@x.npy u32=7 --block 1";
    bug(line, "--budget 100000").done();
}

#[test]
fn equal_seeds_give_equal_orders() {
    let run = |seed: u32| {
        let folder = Folder::on("cpu");
        let line =
            format!("K/print.ptx print_values in=@x.npy u32=200 --grid 40 --block 5 --seed {seed}");
        folder.save("x.npy", &(0..200u16).map(f32::from).collect::<Vec<_>>());
        folder.run(&line).done()
    };
    let sorted = |text: &str| {
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let first = run(1);
    assert_eq!(run(1), first);
    assert_ne!(run(2), first);
    assert_eq!(sorted(&run(2)), sorted(&first));
}

#[test]
fn profile_is_printed_last() {
    let folder = Folder::on("cpu");
    let line = "K/print.ptx print_hello --grid 1 --block 2 --repeat 2 --time --profile";
    let printed = folder.run(line).done();
    let lines: Vec<_> = printed.lines().collect();
    assert_eq!(lines[..4], ["hello from the device"; 4]);
    assert!(lines[4].starts_with("median launch time: "), "{printed}");
    assert!(lines[5].starts_with("kernel `print_hello`: 2 launches, "), "{printed}");
    assert!(lines[6].ends_with("instruction"), "{printed}");
    assert!(lines[7..].iter().any(|line| line.ends_with("%  ret")), "{printed}");
}

#[test]
fn cpu_options_are_refused_on_other_devices() {
    let (folder, file) = (Folder::on("cpu"), format!("{}basic.ptx", kernels()));
    let launch = ["empty", "--grid", "1", "--block", "1"];
    for option in ["--check", "--seed=1", "--budget=9", "--profile"] {
        let run = |args: &[&str]| {
            let mut command = folder.command();
            Run::new(command.arg(&file).arg(option).args(args).output().unwrap())
        };
        let on = |device: &str| run(&[&launch[..], &["--device", device]].concat());
        let name = option.split('=').next().unwrap();
        for device in ["cuda", "cuda:1"] {
            let words = format!(
                "{name} requires the CPU device, the device is `{device}`; use --device cpu"
            );
            on(device).failed(2, &words);
        }
        on("cpu:1").failed(4, "no device `cpu:1`");
        on("cpu:0").done();
        // Without --device, the CPU device is selected.
        run(&launch).done();
        run(&["--list"]).failed(2, "--list");
    }
}

#[test]
fn list_names_every_unknown_instruction() {
    let folder = Folder::on("cpu");
    let mut ptx =
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k() {\n.reg .b32 %r<2>;\n"
            .to_owned();
    for i in 0..60 {
        ptx.push_str(&format!("  nonsense.number{i}.of.sixty %r0, %r1;\n"));
    }
    ptx.push_str("add.u32 %r0, %r1, %r1;\n  nonsense.number7.of.sixty %r1, %r1;\nret; }\n");
    fs::write(folder.path("new.ptx"), ptx).unwrap();
    let (lines, listed) = folder.run("new.ptx --list").refused(2);
    assert_eq!(listed, "k\n");
    let first = "cuda-run: new.ptx: the device cannot load the module: the CPU device cannot run this module, 61 problem(s)";
    assert_eq!((lines[0].as_str(), lines.len()), (first, 61));
    for i in (0..60).filter(|i| *i != 7) {
        let (at, words) = (i + 1, format!("`nonsense.number{i}.of.sixty`: "));
        let start = format!("  line {}, column 3, in `k`: {words}", i + 6);
        assert!(lines[at].starts_with(&start), "{}", lines[at]);
    }
    let twice = "  line 13, column 3, in `k`: `nonsense.number7.of.sixty` (2 times): ";
    assert!(lines[8].starts_with(twice), "{}", lines[8]);
    let (lines, printed) = folder.run("new.ptx k --grid 1 --block 1").refused(2);
    assert_eq!((lines.len(), printed.as_str()), (61, ""));
}

/// `uninit=` arrays count as uninitialized, `out=` arrays as zeroed.
#[test]
fn check_detects_reads_of_uninit_arrays() {
    let folder = Folder::on("cpu");
    folder.save("a.npy", &[1.0f32; 8]);
    let run = |array: &str, n: u32| {
        let line = format!(
            "K/vecadd.ptx vecadd in=@a.npy {array}=f32:8@b.npy out=f32:8@c.npy u32={n} --grid 1 --block 8 --check"
        );
        folder.run(&line)
    };
    run("out", 8).done();
    run("uninit", 0).done();
    run("uninit", 8).failed(3, "that was never written");
}

/// Detects arguments in the wrong order, where the kernel writes to an `in=` array.
#[test]
fn check_detects_writes_to_inputs() {
    let folder = Folder::on("cpu");
    folder.save("a.npy", &[1.0f32; 8]);
    let line =
        "K/vecadd.ptx vecadd in=@a.npy inout=@a.npy@c.npy in=@a.npy u32=8 --grid 1 --block 8";
    folder.run(line).done();
    let words =
        "the kernel wrote to an input, argument 2 `in=@a.npy`; use inout= if this is intended";
    folder.run(&format!("{line} --check")).failed(3, words);
    folder
        .run(&format!("{} --check", line.replace("in=@a.npy u32", "inout=@a.npy@d.npy u32")))
        .done();
}

#[test]
fn profile_is_printed_after_a_fault() {
    let folder = Folder::on("cpu");
    let line = "K/faults.ptx trap_at --grid 1 --block 32 out=u32:64@y.npy u32=5 u32=32 --profile";
    let (lines, printed) = folder.run(line).refused(3);
    assert!(lines.len() == 1 && lines[0].contains("trap"), "{lines:?}");
    assert!(printed.contains("trap_at") && printed.contains("setp.s32"), "{printed}");
}
