//! Loading modules: PTX and machine code, with and without blocking.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::module::{Module, Unloads};
use crate::{
    handle::device::Device,
    protocol::{
        Control, EntryInfo, Error, ModuleId, ModuleImage, ModuleInfo, Reply, Request, Result,
        module_info,
    },
    runtime::{Pending, unexpected},
};

/// A module that is being loaded. Dropping it unloads the module.
#[derive(Debug)]
pub struct Loading {
    /// The device, the module, and its contents. Taken when the module is loaded.
    module: Option<(Device, Unloads, ModuleInfo)>,
    reply: Pending<Reported>,
}

/// The part of a module that only the device knows.
struct Reported {
    /// The maximum number of threads per block of each kernel.
    max_threads: Vec<u32>,
    /// The compiler's log.
    log: String,
    /// The kernels of a cubin.
    entries: Vec<EntryInfo>,
}

impl Device {
    /// Compiles and loads PTX. Blocks: a GPU's compiler may take a hundred milliseconds.
    ///
    /// Do not call it inside a waker: the thread that calls the waker may be the one that loads.
    ///
    /// Load modules before the work that uses them begins. While a GPU's driver loads a module, it waits for every
    /// running kernel, and launches, copies and polls of other threads wait with it.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let ptx = ".version 7.0 .target sm_70 .address_size 64 .visible .entry nothing() { ret; }";
    /// let module = device.load_ptx_blocking(ptx)?;
    /// let nothing = module.function("nothing")?;
    /// // SAFETY: the kernel uses no memory.
    /// unsafe { nothing.launch(&stream, LaunchConfig::new(1, 32), &Arguments::new()) }?;
    /// stream.synchronize()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], [`Error::PtxTooNew`], or [`Error::LoadFailed`] with the compiler's log.
    pub fn load_ptx_blocking(&self, ptx: &str) -> Result<Module> {
        self.start_loading(ptx)?.wait()
    }

    /// Starts to compile and load PTX, without blocking. The compiler runs on a thread of the device.
    ///
    /// ```
    /// # use cuda_core::*;
    /// # let device = Device::open(&cuda_cpu::CpuProvider::default(), 0)?;
    /// # let stream = device.new_stream()?;
    /// # let ptx = ".version 7.0 .target sm_70 .address_size 64 .visible .entry nothing() { ret; }";
    /// let loading = device.start_loading(ptx)?; // a thread of the device compiles it
    /// let module = loading.wait()?; // or `poll` it in a task
    /// assert_eq!(module.entries()[0].name, "nothing");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidPtx`], if the kernels of the text cannot be listed.
    pub fn start_loading(&self, ptx: &str) -> Result<Loading> {
        Loading::new(self, module_info(ptx)?, ModuleImage::Ptx(ptx.to_owned()))
    }

    /// Loads a cubin or a fatbin. Blocks, so do not call it inside a waker, and load before the work that uses the
    /// module begins: see [`load_ptx_blocking`](Self::load_ptx_blocking).
    ///
    /// The driver compiles nothing, unless a fatbin has only PTX for this GPU. The types of parameters are unknown, so
    /// launches check the number and the sizes of arguments, not their kinds. [`Module::variables`] is empty, and
    /// launches are not ordered by the variables that they use.
    ///
    /// ```no_run
    /// # use cuda_core::*;
    /// # fn load(device: &Device) -> Result<()> {
    /// let image = std::fs::read("kernels_sm_90.cubin").map_err(Error::other)?;
    /// // SAFETY: NVIDIA's compiler made the file, of a source whose kernels this program knows.
    /// let module = unsafe { device.load_cubin(&image) }?;
    /// # let _ = module;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// - [`Error::LoadFailed`] if `image` is neither a cubin nor a fatbin, or has no code for this device. A CPU device
    ///   runs no machine code of GPUs.
    /// - [`Error::Unsupported`] if the driver is older than CUDA 12.4.
    /// - Or an error of the device.
    ///
    /// # Safety
    /// `image` is complete and was made by NVIDIA's tools. The driver does not check the lengths inside the image.
    pub unsafe fn load_cubin(&self, image: &[u8]) -> Result<Module> {
        // SAFETY: the image is complete and made by NVIDIA's tools.
        unsafe { self.start_loading_cubin(image) }?.wait()
    }

