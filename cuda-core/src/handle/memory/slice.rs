//! Slices of device buffers: borrowed to read, borrowed to write, and shared.
//!
//! # Rules
//! A [`SliceMut`] has exclusive access to its bytes, as `&mut` does: it comes from an exclusive borrow, and its parts
//! do not overlap. A split adds the boundary to the allocation before the parts exist, so uses of the parts are ordered
//! separately. Forgetting a slice is sound.
//!
//! The memory of a scalar and of a variable is an exception: other handles may write it too. Its submissions take
//! turns, and declared kernels check it ([`Arguments::require_unaliased`](crate::Arguments::require_unaliased)). A
//! scalar has one element, so it has no parts.
//!
//! # Views
//! A [`View`] is a range of bytes of an allocation, with the copies and fills on it. Buffers and slices own or borrow a
//! view under different rules, and submit the same work. A handle writes through a view only while it has exclusive
//! access to the bytes, or takes the turns of a marked allocation. It reads through a view only while no other handle
//! can write the bytes, by the same rules.

use std::{
    marker::PhantomData,
    ops::{Bound, Range, RangeBounds},
    sync::Arc,
};

use crate::{
    handle::{
        device::Device,
        memory::{
            buffer::DeviceBuffer,
            pinned::{Download, PinnedBuffer, start_of},
        },
        stream::{Allocation, Attached, Keep, Operand, Stream},
    },
    order::retention::Until,
    protocol::{
        Access, Element, Error, Limit, Misuse, Pattern, Quantity, Region, Result, Ticket, Work,
    },
};

/// A borrowed slice of a device buffer, for reading.
#[derive(Clone, Copy)]
pub struct Slice<'a, T> {
    view: View<'a>,
    element: PhantomData<&'a [T]>,
}

/// A borrowed slice of a device buffer, for writing.
pub struct SliceMut<'a, T> {
    view: View<'a>,
    element: PhantomData<&'a mut [T]>,
}

impl<'a, T> Slice<'a, T> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, element: PhantomData }
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'a> {
        self.view
    }

    /// Returns the position of the first element.
    pub fn region(&self) -> Region {
        self.view.region()
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        elements::<T>(self.view)
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device of the buffer.
    pub fn device(&self) -> &'a Device {
        self.view.allocation.device()
    }

    /// Returns a slice of the elements in `range`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>> {
        self.view.part::<T>(range).map(Slice::new)
    }
}

impl<T: Element> Slice<'_, T> {
    /// Copies the elements to `host`, which has the same length.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the lengths differ, or an error of the device.
    pub fn download(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Download<T>> {
        self.view.download(stream, host)
    }
}

impl<'a, T> SliceMut<'a, T> {
    pub(super) fn new(view: View<'a>) -> Self {
        Self { view, element: PhantomData }
    }

    #[inline]
    pub(crate) fn view(&self) -> View<'_> {
        self.view
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        elements::<T>(self.view)
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the device of the buffer.
    pub fn device(&self) -> &'a Device {
        self.view.allocation.device()
    }

    /// Returns a slice of all elements, for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::new(self.view)
    }

    /// Returns a slice of the elements in `range`, for reading.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.as_slice().slice(range)
    }

    /// Returns a slice of the elements in `range`, for writing. The library orders a use of the slice like a use of
    /// every piece that it touches.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.view.part::<T>(range).map(SliceMut::new)
    }

    /// Returns a slice of the same elements with a shorter lifetime.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut::new(self.view)
    }

    /// Splits the slice at `mid` into two slices. Streams may use the two at the same time.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `mid` is not inside the slice, or if the allocation already
    /// has 4096 parts.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let view = self.view;
        let first = view.part::<T>(..mid)?;
        let second =
            View { start: first.start + first.bytes, bytes: view.bytes - first.bytes, ..view };
        // Adds boundaries at both ends too: a slice may begin or end inside a piece.
        view.split([view.start, second.start, view.start + view.bytes])?;
        Ok((Self::new(first), Self::new(second)))
    }

    /// Splits the slice into slices of `size` elements. The last one may be shorter.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `size` is 0, or if the allocation would have more than 4096
    /// parts.
    pub fn chunks(self, size: usize) -> Result<Vec<Self>> {
        Ok(self.view.chunks::<T>(size)?.into_iter().map(Self::new).collect())
    }
}

