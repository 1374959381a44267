//! The program on a terminal.

use std::{
    fs::File,
    io::Read,
    os::fd::OwnedFd,
    process::{Child, Stdio},
};

use rustix::{
    fs::{Mode, OFlags, open},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcsetwinsize},
};

use crate::support::Place;

/// Starts the program with its stdout and stderr on a terminal of this many rows. Returns the other end of the
/// terminal.
fn on_terminal(place: &Place, line: &str, rows: u16) -> (Child, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let size = Winsize { ws_row: rows, ws_col: 60, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(&ours, size).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    let flags = OFlags::RDWR | OFlags::NOCTTY;
    let terminal: OwnedFd = open(name.as_c_str(), flags, Mode::empty()).unwrap();
    let child = place
        .command(&format!("{line} --node {}", place.address()))
        .stdout(Stdio::from(terminal.try_clone().unwrap()))
        .stderr(Stdio::from(terminal))
        .spawn()
        .unwrap();
    (child, ours.into())
}

/// Reads what the program writes to its terminal until it ends.
fn shown(place: &Place, line: &str, rows: u16) -> String {
    let (mut child, mut ours) = on_terminal(place, line, rows);
    let (mut shown, mut part) = (Vec::new(), [0; 4096]);
    // The last write is followed by an error: the terminal has no other end any more.
    while let Ok(length @ 1..) = ours.read(&mut part) {
        shown.extend_from_slice(&part[..length]);
    }
    child.wait().unwrap();
    String::from_utf8(shown).unwrap()
}

#[test]
fn top_replaces_its_previous_update() {
    let place = Place::new();
    let shown = shown(&place, "top --count 2", 24);
    assert_eq!(shown.matches("DEVICE  NAME").count(), 2, "{shown:?}");
    // The cursor goes up to the first of the six lines.
    assert!(shown.contains("\u{1b}[6A"), "{shown:?}");
}

#[test]
fn top_fits_a_small_terminal() {
    let place = Place::new();
    let shown = shown(&place, "top --count 1", 4);
    assert_eq!(shown.lines().count(), 3, "{shown:?}");
    assert!(shown.lines().all(|line| line.chars().count() <= 60), "{shown:?}");
}

#[test]
fn binary_output_is_not_written_to_a_terminal() {
    let place = Place::new();
    let line = "submit --ptx K/iota.ptx --kernel iota --arg u32=1 --output-bytes 4 --format raw";
    assert!(shown(&place, line, 24).contains("write it to a file with --out"));
}

#[test]
fn large_input_shows_its_progress() {
    let place = Place::new();
    place.save("large.bin", vec![0; 3 << 20]);
    let line =
        "submit --ptx K/iota.ptx --kernel square --arg u32=1 --input large.bin --output-bytes 4";
    let shown = shown(&place, line, 24);
    assert!(shown.contains("of 3.00 MiB"), "{shown:?}");
    assert!(shown.ends_with("00000000  00 00 00 00\r\n"), "{shown:?}");
}