    /// Starts to load a cubin or a fatbin, without blocking.
    ///
    /// ```no_run
    /// # use cuda_core::*;
    /// # fn load(device: &Device) -> Result<()> {
    /// let image = std::fs::read("kernels_sm_90.cubin").map_err(Error::other)?;
    /// // SAFETY: NVIDIA's compiler made the file, of a source whose kernels this program knows.
    /// let module = unsafe { device.start_loading_cubin(&image) }?.wait()?;
    /// # let _ = module;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::LoadFailed`] if `image` is neither a cubin nor a fatbin. The [`Loading`] returns the other errors of
    /// [`load_cubin`](Self::load_cubin).
    ///
    /// # Safety
    /// The requirements of [`load_cubin`](Self::load_cubin).
    pub unsafe fn start_loading_cubin(&self, image: &[u8]) -> Result<Loading> {
        check_machine_code(image)?;
        let (entries, variables) = Default::default();
        // The kernels may share variables.
        let info = ModuleInfo { entries, variables, has_variables: true };
        Loading::new(self, info, ModuleImage::Cubin(image.to_owned()))
    }

    /// Starts to load a cubin or a fatbin that was made from the same source as the text `ptx`, without blocking. The
    /// device runs the image, and the text describes the module. So launches check the kinds of arguments and claim the
    /// variables that they use, as launches of a module that was loaded from PTX do.
    ///
    /// ```no_run
    /// # use cuda_core::*;
    /// # fn load(device: &Device, ptx: &str, image: &[u8]) -> Result<()> {
    /// // SAFETY: NVIDIA's compiler made `ptx` and `image` of the same source.
    /// let loading = unsafe { device.start_loading_image(ptx, image) }?;
    /// let module = loading.wait()?;
    /// # let _ = module;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`start_loading_cubin`](Self::start_loading_cubin) and [`start_loading`](Self::start_loading). The
    /// [`Loading`] fails with [`Error::LoadFailed`] if the image has a kernel that the text does not have, or with
    /// other parameters.
    ///
    /// # Safety
    /// `image` is complete and was made by NVIDIA's tools, which made `ptx` of the same source. The text states which
    /// variables a kernel writes, and the library orders launches by that.
    pub unsafe fn start_loading_image(&self, ptx: &str, image: &[u8]) -> Result<Loading> {
        check_machine_code(image)?;
        Loading::new(self, module_info(ptx)?, ModuleImage::Cubin(image.to_owned()))
    }
}

/// Checks the first bytes of an image.
fn check_machine_code(image: &[u8]) -> Result<()> {
    const ELF: &[u8] = b"\x7fELF";
    const FATBIN: &[u8] = &0xBA55_ED50_u32.to_le_bytes();
    if image.starts_with(ELF) || image.starts_with(FATBIN) {
        return Ok(());
    }
    let is_text = std::str::from_utf8(image).is_ok_and(|text| text.contains(".version"));
    let log = match is_text {
        _ if image.is_empty() => "the image is empty",
        true => "the image is PTX; load it with `load_ptx`",
        false => {
            "the image is neither a cubin nor a fatbin; make one with `nvcc -cubin` or `nvcc -fatbin`"
        }
    };
    Err(Error::LoadFailed { log: log.into() })
}

