//! Launches with attributes, as the driver takes them.

use std::ffi::{c_int, c_uint};

use cuda_core::protocol::{LaunchAttributes, LaunchConfig};

use super::handles::StreamHandle;

/// A `CUlaunchAttributeValue`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(8))]
pub(crate) struct AttributeValue([c_uint; 16]);

const _: () = assert!(size_of::<AttributeValue>() == 64);

impl AttributeValue {
    const fn new(first: [c_uint; 3]) -> Self {
        let mut words = [0; 16];
        (words[0], words[1], words[2]) = (first[0], first[1], first[2]);
        Self(words)
    }
}

/// A `CUlaunchAttribute`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct LaunchAttribute {
    pub(crate) id: c_int,
    padding: c_int,
    pub(crate) value: AttributeValue,
}

const _: () = assert!(size_of::<LaunchAttribute>() == 72);

/// The attributes of one launch, at most three.
pub(crate) type AttributeList = smallvec::SmallVec<[LaunchAttribute; 3]>;

impl LaunchAttribute {
    /// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`.
    const COOPERATIVE: c_int = 2;
    /// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`.
    const CLUSTER: c_int = 4;
    /// `CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION`.
    const DEPENDENT: c_int = 6;

    /// The driver's form of the attributes.
    pub(crate) fn list(attributes: LaunchAttributes) -> AttributeList {
        let one = |id, first| Self { id, padding: 0, value: AttributeValue::new(first) };
        let mut list = AttributeList::new();
        if attributes.is_cooperative() {
            list.push(one(Self::COOPERATIVE, [1, 0, 0]));
        }
        if let Some(cluster) = attributes.cluster_dims() {
            list.push(one(Self::CLUSTER, cluster));
        }
        if attributes.is_dependent() {
            list.push(one(Self::DEPENDENT, [1, 0, 0]));
        }
        list
    }
}

/// A `CUlaunchConfig`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct ExtendedConfig {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared_bytes: c_uint,
    stream: StreamHandle,
    attributes: *const LaunchAttribute,
    count: c_uint,
}

const _: () = assert!(size_of::<ExtendedConfig>() == 56);

impl ExtendedConfig {
    /// The driver's form of a launch. `attributes` stay alive while it is used.
    pub(crate) fn new(
        config: &LaunchConfig,
        stream: StreamHandle,
        attributes: &[LaunchAttribute],
    ) -> Self {
        Self {
            grid: config.grid,
            block: config.block,
            shared_bytes: config.shared_bytes,
            stream,
            attributes: attributes.as_ptr(),
            count: attributes.len() as c_uint,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_driver_ids_and_values() {
        let all = LaunchAttributes::NONE.cluster(4, 2, 1).cooperative().dependent();
        let list = LaunchAttribute::list(all);
        let found: Vec<_> = list
            .iter()
            .map(|attribute| (attribute.id, [0, 1, 2].map(|i| attribute.value.0[i])))
            .collect();
        assert_eq!(found, [(2, [1, 0, 0]), (4, [4, 2, 1]), (6, [1, 0, 0])]);
        assert!(LaunchAttribute::list(LaunchAttributes::NONE).is_empty());
    }
}
