//! The code of a cached module, and how it is loaded.

#[cfg(feature = "nvrtc")]
use std::borrow::Cow;
use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use cuda_core::{Device, Loading, Module, Result};

#[cfg(feature = "nvrtc")]
use crate::kernel::{compile::OnThread, cuda_source::CudaSource};

/// The code of a module.
#[derive(Debug, Clone, Copy)]
pub(super) enum Code {
    /// PTX.
    Ptx(&'static str),
    /// CUDA C, which may have to be compiled.
    #[cfg(feature = "nvrtc")]
    Source(CudaSource),
}

impl Code {
    /// Loads the code and blocks.
    pub(super) fn load(&self, device: &Device) -> Result<Module> {
        match self {
            Code::Ptx(ptx) => device.load_ptx(ptx),
            #[cfg(feature = "nvrtc")]
            Code::Source(source) => source.load(device),
        }
    }

    /// Starts to load the code, without blocking.
    pub(super) fn start(&self, device: &Device) -> Result<LoadingCode> {
        match self {
            Code::Ptx(ptx) => device.start_loading(ptx).map(LoadingCode::Loading),
            #[cfg(feature = "nvrtc")]
            Code::Source(source) => match source.built_ptx() {
                Some(ptx) => device.start_loading(ptx).map(LoadingCode::Loading),
                None => {
                    let source = *source;
                    let compiling = OnThread::start(move || source.ptx())?;
                    Ok(LoadingCode::Compiling(compiling, device.clone()))
                }
            },
        }
    }
}

/// Code that is being loaded.
pub(super) enum LoadingCode {
    /// The compiler of CUDA C runs.
    #[cfg(feature = "nvrtc")]
    Compiling(OnThread<Cow<'static, str>>, Device),
    /// The device compiles and loads the PTX.
    Loading(Loading),
}

impl Future for LoadingCode {
    type Output = Result<Module>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<Module>> {
        #[cfg(feature = "nvrtc")]
        if let LoadingCode::Compiling(compiling, device) = &mut *self {
            let ptx = std::task::ready!(Pin::new(compiling).poll(task))?;
            let loading = device.start_loading(&ptx)?;
            *self = LoadingCode::Loading(loading);
        }
        match &mut *self {
            LoadingCode::Loading(loading) => loading.poll(task),
            #[cfg(feature = "nvrtc")]
            LoadingCode::Compiling(..) => Poll::Ready(Err(cuda_core::Error::AlreadyEnded)),
        }
    }
}
