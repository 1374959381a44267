//! The user and the capabilities of a worker.

use std::{fs, io, ops::RangeInclusive, os::unix::fs::MetadataExt as _, path::PathBuf};

use rustix::{
    process::{Gid, Uid, geteuid},
    thread::{CapabilitySet, CapabilitySets, remove_capability_from_bounding_set},
};

/// The capabilities with which root starts, kills and cleans up after workers that are other users.
const OF_ROOT: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER);

/// Whether this process has the capabilities that it needs for workers that are other users.
///
/// Without `CAP_KILL` it could not even end them.
pub(super) fn may_use_uids() -> bool {
    let capabilities = rustix::thread::capabilities(None);
    capabilities.is_ok_and(|sets| sets.effective.contains(OF_ROOT))
}

/// Whether these user ids exist in the user namespace of this process, so that root can become one of them.
pub(super) fn are_mapped(uids: &RangeInclusive<u32>) -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse);
        let (Some(Ok(first)), _, Some(Ok(count))) =
            (numbers.next(), numbers.next(), numbers.next())
        else {
            return false;
        };
        let (first, count): (u64, u64) = (first, count);
        u64::from(*uids.start()) >= first && u64::from(*uids.end()) < first + count
    })
}

/// Whether this process is the user 0 of the machine.
pub(super) fn is_root_of_machine() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    geteuid().is_root() && map.split_whitespace().take(2).eq(["0", "0"])
}

/// Maps the user of the supervisor to itself, if this process is in a user namespace that has no users yet. Returns
/// whether it is.
///
/// # Errors
/// The kernel refuses the map, for example because AppArmor restricts user namespaces.
pub(super) fn map_user((uid, gid): (u32, u32)) -> io::Result<bool> {
    if !fs::read_to_string("/proc/self/uid_map")?.is_empty() {
        return Ok(false);
    }
    // A user may map its group only if it gives up `setgroups`.
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    Ok(true)
}

/// Becomes the user with this id, in the group with the same id. It keeps the groups of `gpus`, device files, that other
/// users cannot open, and no other ones.
///
/// # Errors
/// The process may not do that.
pub(super) fn become_user(uid: u32, gpus: &[PathBuf]) -> io::Result<()> {
    let groups = gpus.iter().filter_map(|gpu| {
        let gpu = fs::metadata(gpu).ok()?;
        let is_for_group = gpu.mode() & 0o066 == 0o060 && gpu.gid() != 0;
        is_for_group.then(|| Gid::from_raw(gpu.gid()))
    });
    let mut groups: Vec<Gid> = groups.collect();
    groups.dedup();
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    Ok(rustix::thread::set_thread_res_uid(user, user, user)?)
}

/// Removes all capabilities from the bounding set, where this process may: no `exec` gives one then. Elsewhere the
/// restriction to no new privileges has the same effect.
pub(super) fn empty_bounding_set() {
    for bit in 0..u64::BITS {
        _ = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << bit));
    }
}

/// Drops all capabilities of this thread.
///
/// # Errors
/// The kernel refuses it.
pub(super) fn drop_capabilities() -> io::Result<()> {
    let none = CapabilitySet::empty();
    rustix::thread::clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}
