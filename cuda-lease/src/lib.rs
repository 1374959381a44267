//! Leases a device of another machine, and runs the same operations on it.
//!
//! [`LeaseBuilder`] requests a [`Lease`] and opens its device. An operation of `cuda-async` runs on the lease by
//! `.on(&lease)`, or on its streams: a leased device is a [`Device`](cuda_core::Device) like any other. The crate
//! `cuda-node` serves leases; its documentation has a program with a node and a lease.
//!
//! A *stateless submit* runs one kernel, with its input in and its output back in one round trip:
//!
//! - [`Lease::map_slice`] and [`Lease::map_slice_blocking`] run a kernel as a function of a slice.
//! - [`Lease::submit`] and [`Lease::submit_job`] run a [`Job`]: a kernel, its launch shape, arguments and input.
//! - [`burst`] runs a job once for each of many inputs, on several leases.
//!
//! [`NodeClient`] sends requests without a session: the inventory, stateless submits, and leases that outlive the
//! connection ([`DetachedLease`]).
//!
//! Lowest first, the modules are [`wire`] (frames and messages), [`session`] (numbering and resumption), [`authority`]
//! (TLS and tokens), `datagrams` (their memory), `transport` (the QUIC settings that client and node share) and `client`.

pub mod authority;
mod client;
mod datagrams;
#[cfg(feature = "server")]
#[doc(hidden)]
pub mod internals;
pub mod session;
mod transport;
pub mod wire;

pub use client::{DetachedLease, Job, Lease, LeaseBuilder, NodeClient, Submit, Submitted, burst};
pub use cuda_core::protocol::Status;
pub use wire::{DeviceEntry, Exclusivity, LeaseEntry, TraceContext};
