//! Paths of input and output files.
#![cfg(unix)]

use std::{fs, os::unix::fs::PermissionsExt};

use crate::support::{Folder, kernels};

/// Runs a kernel that fills the array of `argument` with ones.
fn fill(folder: &Folder, argument: &str) -> crate::support::Run {
    let file = format!("{}basic.ptx", kernels());
    folder.run_with([&file, "fill", "--grid", "1", "--block", "4", argument, "f32=1", "u32=4"])
}

#[test]
fn paths_may_contain_at_signs_equals_signs_and_spaces() {
    let folder = Folder::on("cpu");
    folder.save("a@b=c d.npy", &[0.0f32; 4]);
    fill(&folder, "in=@a@b=c d.npy").done();
    fill(&folder, "inout=@a@@b=c d.npy@out=@@1.npy").done();
    assert_eq!(folder.load::<f32>("out=@1.npy", "(4,)"), [1.0; 4]);
    fill(&folder, "out=f32:4@@=@.npy").done();
    assert_eq!(folder.load::<f32>("@=@.npy", "(4,)"), [1.0; 4]);
}

#[cfg(target_os = "linux")]
#[test]
fn paths_may_be_invalid_utf_8() {
    use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

    let folder = Folder::on("cpu");
    let file = format!("{}basic.ptx", kernels());
    let run = |argument: &[u8]| {
        let words = ["fill", "--grid", "1", "--block", "4"].map(OsStr::new);
        let rest = [OsStr::from_bytes(argument), OsStr::new("f32=1"), OsStr::new("u32=4")];
        folder.run_with([OsStr::new(&file)].into_iter().chain(words).chain(rest))
    };
    run(b"out=f32:4@\xff.npy").done();
    run(b"inout=@\xff.npy@\xfe.npy").done();
    let path = folder.path(OsStr::from_bytes(b"\xfe.npy"));
    assert_eq!(crate::npy::load::<f32>(&path, "(4,)"), [1.0; 4]);
    run(b"in=@missing\xff\n.npy").failed(2, "missing");
    run(b"f32=\xff").failed(2, "not UTF-8");
}

#[test]
fn empty_arrays() {
    let folder = Folder::on("cpu");
    let file = format!("{}basic.ptx", kernels());
    let args = ["fill", "--grid", "1", "--block", "4", "out=f32:0x3@y.npy", "f32=1", "u32=0"];
    folder.run_with([&file[..]].into_iter().chain(args)).done();
    assert!(folder.load::<f32>("y.npy", "(0, 3)").is_empty());
    let args = ["fill", "--grid", "1", "--block", "4", "inout=@y.npy@z.npy", "f32=1", "u32=0"];
    folder.run_with([&file[..]].into_iter().chain(args)).done();
    assert!(folder.load::<f32>("z.npy", "(0, 3)").is_empty());
}

#[test]
fn two_outputs_in_one_file_are_refused() {
    let folder = Folder::on("cpu");
    fs::create_dir(folder.path("d")).unwrap();
    folder.save("x.npy", &[1.0f32; 4]);
    for (first, second) in [
        ("out=f32:4@y.npy", "out=f32:4@y.npy"),
        ("out=f32:4@y.npy", "inout=@x.npy@./d/../y.npy"),
        ("inout=@x.npy@x.npy", "out=f32:4@d/../x.npy"),
    ] {
        let before = folder.contents();
        let line = format!("K/saxpy.ptx saxpy --grid 1 --block 4 {first} {second} f32=1 u32=4");
        folder.run(&line).failed(2, "two outputs");
        assert!(folder.contents() == before);
    }
}

#[test]
fn unwritable_paths_are_refused_before_the_launch() {
    let folder = Folder::on("cpu");
    fs::create_dir(folder.path("d")).unwrap();
    folder.save("file", &[1.0f32; 4]);
    for place in ["d", "missing/y.npy", "file/y.npy", "..", "/dev/null", "/"] {
        let line = format!(
            "K/faults.ptx store_at --grid 1 --block 1 out=u32:1@{place} i64=-9999999 u32=1"
        );
        folder.run(&line).failed(2, place);
    }
    fill(&folder, "in=@d").failed(2, "directory");
    fill(&folder, "in=@missing.npy").failed(2, "missing.npy: ");
    fill(&folder, "in=@").failed(2, "missing path");
}

#[test]
fn symbolic_links_and_permissions_are_kept() {
    let folder = Folder::on("cpu");
    folder.save("real.npy", &[1.0f32; 2]);
    fs::set_permissions(folder.path("real.npy"), fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::symlink("real.npy", folder.path("link.npy")).unwrap();
    fill(&folder, "out=f32:4@link.npy").done();
    assert!(folder.path("link.npy").is_symlink());
    assert_eq!(folder.load::<f32>("real.npy", "(4,)"), [1.0; 4]);
    let mode = |name| fs::metadata(folder.path(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("real.npy"), 0o640);
    fill(&folder, "out=f32:4@new.npy").done();
    fs::write(folder.path("usual"), "").unwrap();
    assert_eq!(mode("new.npy"), mode("usual"));
}

/// Only the requested outputs are left in the folder.
#[test]
fn temporary_files_are_removed() {
    let folder = Folder::on("cpu");
    fill(&folder, "out=f32:4@y.npy").done();
    assert_eq!(folder.contents().len(), 1);
    fill(&folder, "out=f32:4@missing/y.npy").failed(2, "missing");
    assert_eq!(folder.contents().len(), 1);
}

/// If stdout cannot be written, the run fails and writes no output file.
#[cfg(target_os = "linux")]
#[test]
fn full_stdout_is_a_failure() {
    let folder = Folder::on("cpu");
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = folder.command();
    command.arg(format!("{}basic.ptx", kernels())).args(["--device", "cpu", "--time"]);
    command.args(["fill", "--grid", "1", "--block", "4", "out=f32:4@y.npy", "f32=1", "u32=4"]);
    crate::support::Run::new(command.stdout(full).output().unwrap()).failed(2, "stdout");
    assert_eq!(folder.contents().len(), 0);
}
