//! Names of variables, for faults.

use crate::fault::{FaultSpace, NearVariable};

/// A variable of global, constant or shared memory.
#[derive(Debug, Clone)]
pub(crate) struct NamedVariable {
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
pub(crate) struct VariableNames(pub(crate) Vec<NamedVariable>);

/// Maximum distance at which a variable is named, in bytes. Farther variables explain nothing.
const NEAR: u64 = 4096;

impl VariableNames {
    /// Returns the variable that contains the address, or else the nearest one. `dynamic` is the kernel's dynamic
    /// shared memory in bytes.
    pub(crate) fn near(
        &self,
        kernel: u32,
        space: FaultSpace,
        address: u64,
        dynamic: u64,
    ) -> Option<NearVariable> {
        let seen =
            |v: &&NamedVariable| v.space == space && v.kernel.is_none_or(|own| own == kernel);
        let distance = |v: &NamedVariable| match address.checked_sub(v.address) {
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

    fn variable(name: &str, address: u64, size: Option<u64>, kernel: Option<u32>) -> NamedVariable {
        NamedVariable { name: name.into(), space: FaultSpace::Shared, address, size, kernel }
    }

    #[test]
    fn names_what_is_at_an_address_or_next_to_it() {
        let variables = VariableNames(vec![
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
