//! A view: a range of bytes of an allocation, and the copies and fills on it. Buffers and slices own or borrow a view
//! under different rules, and submit the same work.
//!
//! # Rules
//! A handle writes through a view only while it has exclusive access to the bytes, or takes the turns of a marked
//! allocation. It reads through a view only while no other handle can write the bytes, by the same rules.

use std::{
    ops::{Bound, Range, RangeBounds},
    sync::Arc,
};

use super::{
    landing::Landing,
    pinned::{PinnedBuffer, start_of},
};
use crate::{
    handle::stream::{Allocation, Attached, Keep, Operand, Stream},
    order::retention::Until,
    protocol::{Access, Element, Error, Pattern, Region, Result, Ticket, Work},
};

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
            let detail = format!("elements {range:?} are not inside 0..{len}; use a smaller range");
            return Err(Error::OutOfRange { what: "a part of a buffer".into(), detail });
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
        if bytes == 0 {
            let detail = "a chunk of 0 elements; use a size of at least 1".into();
            return Err(Error::OutOfRange { what: "splitting a buffer".into(), detail });
        }
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
        let lease = host.into_lease();
        let work = Work::Upload { from: start_of(&lease), to: self.region(), bytes: self.bytes };
        let block = lease.block().clone();
        let keep = Keep { until: Until::Accepted, resource: lease };
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
    /// As [`upload`](Self::upload).
    pub(crate) fn download<T: Element>(
        self,
        stream: &Stream,
        host: PinnedBuffer<T>,
    ) -> Result<Landing<T>> {
        let len = host.len();
        self.same_length("a download", len as u64 * size_of::<T>() as u64)?;
        let lease = host.into_lease();
        let ticket = if self.bytes == 0 {
            nothing_on(stream)
        } else {
            let (from, to) = (self.region(), start_of(&lease));
            let work = Work::Download { from, to, bytes: self.bytes };
            let keep = Keep { until: Until::Complete, resource: lease.clone() };
            let operand = self.operand(Access::Read);
            // SAFETY: the copy reads this view. The landing gives the block out when the copy is complete.
            unsafe {
                stream.submit(
                    &work,
                    &[operand],
                    Attached { keep: Some(keep), host: Some(lease.block()), ..Attached::default() },
                )
            }?
        };
        Ok(Landing::new(stream, ticket, lease, len))
    }

    /// Copies all of `from` here.
    ///
    /// # Errors
    /// As [`upload`](Self::upload).
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
    /// [`Error::OutOfRange`] for elements that are not a repetition of one, two or four bytes, or an error of the device.
    pub(crate) fn fill<T: Element>(self, stream: &Stream, value: &T) -> Result<Ticket> {
        if self.bytes == 0 {
            return Ok(nothing_on(stream));
        }
        let Some(pattern) = pattern_of(bytemuck::bytes_of(value)) else {
            let what = format!("filling with a {}", std::any::type_name::<T>()).into();
            let detail =
                "the value is not a repetition of one, two or four bytes; upload it".into();
            return Err(Error::OutOfRange { what, detail });
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
        if self.bytes == other {
            return Ok(());
        }
        let here = self.bytes;
        let detail = format!(
            "{other} bytes and {here} bytes of device memory; both sides must have the same length"
        );
        Err(Error::OutOfRange { what: what.into(), detail })
    }
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
    let repeats =
        |n: usize| bytes.len().is_multiple_of(n) && bytes.chunks(n).all(|it| *it == bytes[..n]);
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

#[cfg(all(test, not(loom)))]
mod tests {
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
