//! Names of variables, for faults.

use std::fmt;

use super::fault::FaultSpace;
use crate::memory::count;

/// The variable of the PTX that contains an address or is nearest to it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearVariable {
    /// The variable's name in the PTX. For a variable inside a function it is mangled with the function's name.
    pub name: String,
    /// The variable's address. In shared memory it is an offset.
    pub address: u64,
    /// Its size in bytes.
    pub size: u64,
    /// Distance in bytes from the variable's first byte to the address. It is negative before the variable, and at
    /// least the variable's size behind it.
    pub offset: i64,
}

impl NearVariable {
    /// Returns the name in the source, if it can be derived from the PTX name. Compilers name a variable `tile` of a
    /// kernel `k` similar to `_ZZ1kE4tile`.
    pub fn source_name(&self) -> &str {
        local_name(&self.name).unwrap_or(&self.name)
    }
}

/// Returns the last component of a mangled local name: `E`, the length, the name, and perhaps `_` and a number.
fn local_name(mangled: &str) -> Option<&str> {
    let inside = mangled.strip_prefix("_ZZ")?;
    inside.rmatch_indices('E').find_map(|(at, _)| {
        let rest = &inside[at + 1..];
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let length: usize = rest[..digits].parse().ok()?;
        let name = rest[digits..].get(..length).filter(|name| !name.is_empty())?;
        let behind = &rest[digits + length..];
        let number = behind.strip_prefix('_').unwrap_or("0");
        number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_').then_some(name)
    })
}

impl fmt::Display for NearVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, Self { address, size, offset, .. }) = (self.source_name(), self);
        if *size == 0 {
            return write!(f, "`{name}` is dynamic shared memory, and the launch has none");
        }
        let (before, after) = (offset.unsigned_abs(), offset.saturating_sub_unsigned(*size));
        match after {
            _ if *offset < 0 => write!(f, "{} before ", count(before))?,
            // Distances are measured from the last byte, as for allocations: the first byte past the end is 1 byte
            // after.
            after if after >= 0 => write!(f, "{} after ", count(after.unsigned_abs() + 1))?,
            _ => write!(f, "at byte {offset} of ")?,
        }
        write!(f, "`{name}` ({} at {address:#x})", count(*size))
    }
}

/// A variable of global, constant or shared memory.
#[derive(Debug, Clone)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) space: FaultSpace,
    pub(crate) address: u64,
    /// Size in bytes. `None` for the whole dynamic shared memory.
    pub(crate) size: Option<u64>,
    /// The kernel whose shared memory contains it, if it is only one.
    pub(crate) kernel: Option<u32>,
}

/// The variables of a module.
#[derive(Debug, Default)]
pub(crate) struct Variables(pub(crate) Vec<Variable>);

/// Maximum distance at which a variable is named, in bytes. Farther variables explain nothing.
const NEAR: u64 = 4096;

impl Variables {
    /// Returns the variable that contains the address, or else the nearest one. `dynamic` is the kernel's dynamic
    /// shared memory in bytes.
    pub(crate) fn near(
        &self,
        kernel: u32,
        space: FaultSpace,
        address: u64,
        dynamic: u64,
    ) -> Option<NearVariable> {
        let seen = |v: &&Variable| v.space == space && v.kernel.is_none_or(|own| own == kernel);
        let distance = |v: &Variable| match address.checked_sub(v.address) {
            None => v.address - address,
            // The first byte past the end has distance 1.
            Some(at) => at.saturating_add(1).saturating_sub(v.size.unwrap_or(dynamic)),
        };
        let near = self.0.iter().filter(seen).min_by_key(|v| distance(v))?;
        // A wild pointer is not related to any global variable.
        if space == FaultSpace::Global && distance(near) > NEAR {
            return None;
        }
        Some(NearVariable {
            name: near.name.clone(),
            address: near.address,
            size: near.size.unwrap_or(dynamic),
            offset: address.wrapping_sub(near.address) as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variable(name: &str, address: u64, size: Option<u64>, kernel: Option<u32>) -> Variable {
        Variable { name: name.into(), space: FaultSpace::Shared, address, size, kernel }
    }

    #[test]
    fn reads_names_of_local_variables() {
        for (mangled, name) in [
            ("_ZZ10race_blockE4tile", Some("tile")),
            ("_ZZN3lib6kernelIfLi4EEEvPT_iE5cache_0", Some("cache")),
            ("_ZZ1kE3EEE", Some("EEE")),
            ("_ZZ1kE1x_12", Some("x")),
            ("tile", None),
            ("_Z1kv", None),
            ("_ZZ1kE9tile", None),
            ("_ZZE", None),
            ("_ZZ1kE4tilé", None),
            ("_ZZ1kE99999999999999999999x", None),
        ] {
            assert_eq!(local_name(mangled), name, "{mangled}");
        }
    }

    #[test]
    fn names_what_is_at_an_address_or_next_to_it() {
        let variables = Variables(vec![
            variable("a", 0, Some(40), None),
            variable("b", 48, Some(16), Some(1)),
            variable("c", 48, Some(8), Some(2)),
            variable("rest", 64, None, None),
        ]);
        let near = |kernel, at| variables.near(kernel, FaultSpace::Shared, at, 32).unwrap();
        assert_eq!(near(1, 4).to_string(), "at byte 4 of `a` (40 bytes at 0x0)");
        assert_eq!(near(1, 40).to_string(), "1 byte after `a` (40 bytes at 0x0)");
        assert_eq!(near(1, 44).to_string(), "4 bytes before `b` (16 bytes at 0x30)");
        assert_eq!(near(2, 50).name, "c");
        assert_eq!(near(2, 70).to_string(), "at byte 6 of `rest` (32 bytes at 0x40)");
        assert!(variables.near(1, FaultSpace::Global, 4, 0).is_none());
    }
}
