//! The arguments of a launch: bytes, addresses to fill in, and what is read and written.

use std::{borrow::Cow, sync::Arc};

use smallvec::SmallVec;

use crate::{
    DeviceBuffer, Element, Error, Function, Launch, LaunchConfig, Relocation, Result, Stream,
    allocation::Allocation,
    command::Command,
    hazard::{Access, Ticket},
};

/// Bytes of arguments that need no heap.
const INLINE_BYTES: usize = 128;

/// No parameter is aligned to more.
const MAX_ALIGN: usize = 256;

/// Arguments, in the order of the kernel's parameters.
#[derive(Default)]
pub struct Arguments {
    bytes: SmallVec<[u8; INLINE_BYTES]>,
    places: SmallVec<[Place; 8]>,
    relocations: SmallVec<[Relocation; 4]>,
    uses: SmallVec<[(Arc<Allocation>, Access); 4]>,
}

/// Where an argument stands, and what it is.
struct Place {
    offset: u32,
    size: u32,
    kind: ArgumentKind,
}

/// What an argument is, as far as the kernel's PTX can tell it apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentKind {
    /// An integer, or an address.
    Integer,
    /// A floating-point number.
    Float,
    /// Bytes that may be anything: a struct.
    Bytes,
}

impl ArgumentKind {
    /// Whether it can stand for a parameter that the PTX declares as `ty`. Compilers declare structs, and from
    /// CUDA 13 on many numbers, as plain bits, which anything fits.
    pub fn fits(self, ty: &str) -> bool {
        match self {
            ArgumentKind::Integer => !ty.starts_with(['f']) && !ty.starts_with("bf"),
            ArgumentKind::Float => !ty.starts_with(['u', 's']),
            ArgumentKind::Bytes => true,
        }
    }
}

impl Arguments {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a number.
    #[inline]
    pub fn number<T: Element>(&mut self, value: &T, kind: ArgumentKind) -> &mut Self {
        self.push(bytemuck::bytes_of(value), align_of::<T>(), kind)
    }

    /// Adds a struct, passed by value.
    #[inline]
    pub fn value<T: Element>(&mut self, value: &T) -> &mut Self {
        self.raw(bytemuck::bytes_of(value), align_of::<T>())
    }

    /// Adds a struct's bytes, passed by value; `align` is its alignment in bytes, 256 at most.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8], align: usize) -> &mut Self {
        self.push(bytes, align, ArgumentKind::Bytes)
    }

    #[inline]
    fn push(&mut self, bytes: &[u8], align: usize, kind: ArgumentKind) -> &mut Self {
        let start = self.bytes.len().next_multiple_of(align.clamp(1, MAX_ALIGN));
        if start > self.bytes.len() {
            self.bytes.resize(start, 0);
        }
        self.bytes.extend_from_slice(bytes);
        self.places.push(Place { offset: start as u32, size: bytes.len() as u32, kind });
        self
    }

    /// Adds the address of a buffer.
    #[inline]
    pub fn buffer<T>(&mut self, buffer: &DeviceBuffer<T>, access: Access) -> &mut Self {
        self.push(&[0; 8], 8, ArgumentKind::Integer);
        let at = (self.bytes.len() - 8) as u32;
        let allocation = buffer.allocation();
        self.relocations.push(Relocation { at, region: allocation.region(0) });
        self.uses.push((allocation.clone(), access));
        self
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Checks number, sizes and kinds against the kernel's parameters.
    fn check(&self, function: &Function) -> Result<()> {
        let params = &function.info().params;
        let wrong = |detail| Error::Arguments { kernel: function.name().to_owned(), detail };
        if params.len() != self.places.len() {
            let (want, have) = (params.len(), self.places.len());
            return Err(wrong(format!("it takes {want} and was given {have}")));
        }
        for (index, (param, place)) in params.iter().zip(&self.places).enumerate() {
            let Place { offset, size, kind } = *place;
            let (name, ty) = (&param.name, &param.ty);
            if param.size != size {
                let detail = format!("is a {ty} of {} bytes, the argument has {size}", param.size);
                return Err(wrong(format!("parameter {index} (`{name}`) {detail}")));
            }
            if !kind.fits(ty) {
                let given = if kind == ArgumentKind::Float { "a float" } else { "an integer" };
                return Err(wrong(format!(
                    "parameter {index} (`{name}`) is a {ty}, the argument is {given}"
                )));
            }
            if param.offset != offset {
                let detail = format!("stands at byte {}, the argument at {offset}", param.offset);
                let advice = "align the struct as the kernel's own is";
                return Err(wrong(format!("parameter {index} (`{name}`) {detail}; {advice}")));
            }
        }
        Ok(())
    }
}

impl Function {
    /// Launches on `stream`, ordered with every other use of the buffers among the arguments.
    ///
    /// # Errors
    /// [`Error::Arguments`] if number, sizes or kinds do not fit the kernel's parameters,
    /// [`Error::InvalidLaunch`], [`Error::WrongDevice`], or what the backend says.
    ///
    /// # Safety
    /// The kernel accesses no device memory but that of the buffers among `arguments`, only inside their
    /// bounds, and only reads those that were given as [`Access::Read`]. Nobody else uses a buffer that was
    /// given as [`Access::Write`] while this call lasts.
    pub unsafe fn launch(
        &self,
        stream: &Stream,
        config: LaunchConfig,
        arguments: &Arguments,
    ) -> Result<Ticket> {
        stream.device().check_same("a kernel", self.device())?;
        self.check_shape(&config)?;
        arguments.check(self)?;
        let launch = Launch {
            function: self.id(),
            config,
            params: Cow::Borrowed(&arguments.bytes),
            relocations: Cow::Borrowed(&arguments.relocations),
        };
        stream.submit(Command::Launch(launch), &arguments.uses, None)
    }

    /// The limits that every backend has, so that they are told apart from faults everywhere alike.
    fn check_shape(&self, config: &LaunchConfig) -> Result<()> {
        let wrong = |detail| Err(Error::InvalidLaunch { kernel: self.name().to_owned(), detail });
        if config.is_empty() {
            return wrong(format!("grid {:?} or block {:?} has a 0", config.grid, config.block));
        }
        let (threads, most) = (config.threads_per_block(), self.info().max_threads);
        if threads > u64::from(most) {
            return wrong(format!("{threads} threads per block, the limit is {most}"));
        }
        let most = self.device().info().max_shared_bytes;
        if config.shared_bytes > most {
            let bytes = config.shared_bytes;
            return wrong(format!("{bytes} bytes of dynamic shared memory, the limit is {most}"));
        }
        Ok(())
    }
}
