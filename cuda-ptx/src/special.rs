//! The special registers of PTX.

use std::fmt;

use crate::table::{NOTHING, Needs, Target};
use crate::words::{ScalarType, words};

words! {
    /// The name of a special register, without its `%`.
    pub enum SpecialName {
        AggrSmemSize = "aggr_smem_size",
        Clock = "clock",
        Clock64 = "clock64",
        ClockHi = "clock_hi",
        ClusterCtaid = "cluster_ctaid",
        ClusterCtarank = "cluster_ctarank",
        ClusterNctaid = "cluster_nctaid",
        ClusterNctarank = "cluster_nctarank",
        Clusterid = "clusterid",
        Ctaid = "ctaid",
        CurrentGraphExec = "current_graph_exec",
        DynamicSmemSize = "dynamic_smem_size",
        Globaltimer = "globaltimer",
        GlobaltimerHi = "globaltimer_hi",
        GlobaltimerLo = "globaltimer_lo",
        Gridid = "gridid",
        IsExplicitCluster = "is_explicit_cluster",
        Laneid = "laneid",
        LanemaskEq = "lanemask_eq",
        LanemaskGe = "lanemask_ge",
        LanemaskGt = "lanemask_gt",
        LanemaskLe = "lanemask_le",
        LanemaskLt = "lanemask_lt",
        Nclusterid = "nclusterid",
        Nctaid = "nctaid",
        Nsmid = "nsmid",
        Ntid = "ntid",
        Nwarpid = "nwarpid",
        ReservedSmemOffset0 = "reserved_smem_offset_0",
        ReservedSmemOffset1 = "reserved_smem_offset_1",
        ReservedSmemOffsetBegin = "reserved_smem_offset_begin",
        ReservedSmemOffsetCap = "reserved_smem_offset_cap",
        ReservedSmemOffsetEnd = "reserved_smem_offset_end",
        Smid = "smid",
        Tid = "tid",
        TotalSmemSize = "total_smem_size",
        Warpid = "warpid",
    }
}

impl SpecialName {
    /// Returns whether the register is a vector of four elements, such as `%tid`.
    pub const fn is_vector(self) -> bool {
        use SpecialName::*;
        matches!(
            self,
            Tid | Ntid | Ctaid | Nctaid | Clusterid | Nclusterid | ClusterCtaid | ClusterNctaid
        )
    }

    /// Returns the type of the register, or of its elements.
    pub const fn ty(self) -> ScalarType {
        use SpecialName::*;
        match self {
            Clock64 | CurrentGraphExec | Globaltimer | Gridid => ScalarType::U64,
            IsExplicitCluster => ScalarType::Pred,
            _ => ScalarType::U32,
        }
    }
}

/// A special register as an operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Special {
    /// A register with a name: `%laneid`. A vector stands for its four elements: `%tid`.
    Named(SpecialName),
    /// An element of a vector, 0 to 3: `%tid.y`.
    Element(SpecialName, u8),
    /// A register that the driver defines: `%envreg0` to `%envreg31`.
    Envreg(u8),
    /// A performance counter of 32 bits: `%pm0` to `%pm7`.
    Pm(u8),
    /// A performance counter of 64 bits: `%pm0_64` to `%pm7_64`.
    Pm64(u8),
}

