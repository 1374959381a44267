//! Failures: each gives its exit status and one line, and changes no file.

use std::fs;

use crate::{
    npy, on_every_device,
    support::{Folder, Run, kernels},
};

on_every_device! { faults wrong_arguments invalid_launch_shapes out_of_memory invalid_ptx }

/// A folder with old outputs, which a failed run must not change.
fn folder(device: &'static str) -> Folder {
    let folder = Folder::on(device);
    folder.save("x.npy", &[1.0f32, 2.0, 3.0, 4.0]);
    folder.save("y.npy", &[5u32, 6]);
    folder
}

/// Checks that a run fails and does not change the folder.
#[track_caller]
fn fails(folder: &Folder, line: &str, status: i32, words: &str) {
    let before = folder.contents();
    folder.run(line).failed(status, words);
    assert!(folder.contents() == before, "{line} changed the folder");
}

fn faults(device: &'static str) {
    let folder = folder(device);
    for line in [
        "K/faults.ptx null_store --grid 1 --block 1",
        "K/faults.ptx trap_at --grid 1 --block 32 out=u32:32@y.npy u32=5 u32=32",
        "K/faults.ptx misaligned_store --grid 1 --block 1 out=u8:64@new.npy u64=2 u32=1",
        "K/faults.ptx store_at --grid 1 --block 1 out=u32:4@y.npy i64=0x1000000000 u32=1 --repeat 3 --time",
    ] {
        fails(&folder, line, 3, "fault");
    }
}

#[test]
fn cpu_fault_names_its_location() {
    let line = "K/faults.ptx off_by_one --grid 1 --block 32 out=f32:16@y.npy u32=16";
    fails(&folder("cpu"), line, 3, "off_by_one");
    fails(&folder("cpu"), line, 3, "thread (16, 0, 0)");
    let line = "K/faults.ptx null_store --grid 1 --block 1";
    fails(&folder("cpu"), line, 3, "(a null pointer, or an offset from one)");
    // Not tested on a GPU, whose driver prints another line for it.
    let line = "K/faults.ptx assert_below --grid 1 --block 4 inout=@x.npy@x.npy u32=7 u32=4";
    fails(&folder("cpu"), line, 3, "kernels/faults.cu");
}

fn wrong_arguments(device: &'static str) {
    let folder = folder(device);
    let saxpy = "K/saxpy.ptx saxpy --grid 1 --block 32";
    for (args, words) in [
        ("", "takes 4 arguments (u64, u64, f32, u32), the command line has 0"),
        ("in=@x.npy out=f32:4@y.npy f32=1 u32=4 u32=4", "the command line has 5"),
        ("in=@x.npy out=f32:4@y.npy f64=1 u32=4", "argument 2 `f64=1`: has 8 bytes"),
        ("u32=7 out=f32:4@y.npy f32=1 u32=4", "argument 0 `u32=7`"),
        ("in=@x.npy out=f32:4@y.npy in=@x.npy u32=4", "argument 2"),
        (
            "in=@x.npy out=f32:4@y.npy bytes=@x.npy u32=4",
            "x.npy: has 84 bytes, parameter `saxpy_param_2` takes 4 (f32)",
        ),
        ("in=@x.npy out=f32:4@y.npy f32=1 u32=4294967296", "out of range"),
        ("in=@x.npy out=f32:4@y.npy f32=one u32=4", "not a number"),
        ("in=@x.npy out=f32:4x@y.npy f32=1 u32=4", "invalid dimension"),
        ("in=@x.npy out=f32:4294967296x4294967296@y.npy f32=1 u32=4", "larger than the limit"),
        ("in=@x.npy y.npy f32=1 u32=4", "KIND=VALUE"),
    ] {
        fails(&folder, &format!("{saxpy} {args}"), 2, words);
    }
    fails(&folder, "K/saxpy.ptx zaxpy --grid 1 --block 1", 2, "no kernel `zaxpy`");
}

fn invalid_launch_shapes(device: &'static str) {
    let folder = folder(device);
    for (shape, words) in [
        ("--grid 1 --block 1025", "1025"),
        ("--grid 1 --block 1024,1024,64", "threads"),
        ("--grid 1 --block 1,1,65", "block"),
        ("--grid 1,65536 --block 1", "grid"),
        ("--grid 1,1,4294967295 --block 1", "grid"),
        ("--grid 1 --block 1 --shared 4294967295", "shared"),
    ] {
        let line = format!("K/basic.ptx fill {shape} inout=@x.npy@y.npy f32=1 u32=4");
        fails(&folder, &line, 2, words);
    }
}

fn out_of_memory(device: &'static str) {
    let line = "K/basic.ptx fill --grid 1 --block 1 out=f32:1000000x1000000@y.npy f32=1 u32=1";
    fails(&folder(device), line, 3, "out of device memory");
    let line = "K/basic.ptx fill --grid 1 --block 1 out=u8:9223372036854775807@y.npy f32=1 u32=1";
    fails(&folder(device), line, 3, "memory");
}

