//! `inventory`, `alloc`, `renew`, `free` and `top`.

use std::{
    os::unix::fs::{FileTypeExt, PermissionsExt},
    process::Stdio,
};

use serde_json::json;

use crate::support::{Place, Run, wait_until};

#[test]
fn allocated_lease_is_used_renewed_and_freed() {
    let place = Place::new();
    let alloc = "alloc --min-vram 1MiB --lease-secs 30 --device cpu --out lease.json";
    let printed = place.run(alloc).done();
    assert!(printed.contains("memory   1.00 MiB\nexpires  in "), "{printed}");
    assert!(!printed.contains("lt1_"), "the token is in the file only: {printed}");
    let mode = place.path("lease.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let read = || serde_json::from_slice::<serde_json::Value>(&place.load("lease.json")).unwrap();
    let first = read();
    assert_eq!((&first["memory"], &first["device"]), (&json!(1 << 20), &json!("cpu")));
    // The file names the node.
    let run = |line: &str| place.run_without_node(&format!("{line} --lease lease.json"));
    let iota = "submit --ptx K/iota.ptx --kernel iota --block 32 --arg u32=2 --output-bytes 8";
    assert_eq!(run(&format!("{iota} --format f32")).done(), "1.0\n2.0\n");

    run("renew --lease-secs 1000").done();
    let renewed = read();
    assert!(renewed["expires_in_secs"].as_u64().unwrap() > 30);
    assert_ne!(renewed["token"], first["token"]);
    assert_eq!(run(&format!("{iota} --format f32")).done(), "1.0\n2.0\n");

    let id = &renewed["lease"];
    assert_eq!(run("free").done(), format!("lease {id} is freed\n"));
    run("free").failed(4, "was freed");
    run(iota).failed(4, "");
}

#[test]
fn token_on_the_command_line_names_its_lease() {
    let place = Place::new();
    let lease = place.run("alloc --json --min-vram 1MiB").done_with_json();
    let token = lease["token"].as_str().unwrap();
    let renewed = place.run(&format!("renew --json --token {token}")).done_with_json();
    assert_eq!(renewed["lease"], lease["lease"]);
    let token = renewed["token"].as_str().unwrap();
    place.iota(&format!("--token {token}")).done();
    place.run(&format!("free --token {token}")).done();
    // A lease that is read from stdin is not written there.
    let lease = place.run("alloc --json --min-vram 1MiB").done_with_json();
    place.save("lease.json", lease.to_string());
    let file = std::fs::File::open(place.path("lease.json")).unwrap();
    let renew = place.command("renew --lease /dev/stdin").stdin(file).output().unwrap();
    assert!(String::from_utf8(renew.stdout).unwrap().contains("\ntoken    lt1_"));
    assert_eq!(place.load("lease.json"), lease.to_string().as_bytes());
    place.run("free --lease lease.json").done();
    // Without a file the token is printed.
    assert!(place.run("alloc --min-vram 1MiB").done().contains("\ntoken    lt1_"));
}

#[test]
fn inventory_lists_devices() {
    let place = Place::new();
    let printed = place.run("inventory").done();
    let lines: Vec<_> = printed.lines().collect();
    assert!(lines[0].starts_with("DEVICE  NAME") && lines[0].ends_with("LEASES  STATE"));
    assert!(lines[1].starts_with("cpu ") && lines[1].ends_with("0/2     ok"), "{printed}");
    place.run("alloc --min-vram 1MiB").done();
    let devices = place.run("inventory --json").done_with_json();
    let device = &devices[0];
    assert_eq!((&device["device"], &device["leases"]), (&json!("cpu"), &json!(1)));
    let number = |name: &str| device[name].as_u64().unwrap();
    assert_eq!(number("memory") - number("free"), 1 << 20);
}

#[test]
fn top_lists_devices_and_leases_once_without_a_terminal() {
    let place = Place::new();
    place.run("alloc --min-vram 2MiB --exclusive session").done();
    let printed = place.run("top").done();
    assert!(printed.starts_with(&format!("node {}\n\nDEVICE  NAME", place.address())), "{printed}");
    let last = printed.lines().last().unwrap();
    assert!(
        last.contains("cpu     2.00 MiB  session  ") && last.ends_with(" s     active"),
        "{last}"
    );
    assert_eq!(printed.matches("DEVICE  NAME").count(), 1);

    let updates = place.run("top --json --count 2").done();
    let updates: Vec<serde_json::Value> =
        updates.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(updates.len(), 2);
    assert_eq!(updates[1]["leases"][0]["class"], "session");
    assert_eq!(updates[1]["devices"][0]["leases"], 1);
}

#[test]
fn file_of_a_lease_is_not_overwritten() {
    let place = Place::new();
    let alloc = "alloc --min-vram 1MiB --out lease.json";
    place.run(alloc).done();
    let file = place.load("lease.json");
    place.run(alloc).failed(2, "replace the file with --force");
    assert!(place.load("lease.json") == file);
    place.run(&format!("{alloc} --force")).done();
    assert!(place.load("lease.json") != file);
    // Any other file is replaced.
    place.run("free --lease lease.json").done();
    place.save("lease.json", "text");
    place.run(alloc).done();
}

/// Another program writes the file while the request waits.
#[test]
fn file_of_a_lease_that_was_written_meanwhile_is_not_overwritten() {
    let place = Place::new();
    place.run("alloc --min-vram 1MiB --exclusive device --out first.json").done();
    let line =
        format!("alloc --min-vram 1MiB --wait 60 --out lease.json --node {}", place.address());
    let mut command = place.command(&line);
    let waiting = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the program has checked the path and has a temporary file", || {
        let names = std::fs::read_dir(place.folder.path()).unwrap().flatten();
        names.map(|entry| entry.file_name()).any(|name| name.to_string_lossy().starts_with('.'))
    });
    place.save("lease.json", place.load("first.json"));
    place.run("free --lease first.json").done();
    Run::new(waiting.wait_with_output().unwrap()).failed(2, "replace the file with --force");
    assert!(place.load("lease.json") == place.load("first.json"));
    place.has_no_lease();
}

