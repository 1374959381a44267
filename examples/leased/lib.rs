//! A pipeline that runs on any device, and a node to lease one from. The program is in `main.rs`.

use std::ops::ControlFlow::{Break, Continue};

use cuda_async::{iterate, prelude::*};
use cuda_cpu::CpuProvider;
use cuda_node::supervisor::{DeviceOptions, Node, NodeOptions};

cuda_async::kernels! {
    /// The kernels of the pipeline, loaded on a device.
    #[ptx = "../../kernels/basic.ptx"]
    pub struct Kernels;

    /// Multiplies `n` values by `a`.
    ///
    /// # Safety
    /// `x` must have at least `n` elements.
    unsafe fn scale(x: &mut [f32], a: f32, n: u32);

    /// Adds `a` to `n` values.
    ///
    /// # Safety
    /// `x` must have at least `n` elements.
    unsafe fn add_scalar(x: &mut [f32], a: f32, n: u32);
}

/// Returns an operation that computes the balance of each account after some years. Every year an account earns 3% and
/// receives 100. The accounts are uploaded, each year launches two kernels, and the balances are read back.
pub fn balances(
    kernels: Kernels,
    accounts: &[f32],
    years: u32,
) -> impl DeviceOp<Output = Vec<f32>> {
    let n = accounts.len();
    let config = LaunchConfig::for_num_elems(n);
    let year = move |accounts: DeviceBuffer<f32>| {
        let deposit = kernels.clone();
        // SAFETY: `accounts` has `n` elements, here and below.
        unsafe { kernels.scale(config, accounts, 1.03, n as u32) }
            .then(move |accounts| unsafe { deposit.add_scalar(config, accounts, 100.0, n as u32) })
    };
    h2d(accounts.to_vec())
        .then(move |accounts| {
            iterate((accounts, years), move |(accounts, left)| {
                year(accounts).map(move |accounts| match left {
                    0 | 1 => Break(accounts),
                    _ => Continue((accounts, left - 1)),
                })
            })
        })
        .then(to_host)
}

/// Starts a node in this process that serves a CPU device on a free port of this machine. The node stops when it is
/// dropped. On a machine with a GPU, start the program `cuda-node --device cuda:0` instead.
///
/// # Errors
/// The error of the device or of the network.
pub fn start_node() -> cuda_async::Result<Node> {
    let device = DeviceOptions::in_process(CpuProvider::default());
    Node::start(NodeOptions::loopback(vec![device]))
}
