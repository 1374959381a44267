//! A device that does nothing, at once: what is left is the library's own cost.

use std::sync::Arc;

use cuda_core::{
    Backend, Command, DeviceInfo, EntryInfo, HostBlock, MemoryInfo, ModuleInfo, Notice, NoticeSink,
    ParamInfo, Provider, Reply, Request, Result, StreamId,
};

pub struct NullProvider;

struct Null {
    info: DeviceInfo,
    notices: Arc<dyn NoticeSink>,
}

impl Provider for NullProvider {
    fn scheme(&self) -> &'static str {
        "null"
    }

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        Ok(Vec::new())
    }

    fn open(&self, _: u32, notices: Arc<dyn NoticeSink>) -> Result<Arc<dyn Backend>> {
        let info = DeviceInfo::new("null", "a device that does nothing");
        Ok(Arc::new(Null { info, notices }))
    }
}

impl Backend for Null {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    unsafe fn enqueue(
        &self,
        stream: StreamId,
        command: Command<'_>,
        _: &[Arc<HostBlock>],
    ) -> Result<()> {
        // An await whose spin is interrupted waits for this.
        if let Command::Notify { token } = command {
            self.notices.notice(Notice { stream, token, status: Ok(()) });
        }
        Ok(())
    }

    fn request(&self, request: Request) -> Result<Reply> {
        Ok(match request {
            Request::LoadModule { .. } => Reply::Module(kernels()),
            Request::Query { .. } => Reply::Idle(true),
            Request::Memory => Reply::Memory(MemoryInfo { used: 0, free: 0, total: 0 }),
            _ => Reply::Done,
        })
    }
}

/// The entries `scale(x, a, n)` and `vecadd(a, b, c, n)`, as their PTX has them.
fn kernels() -> ModuleInfo {
    let param = |name: &str, ty: &str, offset, size| ParamInfo {
        name: name.into(),
        ty: ty.into(),
        offset,
        size,
        align: size,
    };
    let entry = |name: &str, params| EntryInfo { name: name.into(), params, max_threads: 1024 };
    let scale = vec![param("x", "u64", 0, 8), param("a", "f32", 8, 4), param("n", "u32", 12, 4)];
    let vecadd = vec![
        param("a", "u64", 0, 8),
        param("b", "u64", 8, 8),
        param("c", "u64", 16, 8),
        param("n", "u32", 24, 4),
    ];
    let entries = vec![entry("scale", scale), entry("vecadd", vecadd)];
    ModuleInfo { entries, log: String::new() }
}