#[test]
fn free_says_that_a_lease_had_expired() {
    let place = Place::with(|options, _| options.table.grace = std::time::Duration::from_secs(60));
    place.run("alloc --min-vram 1MiB --lease-secs 1 --out lease.json").done();
    wait_until("the lease has expired", || {
        place.run("top").done().trim_end().ends_with("0 s      ending")
    });
    assert!(place.run("free --lease lease.json").done().ends_with(" had ended already\n"));
}

#[test]
fn files_are_written_through_links_and_pipes() {
    let place = Place::new();
    let fifo = place.path("pipe");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read_to_string(fifo).unwrap()
    });
    place.run("alloc --min-vram 1MiB --out pipe").done();
    let saved: serde_json::Value = serde_json::from_str(&reader.join().unwrap()).unwrap();
    assert!(saved["token"].as_str().unwrap().starts_with("lt1_"));
    assert!(fifo.symlink_metadata().unwrap().file_type().is_fifo());
    assert_eq!(place.iota("--output-bytes 4 --format f32 --out /dev/stdout").done(), "1.0\n");
    place.iota("--output-bytes 4 --out /dev/null").done();

    std::os::unix::fs::symlink("target.json", place.path("link.json")).unwrap();
    place.run("alloc --min-vram 1MiB --out link.json").done();
    place.run("renew --lease link.json").done();
    assert!(place.path("link.json").is_symlink());
    place.run("free --lease target.json").done();
}

#[test]
fn lease_that_cannot_be_saved_is_freed() {
    let place = Place::new();
    place.run("alloc --min-vram 1MiB --out no/such/folder/l.json").failed(2, "no/such/folder");
    place.run("alloc --min-vram 1MiB --out /dev/full").failed(2, "/dev/full: No space left");
    assert!(std::fs::metadata("/dev/full").unwrap().file_type().is_char_device());
    place.has_no_lease();
}

#[test]
fn lease_whose_token_cannot_be_printed_is_freed() {
    let place = Place::new();
    let alloc = |stdout: Stdio| {
        let line = format!("alloc --min-vram 1MiB --node {}", place.address());
        Run::new(place.command(&line).stdout(stdout).stderr(Stdio::piped()).output().unwrap())
    };
    let write_only = |path| std::fs::OpenOptions::new().write(true).open(path).unwrap();
    alloc(write_only("/dev/full").into()).failed(2, "stdout: No space left");
    place.has_no_lease();
    // A pipe that nobody reads.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    alloc(writer.into()).failed(2, "stdout: Broken pipe");
    place.has_no_lease();
    // A program whose stdout is closed writes to /dev/null.
    alloc(write_only("/dev/null").into()).failed(2, "write the lease to a file with --out");
    place.has_no_lease();
    // With the token in a file, the lease stays.
    let line = format!("alloc --min-vram 1MiB --out lease.json --node {}", place.address());
    let null = place.command(&line).stdout(write_only("/dev/null")).output().unwrap();
    Run::new(null).done();
    place.run("free --lease lease.json").done();
}

#[test]
fn renewal_whose_token_cannot_be_printed_says_so() {
    let place = Place::new();
    let lease = place.run("alloc --json --min-vram 1MiB").done_with_json();
    let token = lease["token"].as_str().unwrap();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let line = format!("renew --token {token} --node {}", place.address());
    let renew = place.command(&line).stdout(full).stderr(Stdio::piped()).output().unwrap();
    let words = "its new token is lost: stdout: No space left on device (os error 28); renew it again with the old token";
    Run::new(renew).failed(2, words);
    place.run(&format!("renew --token {token}")).done();
}
