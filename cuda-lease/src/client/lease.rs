//! A lease: a device of a node, for a time.

use std::{ops::Deref, sync::Arc, time::Duration};

use bytes::Bytes;
use cuda_core::{Device, Element, LaunchConfig, Result};

use super::{
    connection::LeaseConnection,
    link::Link,
    submit::{Job, Submit},
};
use crate::wire::TraceContext;

/// The right to memory and time on a device of a node. The lease ends when the `Lease` and every clone of its
/// [`Device`] are dropped, or when it expires.
///
/// A `Lease` dereferences to its device, so it can be used wherever a `&Device` is.
pub struct Lease {
    device: Device,
    connection: Arc<LeaseConnection>,
    link: Arc<Link>,
}

impl Lease {
    pub(super) fn new(device: Device, connection: Arc<LeaseConnection>, link: Arc<Link>) -> Self {
        Self { device, connection, link }
    }

    /// Returns the leased device. Every operation of `cuda-async` runs on it.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// let stream = lease.device().new_stream()?; // as of a local device
    /// assert_eq!(lease.device().info().memory, 1 << 20);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the id of the lease at its node.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// println!("lease {} of {}", lease.id(), lease.device().info().address);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn id(&self) -> u64 {
        self.connection.grant.lease
    }

    /// Returns the token that gives access to the lease, for another program of the same client.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// let token = lease.token(); // `NodeClient::submit` takes it, in another program of this client
    /// assert!(!token.is_empty());
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn token(&self) -> Bytes {
        self.connection.grant.token()
    }

    /// Returns the trace of the lease. The spans of the lease, in this program and on the node, have its id as a field.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// assert!(lease.trace().is_some()); // search the logs of the node for its id
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn trace(&self) -> Option<TraceContext> {
        self.connection.trace
    }

    /// Returns the generation of the lease: 1, and one more with each renewal.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// assert_eq!(lease.generation(), 1);
    /// lease.renew_blocking(60)?;
    /// assert_eq!(lease.generation(), 2);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn generation(&self) -> u32 {
        self.connection.grant.generation()
    }

    /// Returns the time until the lease expires.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// assert!(lease.expires_in().as_secs() <= 60);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn expires_in(&self) -> Duration {
        self.connection.grant.expires_in()
    }

    /// Renews the lease: it expires `lease_secs` seconds from now. Work in flight is not disturbed. Blocks until the
    /// node replies.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// lease.renew_blocking(120)?;
    /// assert!(lease.expires_in().as_secs() > 60);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Remote`](cuda_core::Error::Remote) if the node refuses, or the error that ended the lease.
    /// [`Error::Misuse`](cuda_core::Error::Misuse) inside a waker of the leased device.
    pub fn renew_blocking(&self, lease_secs: u32) -> Result<()> {
        self.check_thread()?;
        let reply = self.connection.request_renewal(lease_secs)?;
        self.connection.renewed(self.connection.connection.channel.wait(reply)?)
    }

    /// Checks that the calling thread is not the thread of the connection.
    ///
    /// # Errors
    /// [`Error::Misuse`](cuda_core::Error::Misuse) on that thread, as inside a waker.
    pub(super) fn check_thread(&self) -> Result<()> {
        self.connection.connection.channel.check_thread()
    }

    /// Renews the lease without blocking the calling thread: it expires `lease_secs` seconds from now.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(cuda_core::Error::other)?;
    /// # runtime.block_on(async {
    /// lease.renew(120).await?;
    /// assert!(lease.expires_in().as_secs() > 60);
    /// # Ok::<(), cuda_core::Error>(())
    /// # })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Remote`](cuda_core::Error::Remote) if the node refuses, or the error that ended the lease.
    pub async fn renew(&self, lease_secs: u32) -> Result<()> {
        let reply = self.connection.request_renewal(lease_secs)?;
        self.connection.renewed(reply.await)
    }

    /// Creates a stateless submit, which runs the kernel `kernel` of a PTX text once. The input and the output travel
    /// in one round trip. The kernel gets a pointer to device memory of the lease, its *region*, and then the
    /// arguments. See [`Job`].
    ///
    /// A submit does not use the session of the lease. It runs on a device handle of its own, and is not ordered with
    /// the work of the session.
    ///
    /// ```standalone_crate
    /// use cuda_cpu::CpuProvider;
    /// use cuda_lease::LeaseBuilder;
    /// use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    ///
    /// let device = DeviceOptions::in_process(CpuProvider::default());
    /// let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    ///
    /// # let ptx = include_str!("../../../kernels/iota.ptx");
    /// // iota(f32* region, u32 n): region[i] = i + 1
    /// let done = lease.submit("iota", ptx).grid(1).block(256).arg(&256u32).max_output(1024).launch_blocking()?;
    /// let values: Vec<f32> = done.output_as()?;
    /// assert_eq!((values[0], values[255]), (1.0, 256.0));
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn submit(&self, kernel: impl Into<String>, ptx: impl Into<String>) -> Submit<'_> {
        self.submit_job(Job::new(kernel, ptx))
    }

    /// Creates a stateless submit of a job.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// use cuda_lease::Job;
    /// # let ptx = ".version 7.0 .target sm_70 .address_size 64 .visible .entry nothing(.param .u64 region) { ret; }";
    /// let job = Job::new("nothing", ptx).grid(1).block(32); // for several leases
    /// lease.submit_job(job.clone()).launch_blocking()?;
    /// lease.submit_job(job).launch_blocking()?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn submit_job(&self, job: Job) -> Submit<'_> {
        let LeaseConnection { connection, grant, trace } = &*self.connection;
        let current = grant.clone();
        job.with_lease(&connection.channel, grant.lease, move || current.token(), *trace)
    }

    /// Runs a kernel as a function from a slice to a `Vec` of the same length. The kernel gets a pointer to the values
    /// and their number, `kernel(T* values, u32 n)`, and changes the values in place. The launch has at least one
    /// thread per value, in blocks of 256. Blocks the calling thread. An empty slice launches nothing.
    ///
    /// ```standalone_crate
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// # let ptx = include_str!("../../../kernels/iota.ptx");
    /// // square(f32* values, u32 n): values[i] = values[i] * values[i]
    /// let squares = lease.map_slice_blocking("square", ptx, &[1f32, 2.0, 3.0])?;
    /// assert_eq!(squares, [1.0, 4.0, 9.0]);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`Submit::launch_blocking`]. A slice has at most 64 MiB.
    pub fn map_slice_blocking<T: Element>(
        &self,
        kernel: impl Into<String>,
        ptx: impl Into<String>,
        values: &[T],
    ) -> Result<Vec<T>> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        self.mapping(kernel.into(), ptx.into(), values).launch_blocking()?.output_as()
    }

    /// Runs a kernel as a function of a slice, as [`map_slice_blocking`](Self::map_slice_blocking) does, on any
    /// executor and without blocking the calling thread.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// # let ptx = ".version 7.0 .target sm_70 .address_size 64 .visible .entry same(.param .u64 values, .param .u32 n) { ret; }";
    /// # let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(cuda_core::Error::other)?;
    /// # runtime.block_on(async {
    /// let values = lease.map_slice("same", ptx, &[1f32, 2.0]).await?; // a kernel that changes nothing
    /// assert_eq!(values, [1.0, 2.0]);
    /// # Ok::<(), cuda_core::Error>(())
    /// # })?;
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// The errors of [`map_slice_blocking`](Self::map_slice_blocking).
    pub async fn map_slice<T: Element>(
        &self,
        kernel: impl Into<String>,
        ptx: impl Into<String>,
        values: &[T],
    ) -> Result<Vec<T>> {
        if values.is_empty() {
            return Ok(Vec::new());
        }
        self.mapping(kernel.into(), ptx.into(), values).launch().await?.output_as()
    }

    fn mapping<T: Element>(&self, kernel: String, ptx: String, values: &[T]) -> Submit<'_> {
        // More values than a `u32` are beyond the limit of an input, which the launch checks.
        let length = u32::try_from(values.len()).unwrap_or(u32::MAX);
        let bytes = size_of_val(values) as u64;
        let config = LaunchConfig::for_num_elems(values.len());
        self.submit(kernel, ptx).config(config).input(values).arg(&length).max_output(bytes)
    }

    /// Returns the number of flights of commands so far. A flight consists of all commands that this client sends
    /// before the next bytes of the node arrive, so a pipeline that is sent in one flight takes one round trip.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// let before = lease.flights();
    /// lease.new_stream()?; // a command without a reply
    /// assert!(lease.flights() >= before);
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn flights(&self) -> u64 {
        self.link.flights()
    }

    /// Ends the lease now. Work in flight is lost, and its futures fail.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// lease.free(); // the node gets the memory back soon
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn free(self) {
        self.connection.connection.end();
    }

    /// Ends the lease now, as [`free`](Self::free) does, and blocks the calling thread until the node has begun to end the
    /// lease: at most one second, or about five if the connection is lost. The node has the memory back when the worker of
    /// the lease has ended, usually a fraction of a second later. A request that needs this memory can
    /// [wait](crate::LeaseBuilder::wait) for it. Call this method in a program that exits right after its last operation.
    /// Without this call, the node keeps the lease of such a program for up to 15 seconds.
    ///
    /// ```
    /// # use cuda_cpu::CpuProvider;
    /// # use cuda_lease::LeaseBuilder;
    /// # use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};
    /// # let device = DeviceOptions::in_process(CpuProvider::default());
    /// # let node = Node::start(NodeOptions::loopback(vec![device]))?;
    /// # let lease = LeaseBuilder::new(node.address().to_string()).min_vram(1 << 20).acquire_blocking()?;
    /// lease.close(); // the program can exit now
    /// # Ok::<(), cuda_core::Error>(())
    /// ```
    pub fn close(self) {
        self.connection.connection.close();
    }
}

impl Deref for Lease {
    type Target = Device;

    fn deref(&self) -> &Device {
        &self.device
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut f = f.debug_struct("Lease");
        f.field("id", &self.id()).field("device", &self.device.info().address);
        f.finish_non_exhaustive()
    }
}
