//! Variables near an address, by name.

use std::fmt;

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

#[cfg(test)]
mod tests {
    use super::*;

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
}
