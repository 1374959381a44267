//! The objects that work names, and the place where it is enqueued.

use std::sync::Arc;

use cuda_core::protocol::{HostBlock, HostRegion, Result};

use crate::{
    context::Primary,
    driver::{api::Api, status::Failed},
    objects::{Graphs, Memory, Modules},
    streams::DriverStream,
};

/// The objects of a backend that work names.
#[derive(Clone, Copy)]
pub(crate) struct Names<'a> {
    pub(crate) primary: &'static Primary,
    pub(crate) memory: &'a Memory,
    pub(crate) modules: &'a Modules,
    pub(crate) graphs: &'a Graphs,
}

/// The place where work is enqueued: a stream that the caller holds, and the objects of its backend.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) names: Names<'a>,
    pub(crate) stream: &'a DriverStream,
}

impl Place<'_> {
    pub(super) fn api(&self) -> &'static Api {
        self.names.primary.api
    }

    /// The error of a failed call. A fault loses the device.
    pub(super) fn check(&self, status: Result<(), Failed>) -> Result<()> {
        self.names.check(status)
    }
}

impl Names<'_> {
    /// The error of a failed call. A fault loses the device.
    pub(super) fn check(&self, status: Result<(), Failed>) -> Result<()> {
        status.map_err(|failed| self.primary.error(failed))
    }

    /// The address of `size` bytes of host memory, if they are inside the block that is named.
    pub(super) fn host(
        &self,
        region: HostRegion,
        size: usize,
        host: &[Arc<HostBlock>],
    ) -> Result<*mut u8> {
        let block = host.iter().find(|block| block.id() == region.block);
        let block = block.ok_or_else(|| region.missing())?;
        let start = usize::try_from(region.offset)
            .ok()
            .filter(|start| start.checked_add(size).is_some_and(|end| end <= block.len()));
        let start = start.ok_or_else(|| region.outside(size as u64, block.len() as u64))?;
        // Inside the block, so the driver may use the pointer.
        Ok(block.as_ptr().wrapping_add(start))
    }
}
