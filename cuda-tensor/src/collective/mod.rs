//! Collectives: operations on tensors of several devices at once.
//!
//! ```
//! use cuda_tensor::{Tensor, TensorOps, collective::{Communicator, Reduction}};
//! use cuda_async::{cuda_cpu::CpuProvider, prelude::*};
//!
//! // Two devices of this machine; `open_blocking("cuda:0")?` and `open_blocking("cuda:1")?` where there are GPUs.
//! let devices = [Device::open(&CpuProvider::default(), 0)?, Device::open(&CpuProvider::default(), 0)?];
//! let group = Communicator::new(&devices)?;
//!
//! let gradients = vec![
//!     Tensor::from_host(vec![1.0f32, 2.0], 2).on(&devices[0]),
//!     Tensor::from_host(vec![10.0f32, 20.0], 2).on(&devices[1]),
//! ];
//! let sums = cuda_async::join_all(gradients).then(move |x| group.all_reduce(x, Reduction::Sum)).sync()?;
//! for (sum, device) in sums.into_iter().zip(&devices) {
//!     assert_eq!(sum.to_host_vec().on(device).sync()?, [11.0, 22.0]);
//! }
//! # Ok::<(), cuda_async::Error>(())
//! ```

// `communicator` checks the tensors, and `plain` or `nccl` moves them. This folder uses the tensors, and
// `libraries` where the feature `cudarc` is on. Programs call it.

mod communicator;
#[cfg(feature = "cudarc")]
mod nccl;
mod plain;

pub use communicator::Communicator;

use crate::Binary;

/// The function that combines the elements of several tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// Their sum. Integers wrap.
    Sum,
    /// Their product. Integers wrap.
    Product,
    /// The largest one. If one is NaN, the result is NaN or the largest number.
    Max,
    /// The smallest one. If one is NaN, the result is NaN or the smallest number.
    Min,
}

impl Reduction {
    fn of_two(self) -> Binary {
        match self {
            Self::Sum => Binary::Add,
            Self::Product => Binary::Mul,
            Self::Max => Binary::Max,
            Self::Min => Binary::Min,
        }
    }
}
