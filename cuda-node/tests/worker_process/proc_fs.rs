//! States of processes, read from `/proc`, and bounded waits for them.

use std::{
    fs,
    time::{Duration, Instant},
};

/// The limit of a wait. A loaded machine stays far below it.
const LIMIT: Duration = Duration::from_secs(30);

/// Waits until a state is reached.
pub fn wait_until(state: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < LIMIT, "not reached within {LIMIT:?}: {state}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The state letter and the parent of a process, or `None` if it does not exist.
fn state_and_parent(pid: &str) -> Option<(char, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the program is in parentheses and may contain any character.
    let mut fields = stat[stat.rfind(')')? + 1..].split_whitespace();
    Some((fields.next()?.chars().next()?, fields.next()?.parse().ok()?))
}

/// True if the process runs: it exists and is not a zombie.
pub fn runs(pid: u32) -> bool {
    state_and_parent(&pid.to_string()).is_some_and(|(state, _)| !matches!(state, 'Z' | 'X'))
}

/// The children of this process, zombies included.
pub fn children() -> Vec<u32> {
    let me = std::process::id();
    let entries = fs::read_dir("/proc").expect("/proc is mounted");
    entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| state_and_parent(name).is_some_and(|(_, parent)| parent == me))
        .filter_map(|name| name.parse().ok())
        .collect()
}

/// The open descriptors of this process, without the one that reads the list.
pub fn descriptors() -> Vec<i32> {
    let entries = fs::read_dir("/proc/self/fd").expect("/proc is mounted");
    let listed: Vec<i32> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    // The descriptor of the listing is closed now, so its link is gone.
    let is_open = |number: &i32| fs::read_link(format!("/proc/self/fd/{number}")).is_ok();
    let mut open: Vec<i32> = listed.into_iter().filter(is_open).collect();
    open.sort_unstable();
    open
}

/// The number of threads of this process.
pub fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("/proc is mounted").count()
}