/// Returns the kernels of an image in its order, with the parameters and variables that a PTX text states for them.
/// Without a text, returns them as they are.
fn described(text: &[EntryInfo], image: Vec<EntryInfo>) -> Result<Vec<EntryInfo>> {
    if text.is_empty() {
        return Ok(image);
    }
    let describe = |entry: EntryInfo| {
        let places = |entry: &EntryInfo| -> Vec<_> {
            entry.params.iter().map(|param| (param.offset, param.size)).collect()
        };
        let same =
            text.iter().find(|other| other.name == entry.name && places(other) == places(&entry));
        same.cloned().ok_or_else(|| {
            let name = entry.name;
            let log = format!(
                "kernel `{name}` of the image is not in the PTX, or has other parameters there; make both from one source"
            );
            Error::LoadFailed { log }
        })
    };
    image.into_iter().map(describe).collect()
}

impl Loading {
    fn new(device: &Device, info: ModuleInfo, image: ModuleImage) -> Result<Self> {
        let core = device.core();
        core.reclaim_all();
        let id = ModuleId(core.next_id());
        // SAFETY: the control frees, retires, drops and unloads nothing.
        unsafe { core.backend.control(Control::LoadModule { id, image }) }?;
        let reply = core.request(Request::Loaded { module: id }, |reply| match reply {
            Reply::Loaded { max_threads, log, entries } => {
                Ok(Reported { max_threads, log, entries })
            }
            other => Err(unexpected(&other)),
        });
        let unloads = Unloads { device: device.downgrade(), id };
        Ok(Self { module: Some((device.clone(), unloads, info)), reply })
    }

    /// Polls for the loaded module.
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`].
    pub fn poll(&mut self, task: &mut Context<'_>) -> Poll<Result<Module>> {
        let reply = ready!(self.reply.poll(task));
        Poll::Ready(reply.and_then(|reply| self.take(reply)))
    }

    /// Blocks until the module is loaded.
    ///
    /// # Errors
    /// The errors of [`Device::load_ptx_blocking`].
    pub fn wait(mut self) -> Result<Module> {
        let taken = Pending::ready(Err(Error::AlreadyEnded));
        let reply = std::mem::replace(&mut self.reply, taken).wait()?;
        self.take(reply)
    }

    fn take(&mut self, reported: Reported) -> Result<Module> {
        let Reported { max_threads, log, entries } = reported;
        let (device, unloads, mut info) = self.module.take().ok_or(Error::AlreadyEnded)?;
        if !entries.is_empty() {
            info.entries = described(&info.entries, entries)?;
        }
        info.entries.iter_mut().zip(max_threads).for_each(|(entry, most)| entry.max_threads = most);
        Ok(Module::new(device, unloads, info, log))
    }
}

impl Future for Loading {
    type Output = Result<Module>;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<Result<Module>> {
        Loading::poll(self.get_mut(), task)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use cuda_ptx::ScalarType;

    use super::*;
    use crate::protocol::{ParamInfo, ParamType, entries};

    /// A kernel as a driver describes it: only offsets and sizes.
    fn of_image(name: &str, sizes: &[u32]) -> EntryInfo {
        let params = sizes.iter().enumerate().map(|(index, size)| ParamInfo {
            name: format!("p{index}"),
            ty: ParamType::Array { element: ScalarType::B8, count: *size },
            offset: index as u32 * 8,
            size: *size,
            align: 1,
        });
        EntryInfo {
            name: name.into(),
            params: params.collect(),
            variables: [].into(),
            max_threads: 0,
        }
    }

    #[test]
    fn image_keeps_its_order_and_takes_types_from_the_text() {
        let text = entries(
            ".version 7.0\n.target sm_50\n.entry a(.param .u64 p, .param .f32 x) { ret; }\n.entry b() { ret; }",
        )
        .unwrap();
        let image = vec![of_image("b", &[]), of_image("a", &[8, 4])];
        assert_eq!(described(&[], image.clone()).unwrap(), image);
        let found = described(&text, image).unwrap();
        let names: Vec<_> = found.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["b", "a"]);
        assert_eq!(found[1].params[1].ty.to_string(), "f32");
        for wrong in [of_image("c", &[]), of_image("a", &[8]), of_image("a", &[8, 8])] {
            let error = described(&text, vec![wrong]).unwrap_err();
            assert!(matches!(error, Error::LoadFailed { .. }), "{error}");
        }
    }
}
