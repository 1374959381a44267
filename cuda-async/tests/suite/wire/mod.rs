//! A backend that encodes every command, request, reply and notice into bytes. A channel carries the bytes to another
//! thread, which decodes them and runs them on the CPU device. Only bytes pass between [`client`] and [`node`].

mod client;
mod frame;
mod node;

use std::sync::{Arc, mpsc::channel};

use cuda_async::{Result, cuda_core::DeviceInfo};
use cuda_core::{Backend, NoticeSink, Provider};
use cuda_cpu::CpuProvider;

/// The provider of such devices.
pub struct WireProvider;

impl Provider for WireProvider {
    fn scheme(&self) -> &'static str {
        "wire"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        CpuProvider::default().devices()
    }

    fn open(&self, ordinal: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let (to_node, from_client) = channel();
        let (to_client, from_node) = channel();
        let info = node::start(ordinal, from_client, to_client)?;
        Ok(client::start(info, to_node, from_node, notices))
    }
}
