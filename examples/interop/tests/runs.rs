//! Runs the program and reads its output.

#![allow(clippy::unwrap_used)]

use std::process::Command;

#[test]
fn program_finds_the_frequencies() {
    let output = Command::new(env!("CARGO_BIN_EXE_interop")).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let devices = text.lines().filter(|line| *line == "frequencies: [3, 17, 100, 311]").count();
    assert!(devices > 0, "{text}");
    let sums = [3, 17, 100, 311].map(|frequency| (frequency * devices) as f32);
    assert!(text.contains(&format!("sums: {sums:?}")), "{text}");
    let identity: Vec<f32> = (0..16).map(|at| if at % 5 == 0 { 1.0 } else { 0.0 }).collect();
    assert!(text.replace("-0.0", "0.0").contains(&format!("correlations: {identity:?}")), "{text}");
}
