//! The kernels that the suite launches, wrapped as operations.

use std::sync::OnceLock;

use cuda_async::{
    Device, DeviceBuffer, DeviceOp, Function, LaunchConfig,
    kernel::{KernelArg, Returned},
    launch,
    memory::BufferSource,
    zeros,
};

use crate::{devices::cuda, modules::load_ptx};

/// The kernels of one device.
#[derive(Clone)]
pub struct Kernels {
    vecadd: Function,
    scale: Function,
    add_scalar: Function,
    spin: Function,
}

pub type Floats = DeviceBuffer<f32>;

impl Kernels {
    /// Loads the kernels; on the GPU that the tests share, once. There a load waits for the running kernels of every
    /// other test, and their launches wait with it.
    pub fn load(device: &Device) -> Self {
        static SHARED: OnceLock<Kernels> = OnceLock::new();
        if device.info().address.starts_with("cuda") && cuda().is_some_and(|gpu| gpu == *device) {
            return SHARED.get_or_init(|| Self::load_anew(device)).clone();
        }
        Self::load_anew(device)
    }

    fn load_anew(device: &Device) -> Self {
        let function =
            |ptx: &str, name: &str| load_ptx(device, ptx).unwrap().function(name).unwrap();
        let basic = include_str!("../../../kernels/basic.ptx");
        Self {
            vecadd: function(include_str!("../../../kernels/vecadd.ptx"), "vecadd"),
            scale: function(basic, "scale"),
            add_scalar: function(basic, "add_scalar"),
            spin: function(include_str!("../../../kernels/spin.ptx"), "spin"),
        }
    }

    /// `a + b`, element by element.
    pub fn add<A, B>(&self, a: A, b: B) -> impl DeviceOp<Output = Floats> + use<A, B>
    where
        A: BufferSource<Element = f32> + KernelArg,
        B: BufferSource<Element = f32> + KernelArg,
    {
        let (n, kernel) = (a.as_slice().len(), self.vecadd.clone());
        zeros::<f32>(n)
            .then(move |c| {
                let config = LaunchConfig::for_num_elems(n);
                // SAFETY: reads a and b and writes c, all of n elements.
                unsafe { launch(&kernel, config, (Returned(a), Returned(b), c, n as u32)) }
            })
            .map(|(_, _, c)| c)
    }

    /// `x * factor`, in place.
    pub fn scale(&self, x: Floats, factor: f32) -> impl DeviceOp<Output = Floats> + use<> {
        let n = x.len() as u32;
        // SAFETY: reads and writes x, of n elements.
        unsafe { launch(&self.scale, LaunchConfig::for_num_elems(n), (x, factor, n)) }
    }

    /// `x + term`, in place.
    pub fn add_scalar(&self, x: Floats, term: f32) -> impl DeviceOp<Output = Floats> + use<> {
        let n = x.len() as u32;
        // SAFETY: reads and writes x, of n elements.
        unsafe { launch(&self.add_scalar, LaunchConfig::for_num_elems(n), (x, term, n)) }
    }

    /// A slow kernel: `n` words, each the end of a sequence of `iterations` steps.
    pub fn spin(
        &self,
        out: DeviceBuffer<u32>,
        iterations: u32,
    ) -> impl DeviceOp<Output = DeviceBuffer<u32>> + use<> {
        let n = out.len() as u32;
        // SAFETY: writes out, of n elements.
        unsafe { launch(&self.spin, LaunchConfig::for_num_elems(n), (out, 1u32, iterations, n)) }
    }
}

/// Computes the result of [`Kernels::spin`] on the host.
pub fn spun(n: u32, iterations: u32) -> Vec<u32> {
    let step = |state: u32| state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    (0..n).map(|i| (0..iterations).fold(1 + i, |state, _| step(state))).collect()
}
