//! `Image`: machine code beside PTX.

use cuda_core::protocol::DeviceInfo;

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
