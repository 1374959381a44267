//! Graphs by plain driver calls, for comparison. See the rules of [`raw`](crate::raw). Graphs are never destroyed.

use std::{ffi::c_void, ptr};

use cudarc::driver::sys;

use crate::raw::{LEN, Lane, check};

/// An instantiated graph of kernels.
pub struct RawGraph<'a> {
    lane: &'a Lane<'a>,
    executable: sys::CUgraphExec,
    nodes: Vec<sys::CUgraphNode>,
}

impl<'a> RawGraph<'a> {
    /// A chain of launches of `scale`.
    pub fn chain(lane: &'a Lane<'a>, launches: usize) -> Self {
        Self::new(lane, launches, true, |run| scale(lane, 1.0, run))
    }

    /// Launches of `timed` without an order between them.
    pub fn branches(lane: &'a Lane<'a>, launches: usize, nanos: u32) -> Self {
        Self::new(lane, launches, false, |run| {
            let mut params = [ptr::from_ref(&lane.x) as *mut c_void, ptr::from_ref(&nanos) as _];
            run(&kernel(lane.raw.timed, [1, 32], &mut params));
        })
    }

    fn new(
        lane: &'a Lane<'a>,
        launches: usize,
        in_order: bool,
        with: impl Fn(&mut dyn FnMut(&sys::CUDA_KERNEL_NODE_PARAMS)),
    ) -> Self {
        let mut graph = ptr::null_mut();
        // SAFETY: writes one handle.
        check(unsafe { sys::cuGraphCreate(&mut graph, 0) });
        let mut nodes: Vec<sys::CUgraphNode> = Vec::new();
        for _ in 0..launches {
            let before: Vec<_> = nodes.last().copied().filter(|_| in_order).into_iter().collect();
            let mut node = ptr::null_mut();
            with(&mut |params| {
                // SAFETY: the graph and the nodes before exist; the driver copies the parameters.
                check(unsafe {
                    let (first, count) = (before.as_ptr(), before.len());
                    sys::cuGraphAddKernelNode_v2(&mut node, graph, first, count, params)
                });
            });
            nodes.push(node);
        }
        let mut executable = ptr::null_mut();
        // SAFETY: the graph exists; writes one handle.
        check(unsafe { sys::cuGraphInstantiateWithFlags(&mut executable, graph, 0) });
        Self { lane, executable, nodes }
    }

    /// Gives the first `changed` nodes of a chain another factor.
    pub fn change(&self, changed: usize, factor: f32) {
        for node in &self.nodes[..changed] {
            scale(self.lane, factor, &mut |params| {
                // SAFETY: the executable exists, and this is a node of its graph; the driver copies the parameters.
                check(unsafe {
                    sys::cuGraphExecKernelNodeSetParams_v2(self.executable, *node, params)
                });
            });
        }
    }

    /// Launches the graph.
    pub fn launch(&self) {
        // SAFETY: the executable and the stream exist.
        check(unsafe { sys::cuGraphLaunch(self.executable, self.lane.stream) });
    }
}

fn scale(lane: &Lane<'_>, factor: f32, run: &mut dyn FnMut(&sys::CUDA_KERNEL_NODE_PARAMS)) {
    let n = LEN as u32;
    let x = ptr::from_ref(&lane.x) as *mut c_void;
    let mut params = [x, ptr::from_ref(&factor) as _, ptr::from_ref(&n) as _];
    run(&kernel(lane.raw.scale, [LEN as u32 / 256, 256], &mut params));
}

fn kernel(
    function: sys::CUfunction,
    [grid, block]: [u32; 2],
    params: &mut [*mut c_void],
) -> sys::CUDA_KERNEL_NODE_PARAMS {
    sys::CUDA_KERNEL_NODE_PARAMS {
        func: function,
        gridDimX: grid,
        gridDimY: 1,
        gridDimZ: 1,
        blockDimX: block,
        blockDimY: 1,
        blockDimZ: 1,
        sharedMemBytes: 0,
        kernelParams: params.as_mut_ptr(),
        extra: ptr::null_mut(),
        kern: ptr::null_mut(),
        ctx: ptr::null_mut(),
    }
}
