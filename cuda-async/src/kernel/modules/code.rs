//! The code of a cached module, which is PTX with machine code (`Image`) beside it, and how it is loaded.

use std::{
    borrow::Cow,
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use cuda_core::{Device, Error, Loading, Module, Result, protocol::DeviceInfo};

#[cfg(feature = "nvrtc")]
use crate::{kernel::modules::compile::CudaSource, wake::OnThread};

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

/// Machine code of a module for some GPUs: a cubin or a fatbin. A [`ModuleCache`](crate::kernel::ModuleCache) loads the
/// image that fits the device, or else the PTX. `#[cubin(..)]` and `#[fatbin = ".."]` of [`kernels!`](crate::kernels)
/// make images.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    target: Target,
    bytes: &'static [u8],
}

/// The GPUs that run an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Target {
    /// GPUs with this major compute capability, and this minor one or a higher one.
    Cubin(u32, u32),
    /// GPUs with exactly this compute capability.
    Specific(u32, u32),
    /// The fatbin lists its targets, and the driver chooses one.
    Fatbin,
}

impl Image {
    /// Creates the image of a cubin for `sm_XY`, as the compute capability (X, Y). GPUs of the same X and a higher Y
    /// run it too.
    ///
    /// # Safety
    /// `bytes` is complete and was made by NVIDIA's tools, of the same source as the PTX beside it. See
    /// [`Device::start_loading_image`](cuda_core::Device::start_loading_image).
    pub const unsafe fn cubin(capability: (u32, u32), bytes: &'static [u8]) -> Self {
        Self { target: Target::Cubin(capability.0, capability.1), bytes }
    }

    /// Creates the image of a cubin for an architecture with a suffix, such as `sm_90a`. Only GPUs of exactly this
    /// compute capability run it.
    ///
    /// # Safety
    /// The requirements of [`cubin`](Self::cubin).
    pub const unsafe fn specific_cubin(capability: (u32, u32), bytes: &'static [u8]) -> Self {
        Self { target: Target::Specific(capability.0, capability.1), bytes }
    }

    /// Creates the image of a fatbin. It is used if no cubin fits. The driver chooses the code in it.
    ///
    /// # Safety
    /// The requirements of [`cubin`](Self::cubin).
    pub const unsafe fn fatbin(bytes: &'static [u8]) -> Self {
        Self { target: Target::Fatbin, bytes }
    }

    pub(super) const fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    /// Returns the image that fits a device best. `None` if the device runs none of the images.
    pub(super) fn fitting<'a>(images: &'a [Self], device: &DeviceInfo) -> Option<&'a Self> {
        device.driver?;
        let (major, minor) = device.compute_capability;
        let rank = |image: &&Self| match image.target {
            Target::Specific(x, y) => ((x, y) == (major, minor)).then_some(u32::MAX),
            Target::Cubin(x, y) => (x == major && y <= minor).then_some(y + 1),
            Target::Fatbin => Some(0),
        };
        images.iter().filter(|image| rank(image).is_some()).max_by_key(|image| rank(image))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_specific_image_is_chosen() {
        // SAFETY: nothing loads them.
        let images = unsafe {
            [
                Image::fatbin(b"fat"),
                Image::cubin((8, 0), b"80"),
                Image::cubin((8, 6), b"86"),
                Image::specific_cubin((9, 0), b"90a"),
            ]
        };
        let chosen = |images: &[Image], capability, driver| {
            let mut info = DeviceInfo::new("cuda:0", "GPU");
            (info.compute_capability, info.driver) = (capability, driver);
            Image::fitting(images, &info).map(|image| image.bytes())
        };
        let driver = Some((12, 4));
        for (capability, image) in [
            ((8, 0), &b"80"[..]),
            ((8, 5), b"80"),
            ((8, 9), b"86"),
            ((7, 5), b"fat"),
            ((9, 0), b"90a"),
            ((9, 1), b"fat"),
            ((10, 0), b"fat"),
        ] {
            assert_eq!(chosen(&images, capability, driver), Some(image), "{capability:?}");
        }
        assert_eq!(chosen(&images, (8, 0), None), None, "a CPU device takes PTX");
        assert_eq!(chosen(&images[1..], (7, 5), driver), None);
    }
}