impl<T: Element> SliceMut<'_, T> {
    /// Copies all of `host` to the elements from index `at` on. Enqueues the copy and returns. The host block returns
    /// to its device's pool when the device has read it.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if it does not fit, or an error of the device.
    pub fn upload(&mut self, stream: &Stream, at: usize, host: PinnedBuffer<T>) -> Result<Ticket> {
        let range = at..at.saturating_add(host.len());
        self.view.part::<T>(range)?.upload(stream, host)
    }

    /// Copies the elements to `host`, which has the same length.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub fn download(&self, stream: &Stream, host: PinnedBuffer<T>) -> Result<Download<T>> {
        self.view.download(stream, host)
    }

    /// Copies `from`, which has the same length, into this slice.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub fn copy_from(&mut self, stream: &Stream, from: Slice<'_, T>) -> Result<Ticket> {
        self.view.copy_from(stream, from.view)
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// [`Error::Misuse`](crate::Error::Misuse) for elements that are not a repetition of one, two or four bytes, or an
    /// error of the device.
    pub fn fill(&mut self, stream: &Stream, value: T) -> Result<Ticket> {
        self.view.fill(stream, &value)
    }
}

impl SliceMut<'_, u64> {
    /// Writes the time at which the stream reaches this point to the first element. The unit is a nanosecond of the
    /// device's clock. Only the difference of two times of one device has a meaning. An H200's clock advances in steps
    /// of 32 ns.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if the slice is empty,
    /// [`Error::Unsupported`](crate::Error::Unsupported) on a device without a clock, or an error of the device.
    pub fn timestamp(&mut self, stream: &Stream) -> Result<Ticket> {
        self.view.timestamp(stream)
    }
}

fn elements<T>(view: View<'_>) -> usize {
    (view.bytes as usize).checked_div(size_of::<T>()).unwrap_or(0)
}

macro_rules! debug {
    ($($name:literal $slice:ty;)*) => {$(
        impl<T> std::fmt::Debug for $slice {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({} x {})", $name, self.len(), std::any::type_name::<T>())
            }
        }
    )*};
}

debug! {
    "Slice" Slice<'_, T>;
    "SliceMut" SliceMut<'_, T>;
}

/// Bytes of an allocation.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) allocation: &'a Arc<Allocation>,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

impl<'a> View<'a> {
    #[inline]
    pub(crate) fn region(self) -> Region {
        self.allocation.region(self.start)
    }

