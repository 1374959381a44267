//! Features that some devices do not have.

use std::fmt;

macro_rules! features {
    ($($(#[$doc:meta])* $name:ident = $text:literal $(, $advice:literal)?;)*) => {
        /// The feature that a device lacks, in [`Error::Unsupported`](crate::Error::Unsupported).
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Feature {
            $($(#[$doc])* $name,)*
        }

        impl Feature {
            /// Returns the action that helps.
            pub(super) fn advice(self) -> &'static str {
                match self {
                    $($(Self::$name => $advice,)?)*
                    _ => "use another device, or do without it",
                }
            }
        }

        impl fmt::Display for Feature {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

features! {
    /// A memory pool beside the default one.
    MemoryPool = "a memory pool beside the default one";
    /// A memory pool of managed memory.
    ManagedPool = "a pool of managed memory", "update the driver to CUDA 13.0 or newer, or use a pool of device memory";
    /// A buffer that grows in place.
    GrowableBuffer = "a buffer that grows";
    /// A launch of clusters of blocks.
    Cluster = "a cluster of blocks";
    /// A launch with attributes, such as clusters or a cooperative grid.
    LaunchAttributes = "a launch with attributes", "update the node";
    /// A launch with attributes of a kernel that cudarc has loaded.
    ForeignLaunchAttributes = "a launch with attributes of a kernel of cudarc", "load the kernel with `load_ptx`";
    /// A loop inside a graph.
    GraphLoop = "a loop inside a graph";
    /// Work of foreign code, such as cuBLAS or a caller's driver calls.
    ForeignWork = "work of foreign code";
    /// A direct copy to the memory of another device.
    PeerCopy = "a direct copy to another device", "copy through the host";
    /// Machine code that the driver loads only from CUDA 12.4 on.
    MachineCode = "a cubin with a driver older than CUDA 12.4", "load its PTX, which any driver loads, or update the driver";
    /// The device's clock.
    Timestamp = "the device's time";
    /// A reset after a fault.
    Reset = "a reset", "restart the process: after a fault it cannot use CUDA any more";
    /// Work that no graph can contain: a copy to the host or to another device, or a graph.
    WorkInGraph = "a graph with copies to the host or to another device, or with a graph";
    /// Work that runs only inside a graph: a loop, or captured work.
    WorkOutsideGraph = "a loop or captured work outside a graph";
    /// Work of foreign code that a backend of another kind has captured.
    CapturedElsewhere = "work that another device has captured";
    /// A kind of [`Work`](crate::protocol::Work) that the backend does not know.
    Work = "this kind of work";
    /// A [`Control`](crate::protocol::Control) that the backend does not know.
    Control = "this control";
    /// A [`Request`](crate::protocol::Request) that the backend does not know.
    Request = "this request";
    /// A [`Reply`](crate::protocol::Reply) that cannot cross the link to the device.
    Reply = "this reply of a device";
    /// A kind of [`ModuleImage`](crate::protocol::ModuleImage) that the backend does not know.
    ModuleImage = "this kind of module";
    /// A [`PoolChange`](crate::protocol::PoolChange) that the backend does not know.
    PoolChange = "this change of a memory pool";
}
