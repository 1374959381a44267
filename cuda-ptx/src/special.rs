//! The names of the special registers of PTX.

/// Special registers that are vectors, such as `%tid`, with the elements `.x`, `.y`, `.z` and `.w`.
const VECTORS: [&str; 8] = [
    "tid",
    "ntid",
    "ctaid",
    "nctaid",
    "clusterid",
    "nclusterid",
    "cluster_ctaid",
    "cluster_nctaid",
];

const SCALARS: [&str; 29] = [
    "laneid",
    "warpid",
    "nwarpid",
    "smid",
    "nsmid",
    "gridid",
    "is_explicit_cluster",
    "cluster_ctarank",
    "cluster_nctarank",
    "lanemask_eq",
    "lanemask_le",
    "lanemask_lt",
    "lanemask_ge",
    "lanemask_gt",
    "clock",
    "clock_hi",
    "clock64",
    "globaltimer",
    "globaltimer_lo",
    "globaltimer_hi",
    "total_smem_size",
    "aggr_smem_size",
    "dynamic_smem_size",
    "current_graph_exec",
    "reserved_smem_offset_begin",
    "reserved_smem_offset_end",
    "reserved_smem_offset_cap",
    "reserved_smem_offset_0",
    "reserved_smem_offset_1",
];

/// The constant that is used like a special register, without a `%`.
pub(crate) const WARP_SIZE: &str = "WARP_SZ";

/// Returns the special register `name` without its `%`, or `None` if there is no such register.
pub(crate) fn special(name: &str) -> Option<&str> {
    if name == WARP_SIZE {
        return Some(name);
    }
    let bare = name.strip_prefix('%')?;
    let known = SCALARS.contains(&bare) || is_vector(bare) || is_numbered(bare);
    known.then_some(bare)
}

/// Whether `bare`, a name without its `%`, is a vector such as `tid`.
pub(crate) fn is_vector(bare: &str) -> bool {
    VECTORS.contains(&bare)
}

/// Whether `bare` is one of `envreg0` to `envreg31`, `pm0` to `pm7` or `pm0_64` to `pm7_64`.
fn is_numbered(bare: &str) -> bool {
    let below = |digits: &str, count: u32| {
        digits.parse::<u32>().is_ok_and(|n| n < count && n.to_string() == digits)
    };
    if let Some(digits) = bare.strip_prefix("envreg") {
        return below(digits, 32);
    }
    bare.strip_prefix("pm")
        .is_some_and(|digits| below(digits.strip_suffix("_64").unwrap_or(digits), 8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused() {
        assert_eq!(special("%tid"), Some("tid"));
        assert_eq!(special("%clock64"), Some("clock64"));
        assert_eq!(special("%envreg31"), Some("envreg31"));
        assert_eq!(special("%pm7_64"), Some("pm7_64"));
        assert_eq!(special("WARP_SZ"), Some("WARP_SZ"));
        for name in ["%envreg32", "%envreg01", "%pm8", "%r1", "tid", "%", "%WARP_SZ"] {
            assert_eq!(special(name), None, "{name}");
        }
    }
}