    #[inline]
    pub(crate) fn operand(self, access: Access) -> Operand<'a> {
        Operand::new(self.allocation, self.start..self.start + self.bytes, access)
    }

    /// The elements of `range`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if they are not inside.
    pub(super) fn part<T>(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let size = size_of::<T>() as u64;
        // The size is not zero: no buffer has elements without bytes.
        let len = self.bytes.checked_div(size).unwrap_or(0);
        let range = bounds(range, len);
        if range.start > range.end || range.end as u64 > len {
            return Err(outside(&range, len));
        }
        let start = self.start + range.start as u64 * size;
        Ok(Self { start, bytes: range.len() as u64 * size, ..self })
    }

    /// Adds boundaries to the allocation at these bytes of it, so that the parts on both sides are ordered separately.
    /// The caller has the parts to itself.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] at the limit of pieces. No boundary is added then.
    pub(super) fn split(self, at: impl IntoIterator<Item = u64>) -> Result<()> {
        let end = self.allocation.bytes();
        self.allocation.split(at.into_iter().filter(|at| *at < end))
    }

    /// Splits into views of `size` elements. The last one may be shorter. Adds boundaries at the ends too: a view may
    /// begin or end inside a piece.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if `size` is 0, or as [`split`](Self::split).
    pub(super) fn chunks<T>(self, size: usize) -> Result<Vec<Self>> {
        let bytes = (size as u64).saturating_mul(size_of::<T>() as u64);
        Limit::AtLeast(1).check("a chunk of a buffer", Quantity::Bytes, bytes)?;
        if self.bytes <= bytes {
            return Ok(vec![self]);
        }
        let starts = || (0..self.bytes.div_ceil(bytes)).map(|chunk| chunk * bytes);
        self.split(starts().chain([self.bytes]).map(|at| self.start + at))?;
        let chunk = |at| View { start: self.start + at, bytes: bytes.min(self.bytes - at), ..self };
        Ok(starts().map(chunk).collect())
    }

    /// Copies all of `host` here.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the lengths differ, or an error of the device.
    pub(crate) fn upload<T: Element>(
        self,
        stream: &Stream,
        host: PinnedBuffer<T>,
    ) -> Result<Ticket> {
        self.same_length("an upload", host.len() as u64 * size_of::<T>() as u64)?;
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let pooled = host.into_pooled();
        let work = Work::Upload { from: start_of(&pooled), to: self.region(), bytes: self.bytes };
        let block = pooled.block().clone();
        let keep = Keep { until: Until::Accepted, resource: pooled };
        // SAFETY: the copy writes this view. The caller gave the host buffer up, so no other code writes the block, and
        // `keep` holds it.
        unsafe {
            stream.submit(
                &work,
                &[self.operand(Access::Write)],
                Attached { keep: Some(keep), host: Some(&block), ..Attached::default() },
            )
        }
    }

    /// Copies all of this to `host`.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub(crate) fn download<T: Element>(
        self,
        stream: &Stream,
        host: PinnedBuffer<T>,
    ) -> Result<Download<T>> {
        let len = host.len();
        self.same_length("a download", len as u64 * size_of::<T>() as u64)?;
        let pooled = host.into_pooled();
        let ticket = if self.bytes == 0 {
            nothing_on(stream)
        } else {
            let (from, to) = (self.region(), start_of(&pooled));
            let work = Work::Download { from, to, bytes: self.bytes };
            let keep = Keep { until: Until::Complete, resource: pooled.clone() };
            let operand = self.operand(Access::Read);
            // SAFETY: the copy reads this view. The download gives the block out when the copy is complete.
            unsafe {
                stream.submit(
                    &work,
                    &[operand],
                    Attached {
                        keep: Some(keep),
                        host: Some(pooled.block()),
                        ..Attached::default()
                    },
                )
            }?
        };
        Ok(Download::new(stream, ticket, pooled, len))
    }

    /// Copies all of `from` here.
    ///
    /// # Errors
    /// The errors of [`upload`](Self::upload).
    pub(super) fn copy_from(self, stream: &Stream, from: View<'_>) -> Result<Ticket> {
        self.same_length("a copy", from.bytes)?;
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let work = Work::Copy { from: from.region(), to: self.region(), bytes: self.bytes };
        let operands = [from.operand(Access::Read), self.operand(Access::Write)];
        // SAFETY: the copy reads `from` and writes this view.
        unsafe { stream.submit(&work, &operands, Attached::default()) }
    }

    /// Writes `value` to every element.
    ///
    /// # Errors
    /// [`Error::Misuse`] for elements that are not a repetition of one, two or four bytes, or an error of the device.
    pub(crate) fn fill<T: Element>(self, stream: &Stream, value: &T) -> Result<Ticket> {
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let Some(pattern) = pattern_of(bytemuck::bytes_of(value)) else {
            return Err(Misuse::FillPattern { element: std::any::type_name::<T>() }.into());
        };
        let work = Work::Fill { to: self.region(), pattern, count: self.bytes / pattern.bytes() };
        // SAFETY: the fill writes this view.
        unsafe { stream.submit(&work, &[self.operand(Access::Write)], Attached::default()) }
    }

    /// Writes the device's time to the first eight bytes.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if there are fewer, or an error of the device.
    pub(super) fn timestamp(self, stream: &Stream) -> Result<Ticket> {
        let to = self.part::<u64>(0..1)?;
        let work = Work::Timestamp { to: to.region() };
        // SAFETY: the device writes the eight bytes of `to`.
        unsafe { stream.submit(&work, &[to.operand(Access::Write)], Attached::default()) }
    }

    fn same_length(self, what: &'static str, other: u64) -> Result<()> {
        Limit::Exactly(self.bytes).check(what, Quantity::Bytes, other)
    }
}

/// Returns the error for elements that are not inside a buffer of `len` elements.
#[cold]
fn outside(range: &Range<usize>, len: u64) -> Error {
    let (start, end) = (range.start as u64, range.end as u64);
    let (quantity, given, most) =
        if end > len { (Quantity::End, end, len) } else { (Quantity::Start, start, end) };
    let range = format!("the range {range:?} of a buffer");
    Error::out_of_range(range, quantity, given, Limit::AtMost(most))
}