fn invalid_ptx(device: &'static str) {
    let folder = folder(device);
    fs::write(folder.path("bad.ptx"), ".version 8.0\n.target sm_80\nnonsense\n").unwrap();
    fs::write(folder.path("empty.ptx"), "").unwrap();
    fs::write(folder.path("binary.ptx"), [0xff, 0xfe, 0]).unwrap();
    fails(&folder, "bad.ptx k --grid 1 --block 1", 2, "bad.ptx: ");
    fails(&folder, "empty.ptx k --grid 1 --block 1", 2, "empty.ptx: ");
    fails(&folder, "binary.ptx --list", 2, "binary.ptx: ");
    fails(&folder, "missing.ptx --list", 2, "missing.ptx: ");
    fails(&folder, ". --list", 2, ".: ");
}

#[test]
fn usage() {
    let folder = folder("cpu");
    for (line, words) in [
        ("", "see cuda-run --help"),
        ("K/basic.ptx", "see cuda-run --help"),
        ("K/basic.ptx empty", "--grid"),
        ("K/basic.ptx empty --grid 1", "--block"),
        ("K/basic.ptx empty --grid 0 --block 1", "cannot be 0"),
        ("K/basic.ptx empty --grid 1,2,3,4 --block 1", "4 dimensions given, the limit is 3"),
        ("K/basic.ptx empty --grid x --block 1", "is not an integer from 1 to"),
        ("K/basic.ptx empty --grid 1 --block 1 --repeat 0", "--repeat"),
        ("K/basic.ptx empty --grid 1 --block 1 --shared 4G", "--shared"),
        ("K/basic.ptx empty --grid 1 --block 1 --gird 1", "--gird"),
        ("K/basic.ptx empty --list", "--list"),
    ] {
        fails(&folder, line, 2, words);
    }
}

#[test]
fn no_such_device() {
    let folder = folder("cpu");
    for device in ["tpu", "cuda:99", "cuda:x", "cpu:1", "", "cpu:-1", "cuda:4294967296"] {
        let file = format!("{}basic.ptx", kernels());
        let mut command = folder.command();
        command.arg(file).args(["empty", "--grid", "1", "--block", "1", "--device", device]);
        Run::new(command.output().unwrap()).failed(4, "");
    }
}

#[test]
fn invalid_npy_files() {
    let folder = folder("cpu");
    let body = [0; 16];
    let whole = npy::file("'<f4'", "False", "(4,)", &body);
    let lies = [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], &body].concat();
    for (file, words) in [
        (Vec::new(), "not an .npy file"),
        (b"hello, this is not an array".to_vec(), "not an .npy file"),
        (whole[..20].to_vec(), "truncated"),
        (whole[..whole.len() - 1].to_vec(), "truncated"),
        ([&whole[..], b"x"].concat(), "more bytes"),
        (lies, "too long"),
        (npy::file("'<f4'", "False", "(1000000000000,)", &body), "truncated"),
        (npy::file("'<f4'", "False", "(9999999999, 9999999999)", &body), "larger than the limit"),
        (npy::file("'<c8'", "False", "(2,)", &body), "not supported"),
        (npy::file("'>f4'", "False", "(4,)", &body), "big-endian"),
        (npy::file("'<f4'", "True", "(2, 2)", &body), "Fortran"),
        (npy::file("[('a', '<f4')]", "False", "(4,)", &body), "structured"),
    ] {
        fs::write(folder.path("bad.npy"), file).unwrap();
        for kind in ["in=@bad.npy", "inout=@bad.npy@y.npy", "inout=@bad.npy@bad.npy"] {
            let line = format!("K/basic.ptx fill --grid 1 --block 1 {kind} f32=1 u32=1");
            fails(&folder, &line, 2, words);
            fails(&folder, &line, 2, "bad.npy: ");
        }
    }
}

/// Messages name the correction.
#[test]
fn messages_name_the_correction() {
    let folder = folder("cpu");
    fails(&folder, "K/vecadd.ptx", 2, "--list prints the kernels of a file");
    fails(
        &folder,
        "K/vecadd.ptx vecadd --grid 4x4 --block 1",
        2,
        "separate dimensions by commas, as in 4,4",
    );
    fails(
        &folder,
        "K/print.ptx print_hello out=float32:4@z.npy --grid 1 --block 1",
        2,
        "the types are bool i8 u8",
    );
    fails(&folder, "x.npy k --grid 1 --block 1", 2, "not UTF-8 text; expected a PTX file");
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry _Z5scalePf(.param .u64 x) { ret; }\n\
        .visible .entry dynamic() { .reg .b32 %r; .extern .shared .align 4 .b8 s[]; ld.shared.u32 %r, [s]; ret; }\n\
        .visible .entry wild(.param .u64 a) { .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [a]; ld.global.u32 %r, [%a]; ret; }";
    std::fs::write(folder.path("some.ptx"), ptx).unwrap();
    fails(
        &folder,
        "some.ptx scale --grid 1 --block 1",
        2,
        "it has `_Z5scalePf`, a mangled C++ name",
    );
    fails(
        &folder,
        "some.ptx dynamic --grid 1 --block 1",
        3,
        "`s` is dynamic shared memory, and the launch has none",
    );
    let wild = |address: &str, words| {
        fails(&folder, &format!("some.ptx wild u64={address} --grid 1 --block 1"), 3, words);
    };
    wild("0x2", "a null pointer, or an offset from one");
    wild("0xfffffffffffffffc", "a null pointer, or an offset from one");
    wild("0x700000000000", "far from every allocation");
}
