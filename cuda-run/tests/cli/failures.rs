//! Every way to fail: its status, one line, and no file touched.

use std::fs;

use crate::{
    npy, on_every_device,
    support::{Folder, Run, kernels},
};

on_every_device! { faults wrong_arguments launches_that_cannot_be out_of_memory ptx_that_is_none }

/// Old outputs that a failed run must leave alone.
fn folder(device: &'static str) -> Folder {
    let folder = Folder::on(device);
    folder.save("x.npy", &[1.0f32, 2.0, 3.0, 4.0]);
    folder.save("y.npy", &[5u32, 6]);
    folder
}

/// Runs, wants a failure, and that the folder is as before.
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
fn a_fault_on_the_cpu_says_where() {
    let line = "K/faults.ptx off_by_one --grid 1 --block 32 out=f32:16@y.npy u32=16";
    fails(&folder("cpu"), line, 3, "off_by_one");
    fails(&folder("cpu"), line, 3, "thread (16, 0, 0)");
    let line = "K/faults.ptx null_store --grid 1 --block 1";
    fails(&folder("cpu"), line, 3, "(a null pointer, or an offset from one)");
    // The driver of a GPU prints a line of its own for this.
    let line = "K/faults.ptx assert_below --grid 1 --block 4 inout=@x.npy@x.npy u32=7 u32=4";
    fails(&folder("cpu"), line, 3, "kernels/faults.cu");
}

fn wrong_arguments(device: &'static str) {
    let folder = folder(device);
    let saxpy = "K/saxpy.ptx saxpy --grid 1 --block 32";
    for (args, words) in [
        ("", "takes 4 arguments (u64, u64, f32, u32), 0 were given"),
        ("in=@x.npy out=f32:4@y.npy f32=1 u32=4 u32=4", "5 were given"),
        ("in=@x.npy out=f32:4@y.npy f64=1 u32=4", "argument 2 `f64=1`: it has 8 bytes"),
        ("u32=7 out=f32:4@y.npy f32=1 u32=4", "argument 0 `u32=7`"),
        ("in=@x.npy out=f32:4@y.npy in=@x.npy u32=4", "argument 2"),
        (
            "in=@x.npy out=f32:4@y.npy bytes=@x.npy u32=4",
            "x.npy: it has 84 bytes, the parameter `saxpy_param_2` is a f32 of 4",
        ),
        ("in=@x.npy out=f32:4@y.npy f32=1 u32=4294967296", "out of range"),
        ("in=@x.npy out=f32:4@y.npy f32=one u32=4", "not a number"),
        ("in=@x.npy out=f32:4x@y.npy f32=1 u32=4", "length of a dimension"),
        ("in=@x.npy out=f32:4294967296x4294967296@y.npy f32=1 u32=4", "larger than any memory"),
        ("in=@x.npy y.npy f32=1 u32=4", "KIND=VALUE"),
    ] {
        fails(&folder, &format!("{saxpy} {args}"), 2, words);
    }
    fails(&folder, "K/saxpy.ptx zaxpy --grid 1 --block 1", 2, "no kernel `zaxpy`");
}

fn launches_that_cannot_be(device: &'static str) {
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

fn ptx_that_is_none(device: &'static str) {
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
        ("K/basic.ptx empty --grid 0 --block 1", "can be 0"),
        ("K/basic.ptx empty --grid 1,2,3,4 --block 1", "three dimensions"),
        ("K/basic.ptx empty --grid x --block 1", "is no number"),
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
fn arrays_that_are_none() {
    let folder = folder("cpu");
    let body = [0; 16];
    let whole = npy::file("'<f4'", "False", "(4,)", &body);
    let lies = [&b"\x93NUMPY\x02\x00\xff\xff\xff\xff"[..], &body].concat();
    for (file, words) in [
        (Vec::new(), "not an .npy file"),
        (b"hello, this is no array".to_vec(), "not an .npy file"),
        (whole[..20].to_vec(), "cut short"),
        (whole[..whole.len() - 1].to_vec(), "cut short"),
        ([&whole[..], b"x"].concat(), "goes on"),
        (lies, "too long"),
        (npy::file("'<f4'", "False", "(1000000000000,)", &body), "cut short"),
        (npy::file("'<f4'", "False", "(9999999999, 9999999999)", &body), "larger than any memory"),
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

/// Messages say what to do instead.
#[test]
fn advice() {
    let folder = folder("cpu");
    fails(&folder, "K/vecadd.ptx", 2, "--list shows the kernels of a file");
    fails(&folder, "K/vecadd.ptx vecadd --grid 4x4 --block 1", 2, "separated by commas, as in 4,4");
    fails(
        &folder,
        "K/print.ptx print_hello out=float32:4@z.npy --grid 1 --block 1",
        2,
        "they are bool i8 u8",
    );
    fails(&folder, "x.npy k --grid 1 --block 1", 2, "it is not text, as PTX is");
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry _Z5scalePf(.param .u64 x) { ret; }\n\
        .visible .entry dynamic() { .reg .b32 %r; .extern .shared .align 4 .b8 s[]; ld.shared.u32 %r, [s]; ret; }\n\
        .visible .entry wild(.param .u64 a) { .reg .b64 %a; .reg .b32 %r; ld.param.u64 %a, [a]; ld.global.u32 %r, [%a]; ret; }";
    std::fs::write(folder.path("some.ptx"), ptx).unwrap();
    fails(
        &folder,
        "some.ptx scale --grid 1 --block 1",
        2,
        "but `_Z5scalePf`: C++ names are mangled",
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
