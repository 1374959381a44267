use std::sync::Arc;

use cuda_async::{
    Result,
    cuda_core::{Backend, DeviceInfo, NoticeSink, Provider},
};

struct Forger;

impl Provider for Forger {
    fn scheme(&self) -> &'static str {
        "forger"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, _: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        loop {}
    }
}

fn main() {}
