//! The book's programs run as doctests, one item to a chapter.
#![cfg(doctest)]

#[doc = include_str!("../../book/src/first-steps.md")]
struct FirstSteps;

#[doc = include_str!("../../book/src/operations.md")]
struct Operations;

#[doc = include_str!("../../book/src/side-by-side.md")]
struct SideBySide;

#[doc = include_str!("../../book/src/loops.md")]
struct Loops;

#[doc = include_str!("../../book/src/graphs.md")]
struct Graphs;

#[doc = include_str!("../../book/src/graph-cache.md")]
struct GraphCache;

#[doc = include_str!("../../book/src/decoding.md")]
struct Decoding;

#[doc = include_str!("../../book/src/running.md")]
struct Running;

#[doc = include_str!("../../book/src/memory.md")]
struct Memory;

#[doc = include_str!("../../book/src/slices.md")]
struct Slices;

#[cfg(feature = "cudarc")]
#[doc = include_str!("../../book/src/interop.md")]
struct Interop;

#[doc = include_str!("../../book/src/kernels.md")]
struct Kernels;

#[doc = include_str!("../../book/src/cuda-sources.md")]
struct CudaSources;
#[doc = include_str!("../../book/src/launches.md")]
struct Launches;

#[doc = include_str!("../../book/src/cpu-device.md")]
struct CpuDevice;

#[doc = include_str!("../../book/src/debugging.md")]
struct Debugging;

#[doc = include_str!("../../book/src/plans.md")]
struct Plans;

#[doc = include_str!("../../book/src/cuda-run.md")]
struct CudaRun;

#[doc = include_str!("../../book/src/how-it-works.md")]
struct HowItWorks;

#[doc = include_str!("../../book/src/performance.md")]
struct Performance;

#[cfg(feature = "lease")]
#[doc = include_str!("../../book/src/leases.md")]
struct Leases;

#[cfg(feature = "lease")]
#[doc = include_str!("../../book/src/lease-security.md")]
struct LeaseSecurity;

#[cfg(feature = "lease")]
#[doc = include_str!("../../book/src/remote-functions.md")]
struct RemoteFunctions;

#[cfg(feature = "lease")]
#[doc = include_str!("../../book/src/nodes.md")]
struct Nodes;
