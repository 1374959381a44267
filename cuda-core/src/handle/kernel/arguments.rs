//! The arguments of a launch: bytes, addresses to fill in, and the buffers that are read and written.

use super::{
    function::Function,
    list::List,
    parameter::{ArgumentKind, Place},
};
use crate::{
    handle::{
        memory::{DeviceBuffer, Slice, SliceMut, View},
        stream::Operand,
    },
    protocol::{Access, Element, Error, Relocation, Result},
};

/// Bytes of arguments that need no heap.
const INLINE_BYTES: usize = 128;

/// No parameter is aligned to more.
const MAX_ALIGN: usize = 256;

/// The arguments of a launch, in the order of the kernel's parameters. Buffers are borrowed.
pub struct Arguments<'a> {
    pub(super) bytes: List<u8, INLINE_BYTES>,
    places: List<Place, 16>,
    pub(super) relocations: List<Relocation, 6>,
    pub(super) operands: List<Operand<'a>, 6>,
    /// The reason why the launch cannot take an argument.
    refusal: Option<Box<str>>,
    /// Whether a scalar that the kernel writes must be no other argument.
    distinct_scalars: bool,
}

impl Default for Arguments<'_> {
    #[inline]
    fn default() -> Self {
        Self {
            bytes: List::new(),
            places: List::new(),
            relocations: List::new(),
            operands: List::new(),
            refusal: None,
            distinct_scalars: false,
        }
    }
}

impl<'a> Arguments<'a> {
    /// Creates an empty list of arguments.
    #[inline]
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

    /// Adds the bytes of a struct that is passed by value. `align` is its alignment in bytes, 256 at most.
    #[inline]
    pub fn raw(&mut self, bytes: &[u8], align: usize) -> &mut Self {
        self.push(bytes, align, ArgumentKind::Bytes)
    }

    #[inline(always)] // the size is known at every call, so this compiles to a few stores
    fn push(&mut self, bytes: &[u8], align: usize, kind: ArgumentKind) -> &mut Self {
        // `raw` may pass an alignment that is not a power of two. The check against the kernel then returns an error.
        let mask = align.clamp(1, MAX_ALIGN) - 1;
        let start = (self.bytes.len() + mask) & !mask;
        while self.bytes.len() < start {
            self.bytes.push(0);
        }
        self.bytes.extend(bytes);
        self.places.push(Place::new(start as u32, bytes.len() as u32, kind));
        self
    }

    /// Adds the address of a buffer.
    #[inline]
    pub fn buffer<T>(&mut self, buffer: &'a DeviceBuffer<T>, access: Access) -> &mut Self {
        self.view(buffer.view(), access)
    }

    /// Adds the address of a slice that the kernel reads.
    #[inline]
    pub fn slice<T>(&mut self, slice: Slice<'a, T>) -> &mut Self {
        self.part(slice, Access::Read)
    }

    /// Adds the address of a part of a buffer. As [`buffer`](Arguments::buffer) does for the whole, it takes a shared
    /// borrow for every access: the caller of the launch promises that it may write the part.
    #[inline]
    pub fn part<T>(&mut self, slice: Slice<'a, T>, access: Access) -> &mut Self {
        self.view(slice.view(), access)
    }

    /// Adds the address of a slice that the kernel reads and writes.
    #[inline]
    pub fn slice_mut<T>(&mut self, slice: &'a SliceMut<'_, T>) -> &mut Self {
        self.view(slice.view(), Access::Write)
    }

    /// Makes the launch fail with [`Error::Arguments`] and this reason. A form of an argument that cannot be passed calls it:
    /// adding an argument returns no error.
    #[cold]
    pub fn refuse(&mut self, reason: String) -> &mut Self {
        self.refusal.get_or_insert_with(|| reason.into());
        self
    }

    /// Makes the launch fail with [`Error::Arguments`] if a scalar that the kernel writes is another argument too. Safe code
    /// can pass one scalar twice, because all its handles are the same memory.
    #[inline]
    pub fn require_distinct_scalars(&mut self) -> &mut Self {
        self.distinct_scalars = true;
        self
    }

    #[inline]
    fn view(&mut self, view: View<'a>, access: Access) -> &mut Self {
        self.push(&[0; 8], 8, ArgumentKind::Integer);
        let at = (self.bytes.len() - 8) as u32;
        self.relocations.push(Relocation { at, region: view.region(), bytes: view.bytes, access });
        self.operands.push(view.operand(access));
        self
    }

    /// The reason why the launch cannot take an argument.
    pub(super) fn refusal(&self) -> Option<&str> {
        self.refusal.as_deref()
    }

    /// The byte offsets of the arguments.
    pub(super) fn starts(&self) -> impl Iterator<Item = usize> {
        self.places.iter().map(Place::start)
    }

    /// Returns the number of arguments.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether there are no arguments.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Checks number, sizes and kinds against the kernel's parameters.
    #[inline]
    pub(super) fn check(&self, function: &Function) -> Result<()> {
        let slots = &function.shape().slots;
        let fit = slots.len() == self.places.len()
            && self.refusal.is_none()
            && !(self.distinct_scalars && self.repeated_scalar().is_some())
            && slots.iter().zip(self.places.iter()).all(|(slot, place)| slot.takes(place));
        if fit { Ok(()) } else { Err(self.misfit(function)) }
    }

    /// The positions of two arguments that are the same scalar, one of which the kernel writes.
    #[cold]
    fn repeated_scalar(&self) -> Option<(usize, usize)> {
        let operands = || self.operands.iter().enumerate();
        let (written, other) = operands().find_map(|(at, it)| {
            let is_output = it.access == Access::Write && it.allocation.is_scalar();
            let same = |(other, operand): &(usize, &Operand<'_>)| {
                *other != at && operand.allocation.id() == it.allocation.id()
            };
            operands().filter(|_| is_output).find(same).map(|(other, _)| (at, other))
        })?;
        // The argument of an operand is the one with its relocation.
        let argument = |operand: usize| {
            let at = self.relocations[operand].at as usize;
            self.starts().position(|start| start == at)
        };
        argument(written).zip(argument(other))
    }

    /// The error for arguments that do not fit. Names the first of them, and the reason.
    #[cold]
    fn misfit(&self, function: &Function) -> Error {
        let params = &function.info().params;
        let wrong = |detail| Error::Arguments { kernel: function.name().to_owned(), detail };
        if let Some(reason) = &self.refusal {
            return wrong(reason.to_string());
        }
        let (want, have) = (params.len(), self.places.len());
        let pairs = params.iter().zip(self.places.iter()).enumerate();
        let misfits = pairs.filter_map(|(index, (param, place))| {
            let why = place.misfit(param)?;
            Some(format!("parameter {index} (`{}`) {why}", param.name))
        });
        let counts = (want != have).then(|| {
            let types: Vec<_> = params.iter().map(|param| param.ty.to_string()).collect();
            format!("it takes {want} arguments ({}), the launch has {have}", types.join(", "))
        });
        let repeated = self.repeated_scalar().filter(|_| self.distinct_scalars);
        let repeated = repeated.map(|(written, other)| {
            let name = |index: usize| params.get(index).map_or("", |param| &param.name);
            format!(
                "the kernel writes parameter {written} (`{}`), and parameter {other} (`{}`) is the same scalar; pass another scalar",
                name(written),
                name(other)
            )
        });
        wrong(counts.into_iter().chain(misfits).chain(repeated).next().unwrap_or_default())
    }
}