impl Special {
    /// Returns the special register `name`, with its `%`.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        let bare = name.strip_prefix('%')?;
        if let Some(named) = SpecialName::from_name(bare) {
            return Some(Self::Named(named));
        }
        let below = |digits: &str, count: u8| {
            digits.parse::<u8>().ok().filter(|n| *n < count && n.to_string() == digits)
        };
        if let Some(digits) = bare.strip_prefix("envreg") {
            return below(digits, 32).map(Self::Envreg);
        }
        let digits = bare.strip_prefix("pm")?;
        match digits.strip_suffix("_64") {
            Some(digits) => below(digits, 8).map(Self::Pm64),
            None => below(digits, 8).map(Self::Pm),
        }
    }

    /// Returns the first version of PTX and the first target that have the register, as `ptxas` 13.5 knows them.
    pub(crate) const fn needs(self) -> Needs {
        use SpecialName::*;
        let (version, number) = match self {
            Self::Named(name) | Self::Element(name, _) => match name {
                Tid | Ntid | Ctaid | Nctaid | Clock | Gridid => return NOTHING,
                Laneid | Warpid | Smid => ((1, 3), 0),
                Clock64 | LanemaskEq | LanemaskGe | LanemaskGt | LanemaskLe | LanemaskLt
                | Nsmid | Nwarpid => ((2, 0), 20),
                Globaltimer | GlobaltimerHi | GlobaltimerLo => ((3, 1), 30),
                DynamicSmemSize | TotalSmemSize => ((4, 1), 20),
                ClockHi => ((5, 0), 20),
                ReservedSmemOffset0
                | ReservedSmemOffset1
                | ReservedSmemOffsetBegin
                | ReservedSmemOffsetCap
                | ReservedSmemOffsetEnd => ((7, 6), 80),
                ClusterCtaid | ClusterCtarank | ClusterNctaid | ClusterNctarank | Clusterid
                | Nclusterid | IsExplicitCluster => ((7, 8), 90),
                CurrentGraphExec => ((8, 0), 50),
                AggrSmemSize => ((8, 1), 90),
            },
            Self::Envreg(_) => ((2, 1), 0),
            Self::Pm(0..4) => ((1, 3), 0),
            Self::Pm(_) => ((3, 0), 20),
            Self::Pm64(_) => ((4, 0), 50),
        };
        Needs { version, target: Target { number, specific: false } }
    }

    /// Returns whether instructions of 16 bits can read the register. Before PTX 2.0, these registers had 16 bits.
    pub(crate) const fn fits_half(self) -> bool {
        use SpecialName::*;
        matches!(
            self,
            Self::Named(Gridid | Tid | Ntid | Ctaid | Nctaid)
                | Self::Element(Tid | Ntid | Ctaid | Nctaid, _)
        )
    }

    /// Returns the type of the register, or of its elements.
    pub const fn ty(self) -> ScalarType {
        match self {
            Self::Named(name) | Self::Element(name, _) => name.ty(),
            Self::Envreg(_) | Self::Pm(_) => ScalarType::U32,
            Self::Pm64(_) => ScalarType::U64,
        }
    }
}

impl fmt::Display for Special {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "%{}", name.name()),
            Self::Element(name, element) => {
                let letter = ["x", "y", "z", "w"].get(usize::from(*element)).unwrap_or(&"?");
                write!(f, "%{}.{letter}", name.name())
            }
            Self::Envreg(number) => write!(f, "%envreg{number}"),
            Self::Pm(number) => write!(f, "%pm{number}"),
            Self::Pm64(number) => write!(f, "%pm{number}_64"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_names_are_refused() {
        let special = Special::from_name;
        assert_eq!(special("%tid"), Some(Special::Named(SpecialName::Tid)));
        assert_eq!(special("%clock64"), Some(Special::Named(SpecialName::Clock64)));
        assert_eq!(special("%envreg31"), Some(Special::Envreg(31)));
        assert_eq!(special("%pm7_64"), Some(Special::Pm64(7)));
        for name in ["%envreg32", "%envreg01", "%pm8", "%r1", "tid", "%", "WARP_SZ"] {
            assert_eq!(special(name), None, "{name}");
        }
    }

    #[test]
    fn names_round_trip() {
        for name in SpecialName::ALL {
            let special = Special::Named(*name);
            assert_eq!(Special::from_name(&special.to_string()), Some(special));
        }
        for special in [Special::Envreg(7), Special::Pm(0), Special::Pm64(3)] {
            assert_eq!(Special::from_name(&special.to_string()), Some(special));
        }
    }
}