/// The elements of `range` among `len` elements. They may lie beyond the end.
pub(super) fn bounds(range: impl RangeBounds<usize>, len: u64) -> Range<usize> {
    let start = match range.start_bound() {
        Bound::Included(start) => *start,
        Bound::Excluded(before) => before.saturating_add(1),
        Bound::Unbounded => 0,
    };
    let end = match range.end_bound() {
        Bound::Included(last) => last.saturating_add(1),
        Bound::Excluded(end) => *end,
        Bound::Unbounded => usize::try_from(len).unwrap_or(usize::MAX),
    };
    start..end
}

/// Whether [`View::fill`] takes the value.
pub(super) fn is_pattern<T: Element>(value: &T) -> bool {
    pattern_of(bytemuck::bytes_of(value)).is_some()
}

/// The shortest pattern whose repetition is `bytes`.
fn pattern_of(bytes: &[u8]) -> Option<Pattern> {
    let repeats = |n: usize| {
        bytes.len().is_multiple_of(n) && bytes.chunks(n).all(|chunk| *chunk == bytes[..n])
    };
    match bytes {
        [first, ..] if repeats(1) => Some(Pattern::Byte(*first)),
        [a, b, ..] if repeats(2) => Some(Pattern::Half(u16::from_ne_bytes([*a, *b]))),
        [a, b, c, d, ..] if repeats(4) => Some(Pattern::Word(u32::from_ne_bytes([*a, *b, *c, *d]))),
        _ => None,
    }
}

/// The ticket that a call returns if it has nothing to submit. Number 0 counts as complete.
pub(super) fn nothing_on(stream: &Stream) -> Ticket {
    Ticket { stream: stream.id(), number: 0 }
}

/// A slice of a shared device buffer, for reading. It keeps the buffer alive.
pub struct SharedSlice<T> {
    buffer: Arc<DeviceBuffer<T>>,
    range: Range<usize>,
}

impl<T> DeviceBuffer<T> {
    /// Returns a slice of the elements in `range`, for operations that outlive this call. They may only read it. The
    /// slice keeps the buffer alive.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the buffer.
    pub fn share(self: &Arc<Self>, range: impl RangeBounds<usize>) -> Result<SharedSlice<T>> {
        let range = bounds(range, self.len() as u64);
        self.slice(range.clone())?;
        Ok(SharedSlice { buffer: self.clone(), range })
    }
}

impl<T> SharedSlice<T> {
    /// Returns a borrowed slice of the elements.
    pub fn as_slice(&self) -> Slice<'_, T> {
        // The range was checked when this was made, and a buffer never changes its length.
        self.buffer.slice(self.range.clone()).unwrap_or_else(|_| self.buffer.as_slice())
    }

    /// Returns a slice of the elements in `range`. The result keeps the buffer alive too.
    ///
    /// # Errors
    /// [`Error::OutOfRange`](crate::Error::OutOfRange) if `range` is not inside the slice.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Self> {
        let part = bounds(range, self.len() as u64);
        self.as_slice().slice(part.clone())?;
        let offset = |at: usize| self.range.start.saturating_add(at);
        Ok(Self { buffer: self.buffer.clone(), range: offset(part.start)..offset(part.end) })
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether the slice has no elements.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &Arc<DeviceBuffer<T>> {
        &self.buffer
    }
}

impl<T> Clone for SharedSlice<T> {
    fn clone(&self) -> Self {
        Self { buffer: self.buffer.clone(), range: self.range.clone() }
    }
}

impl<T> std::fmt::Debug for SharedSlice<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SharedSlice({} x {})", self.len(), std::any::type_name::<T>())
    }
}

#[cfg(all(test, not(loom)))]
mod view_tests {
    use super::*;

    #[test]
    fn patterns_are_the_shortest_repetition() {
        assert_eq!(pattern_of(&[7; 8]), Some(Pattern::Byte(7)));
        assert_eq!(pattern_of(&[1, 2, 1, 2]), Some(Pattern::Half(u16::from_ne_bytes([1, 2]))));
        let word = Pattern::Word(u32::from_ne_bytes([1, 2, 3, 4]));
        assert_eq!(pattern_of(&[1, 2, 3, 4, 1, 2, 3, 4]), Some(word));
        assert_eq!(pattern_of(&[1, 2, 3]), None);
        assert_eq!(pattern_of(&1.0f64.to_ne_bytes()), None);
        assert_eq!(pattern_of(&[]), None);
    }
}
