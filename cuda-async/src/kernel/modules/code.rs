//! The code of a cached module, and how it is loaded.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use cuda_core::{Device, Error, Loading, Module, Result};

#[cfg(feature = "nvrtc")]
use super::cuda_source::CudaSource;
use super::image::Image;
#[cfg(feature = "nvrtc")]
use crate::wake::OnThread;

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
    /// Loads the image that fits the device, or this code, and blocks.
    pub(super) fn load(&self, device: &Device, images: &[Image]) -> Result<Module> {
        let ptx = self.ptx()?;
        match image_loading(device, &ptx, images).map(|loading| loading.and_then(Loading::wait)) {
            Some(loaded) if !is_refused(&loaded) => loaded,
            _ => device.load_ptx_blocking(&ptx),
        }
    }

    /// Starts to load the image that fits the device, or this code, without blocking.
    pub(super) fn start(&self, device: &Device, images: &[Image]) -> Result<LoadingCode> {
        let ptx = match self {
            Code::Ptx(ptx) => *ptx,
            #[cfg(feature = "nvrtc")]
            Code::Source(source) => match source.built_ptx() {
                Some(ptx) => ptx,
                None => {
                    let source = *source;
                    let compiling =
                        OnThread::start("nvrtc", "compiling with NVRTC", move || source.ptx())?;
                    return Ok(LoadingCode::Compiling(compiling, device.clone()));
                }
            },
        };
        match image_loading(device, ptx, images) {
            Some(Ok(loading)) => Ok(LoadingCode::Image(loading, device.clone(), ptx)),
            _ => LoadingCode::of_ptx(device, ptx),
        }
    }

    /// The PTX. Blocks while a source is compiled.
    fn ptx(&self) -> Result<Cow<'static, str>> {
        match self {
            Code::Ptx(ptx) => Ok((*ptx).into()),
            #[cfg(feature = "nvrtc")]
            Code::Source(source) => source.ptx(),
        }
    }
}

/// Starts to load the image that fits the device. `None` if none does.
fn image_loading(device: &Device, ptx: &str, images: &[Image]) -> Option<Result<Loading>> {
    let image = Image::fitting(images, device.info())?;
    // SAFETY: the image is complete and was made by NVIDIA's tools, of the same source as the PTX: every constructor of
    // `Image` is unsafe and requires this.
    Some(unsafe { device.start_loading_image(ptx, image.bytes()) })
}

/// Returns whether the device refused an image and may load the PTX: the image has no code for the GPU, or the driver
/// cannot list its kernels.
const fn is_refused(loaded: &Result<Module>) -> bool {
    matches!(loaded, Err(Error::LoadFailed { .. } | Error::Unsupported { .. }))
}

/// Code that is being loaded.
pub(super) enum LoadingCode {
    /// The compiler of CUDA C runs.
    #[cfg(feature = "nvrtc")]
    Compiling(OnThread<Cow<'static, str>>, Device),
    /// The device loads an image. The PTX replaces it if that fails.
    Image(Loading, Device, &'static str),
    /// The device compiles and loads the PTX.
    Ptx(Loading),
}

impl LoadingCode {
    /// Starts to load PTX.
    pub(super) fn of_ptx(device: &Device, ptx: &str) -> Result<Self> {
        device.start_loading(ptx).map(LoadingCode::Ptx)
    }
}

impl Future for LoadingCode {
    type Output = Result<Module>;

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<Module>> {
        loop {
            let next = match &mut *self {
                #[cfg(feature = "nvrtc")]
                LoadingCode::Compiling(compiling, device) => {
                    let ptx = ready!(Pin::new(compiling).poll(task))?;
                    Self::of_ptx(device, &ptx)?
                }
                LoadingCode::Image(loading, device, ptx) => {
                    let loaded = ready!(loading.poll(task));
                    if !is_refused(&loaded) {
                        return Poll::Ready(loaded);
                    }
                    Self::of_ptx(device, ptx)?
                }
                LoadingCode::Ptx(loading) => return loading.poll(task),
            };
            *self = next;
        }
    }
}
