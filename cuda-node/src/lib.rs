//! Serves leases of the devices of this machine: the program `cuda-node`, and nodes inside of programs.
//!
//! Clients use the crate `cuda-lease`, which also has the parts that both sides share: the wire, sessions, TLS and
//! tokens. Linux only.
//!
//! [`Node`](supervisor::Node) is a node inside of a program:
//!
//! ```
//! use cuda_async::{cuda_cpu::CpuProvider, prelude::*};
//! use cuda_lease::LeaseBuilder;
//! use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
//!
//! let device = DeviceOptions::in_process(CpuProvider::default());
//! let node = Node::start(NodeOptions::loopback(vec![device]))?;
//! let lease = LeaseBuilder::new(node.address().to_string()).acquire_blocking()?;
//! assert_eq!(h2d([1u8, 2]).then(to_host).on(&lease).sync()?, [1, 2]);
//! # Ok::<(), cuda_async::Error>(())
//! ```
//!
//! The modules, lowest first: [`gpu`] lists the GPUs and checks that the memory of an ended worker is free. [`process`]
//! starts, kills and reaps worker processes. [`quotas`] has the limits of tenants. [`leases`] is the lease table, a
//! pure state machine. [`metrics`] counts and measures, and [`status`] serves the figures over HTTP. [`worker`] carries
//! out commands on a device. [`supervisor`] accepts connections, and passes frames between clients and workers. It
//! never uses a device itself.

pub mod gpu;
pub mod leases;
pub mod metrics;
pub mod process;
pub mod quotas;
pub mod status;
pub mod supervisor;
pub mod worker;
