//! Reading and writing the fields of a message.
//!
//! Numbers are little-endian. Texts and byte strings have a `u32` length before them, lists a `u32` count, optional
//! fields one byte that is 0 or 1. A length is checked against the bytes that are left before anything is allocated, so
//! a message never allocates more than a small multiple of its own size.

use bytes::Bytes;
use cuda_core::internals::text_prefix;

/// An error in the bytes of a peer. The connection that carried them ends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A message ends before its fields do.
    #[error("the message is truncated: a field needs {missing} more bytes")]
    Truncated {
        /// The number of bytes that are missing.
        missing: usize,
    },
    /// A frame or a field is longer than its limit.
    #[error("{what} has {length} bytes, the limit is {limit}; send less")]
    TooLong {
        /// The frame or field.
        what: &'static str,
        /// Its length in bytes.
        length: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// A frame has an opcode that this side does not know or does not expect here.
    #[error("the opcode {opcode:#06x} is unknown or not allowed here")]
    UnexpectedOpcode {
        /// The opcode.
        opcode: u16,
    },
    /// A field has a value that the schema does not define.
    #[error("{what} has the undefined value {value}")]
    Undefined {
        /// The field.
        what: &'static str,
        /// The value.
        value: u64,
    },
    /// A text is not UTF-8.
    #[error("a text is not valid UTF-8")]
    NotText,
    /// A message has an additional field that must be understood, and this side does not know it.
    #[error("the message has the unknown required field {tag:#06x}; update this program")]
    RequiredField {
        /// The tag of the field.
        tag: u16,
    },
    /// A field is nested too deeply.
    #[error("{what} in the message is nested more than {limit} times")]
    TooDeep {
        /// The field.
        what: &'static str,
        /// The limit.
        limit: u32,
    },
    /// A list has more items than its limit.
    #[error("the message has {count} {what}, the limit is {limit}; send fewer")]
    TooMany {
        /// The items.
        what: &'static str,
        /// Their number.
        count: u64,
        /// The limit.
        limit: u64,
    },
    /// A node of a graph does not come after smaller indices in ascending order.
    #[error(
        "graph node {node} lists predecessor {after}; predecessors must have smaller indices, in ascending order"
    )]
    NodeOrder {
        /// The index of the node.
        node: u32,
        /// The index that it names.
        after: u32,
    },
}

/// The maximum length of a text in bytes. Writers cut longer texts.
pub const TEXT_LIMIT: usize = 256 << 10;

/// Writes fields to a byte vector.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
    text_limit: usize,
}

impl<'a> Writer<'a> {
    /// Creates a writer that appends to `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, text_limit: TEXT_LIMIT }
    }

    /// Returns a writer that appends to the same bytes and cuts texts to `limit` bytes.
    pub(super) fn with_text_limit(&mut self, limit: usize) -> Writer<'_> {
        Writer { out: self.out, text_limit: limit.min(self.text_limit) }
    }

    /// Writes one field.
    #[inline]
    pub fn put<'f, T: Field<'f>>(&mut self, field: T) -> &mut Self {
        field.put(self);
        self
    }

    /// Writes one field, without a copy of it.
    #[inline]
    pub fn put_ref<'f, T: Field<'f>>(&mut self, field: &T) -> &mut Self {
        field.put(self);
        self
    }

    /// Writes bytes with their length.
    pub fn put_bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.put(length(bytes.len()));
        self.out.extend_from_slice(bytes);
        self
    }

    /// Writes bytes without their length.
    pub fn put_raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Writes a text, cut to [`TEXT_LIMIT`].
    pub fn put_text(&mut self, text: &str) -> &mut Self {
        self.put_bytes(text_prefix(text, self.text_limit).as_bytes())
    }

    /// Writes a text without its length, cut to [`TEXT_LIMIT`].
    pub(super) fn put_raw_text(&mut self, text: &str) -> &mut Self {
        self.put_raw(text_prefix(text, self.text_limit).as_bytes())
    }

    /// Writes the bytes that `put` writes, with their length in front.
    pub(super) fn put_sized(&mut self, put: impl FnOnce(&mut Self)) -> &mut Self {
        self.put(0u32);
        let start = self.out.len();
        put(self);
        let length = length(self.out.len() - start);
        self.out[start - 4..start].copy_from_slice(&length.to_le_bytes());
        self
    }

    /// Writes an additional field, which readers of earlier versions skip. All such fields are at the end of a message.
    pub fn put_tagged<'f, T: Field<'f>>(&mut self, tag: u16, field: &T) -> &mut Self {
        self.put(tag).put_sized(|w| field.put(w))
    }

    /// Writes a list: its count, then its items.
    pub fn put_list<T>(&mut self, items: &[T], put: impl Fn(&mut Self, &T)) -> &mut Self {
        self.put(length(items.len()));
        items.iter().for_each(|item| put(self, item));
        self
    }
}

/// A length as it is written. A length beyond 32 bits is written as the largest one, which every reader refuses.
pub(super) fn length(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

/// Reads fields from the body of a message.
#[derive(Debug, Clone)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Creates a reader of a message's body.
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// Returns the bytes that are not read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// Reads one field.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the bytes end inside the field, or [`WireError::Undefined`] if the value is not
    /// defined.
    #[inline]
    pub fn get<T: Field<'a>>(&mut self) -> Result<T, WireError> {
        T::get(self)
    }

    /// Reads `count` bytes.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn take(&mut self, count: usize) -> Result<&'a [u8], WireError> {
        match self.0.split_at_checked(count) {
            Some((taken, rest)) => {
                self.0 = rest;
                Ok(taken)
            }
            None => Err(WireError::Truncated { missing: count - self.0.len() }),
        }
    }

    /// Reads bytes with their length.
    ///
    /// # Errors
    /// [`WireError::Truncated`].
    #[inline]
    pub fn get_bytes(&mut self) -> Result<&'a [u8], WireError> {
        let length: u32 = self.get()?;
        self.take(length as usize)
    }

    /// Reads a text.
    ///
    /// # Errors
    /// An error if the bytes end, or are longer than [`TEXT_LIMIT`], or are not UTF-8.
    pub fn get_text(&mut self) -> Result<&'a str, WireError> {
        text(self.get_bytes()?)
    }

    /// Returns the bytes that are not read yet, as a text.
    pub(super) fn rest_text(&self) -> Result<&'a str, WireError> {
        text(self.0)
    }

    /// Reads a list whose items have at least `least` bytes each.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the count is larger than the rest of the message can hold, or the error of an item.
    #[inline]
    pub fn get_list<T>(
        &mut self,
        least: usize,
        mut get: impl FnMut(&mut Self) -> Result<T, WireError>,
    ) -> Result<Vec<T>, WireError> {
        let count: u32 = self.get()?;
        let needed = (count as usize).saturating_mul(least.max(1));
        if needed > self.0.len() {
            return Err(WireError::Truncated { missing: needed - self.0.len() });
        }
        // Most lists are short. The space for a longer one grows with the items that are there.
        let mut items = Vec::with_capacity(count.min(8) as usize);
        for _ in 0..count {
            items.push(get(self)?);
        }
        Ok(items)
    }

    /// Reads the additional fields at the end of a message. Each has a `u16` tag, a `u32` length, and its bytes. Skips
    /// unknown tags below 0x8000.
    ///
    /// # Errors
    /// [`WireError::RequiredField`] for a tag from 0x8000, or [`WireError::Truncated`].
    #[inline]
    pub fn finish(self) -> Result<(), WireError> {
        self.finish_with(|_, _| Ok(false))
    }

    /// As [`finish`](Self::finish), and passes each additional field to `take`, which returns whether it knows the tag.
    ///
    /// # Errors
    /// The errors of [`finish`](Self::finish), or the error of `take`.
    #[inline]
    pub fn finish_with(
        mut self,
        mut take: impl FnMut(u16, &mut Reader<'a>) -> Result<bool, WireError>,
    ) -> Result<(), WireError> {
        while !self.0.is_empty() {
            let tag: u16 = self.get()?;
            let mut field = Reader::new(self.get_bytes()?);
            if !take(tag, &mut field)? && tag >= 0x8000 {
                return Err(WireError::RequiredField { tag });
            }
        }
        Ok(())
    }
}

/// Checks a text.
fn text(bytes: &[u8]) -> Result<&str, WireError> {
    if bytes.len() > TEXT_LIMIT {
        let (length, limit) = (bytes.len() as u64, TEXT_LIMIT as u64);
        return Err(WireError::TooLong { what: "a text", length, limit });
    }
    std::str::from_utf8(bytes).map_err(|_| WireError::NotText)
}

/// A value that is one field of a message. `'a` is the lifetime of bytes that it borrows from the message.
pub trait Field<'a>: Sized {
    /// The smallest number of bytes that a value has. A list is refused if its items cannot be in the rest of the
    /// message.
    const LEAST: usize = 1;

    /// Appends the field.
    fn put(&self, w: &mut Writer<'_>);

    /// Reads the field.
    ///
    /// # Errors
    /// [`WireError::Truncated`] if the bytes end inside the field, or [`WireError::Undefined`] if the value is not
    /// defined.
    fn get(r: &mut Reader<'a>) -> Result<Self, WireError>;
}

/// An enum whose variants have tags. The tag is the opcode of a frame, or a field in front of those of the variant.
pub trait Variants<'a>: Sized {
    /// The type of the tags.
    type Tag;

    /// Returns whether a variant has this tag.
    fn has(tag: Self::Tag) -> bool;

    /// Returns the tag. `None` for a variant that has no bytes.
    fn tag(&self) -> Option<Self::Tag>;

    /// Appends the fields of the variant.
    fn put_fields(&self, w: &mut Writer<'_>);

    /// Reads the fields of the variant with this tag. Returns `None` if there is no such variant.
    ///
    /// # Errors
    /// The error of a field.
    fn get_fields(tag: Self::Tag, r: &mut Reader<'a>) -> Result<Option<Self>, WireError>;
}

/// Gives structs their bytes: the named fields, in this order. `[n]` states the smallest number of bytes.
macro_rules! fields {
    ($($(#[$meta:meta])* $ty:ident $([$least:expr])? { $($field:tt),* $(,)? })*) => {$(
        $(#[$meta])*
        impl $crate::wire::Field<'_> for $ty {
            $(const LEAST: usize = $least;)?

            #[inline]
            fn put(&self, w: &mut $crate::wire::Writer<'_>) {
                $(w.put_ref(&self.$field);)*
            }

            #[inline]
            fn get(r: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                Ok(Self { $($field: r.get()?),* })
            }
        }
    )*};
}
pub(super) use fields;

/// Stops the compilation if two variants have one tag: the second one could not be read.
pub(super) const fn assert_distinct(tags: &[u64]) {
    let mut at = 0;
    while at < tags.len() {
        let mut earlier = 0;
        while earlier < at {
            assert!(tags[earlier] != tags[at], "two variants have the same tag");
            earlier += 1;
        }
        at += 1;
    }
}

/// Gives enums their bytes: a tag for each variant, and its fields in this order. With `= "name"` the enum is a field
/// of messages, and its bytes begin with the tag.
macro_rules! variants {
    ($($ty:ident $(<$life:lifetime>)?: $tag:ty $(= $what:literal)? {
        $($value:expr => $variant:ident $(($($item:ident),*))? $({ $($field:ident),* })?,)*
    })*) => {$(
        const _: () = $crate::wire::codec::assert_distinct(&[$($value as u64),*]);

        impl<'a> $crate::wire::Variants<'a> for $ty $(<$life>)? {
            type Tag = $tag;

            #[inline]
            fn has(tag: $tag) -> bool {
                false $(|| tag == $value)*
            }

            #[inline]
            #[allow(unreachable_patterns)]
            fn tag(&self) -> Option<$tag> {
                match self {
                    $($ty::$variant { .. } => Some($value),)*
                    _ => None,
                }
            }

            #[inline]
            #[allow(unreachable_patterns)]
            fn put_fields(&self, _w: &mut $crate::wire::Writer<'_>) {
                match self {
                    $($ty::$variant $(($($item),*))? $({ $($field),* })? => {
                        $($(_w.put_ref($item);)*)?
                        $($(_w.put_ref($field);)*)?
                    })*
                    _ => {}
                }
            }

            #[inline]
            fn get_fields(
                tag: $tag,
                _r: &mut $crate::wire::Reader<'a>,
            ) -> Result<Option<Self>, $crate::wire::WireError> {
                $(if tag == $value {
                    $($(let $item = _r.get()?;)*)?
                    return Ok(Some($ty::$variant $(($($item),*))? $({ $($field: _r.get()?),* })?));
                })*
                Ok(None)
            }
        }

        $(impl $crate::wire::Field<'_> for $ty {
            /// A variant that has no bytes is written as a tag that no reader knows.
            fn put(&self, w: &mut $crate::wire::Writer<'_>) {
                let tag = $crate::wire::Variants::tag(self);
                w.put(tag.unwrap_or(<$tag>::MAX));
                $crate::wire::Variants::put_fields(self, w);
            }

            fn get(r: &mut $crate::wire::Reader<'_>) -> Result<Self, $crate::wire::WireError> {
                let tag: $tag = r.get()?;
                let undefined = $crate::wire::WireError::Undefined { what: $what, value: tag.into() };
                $crate::wire::Variants::get_fields(tag, r)?.ok_or(undefined)
            }
        })?
    )*};
}
pub(super) use variants;

macro_rules! numbers {
    ($($ty:ty)*) => {$(
        impl Field<'_> for $ty {
            const LEAST: usize = size_of::<$ty>();

            #[inline]
            fn put(&self, w: &mut Writer<'_>) {
                w.out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline]
            fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
                let mut bytes = [0; size_of::<$ty>()];
                bytes.copy_from_slice(r.take(size_of::<$ty>())?);
                Ok(<$ty>::from_le_bytes(bytes))
            }
        }
    )*};
}

numbers! { u8 u16 u32 u64 i32 }

impl Field<'_> for bool {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(u8::from(*self));
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        match r.get::<u8>()? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(WireError::Undefined { what: "a flag", value: other.into() }),
        }
    }
}

impl Field<'_> for String {
    const LEAST: usize = u32::LEAST;

    fn put(&self, w: &mut Writer<'_>) {
        w.put_text(self);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get_text().map(str::to_owned)
    }
}

impl<'a> Field<'a> for &'a [u8] {
    const LEAST: usize = u32::LEAST;

    fn put(&self, w: &mut Writer<'_>) {
        w.put_bytes(self);
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
        r.get_bytes()
    }
}

impl Field<'_> for Bytes {
    const LEAST: usize = u32::LEAST;

    fn put(&self, w: &mut Writer<'_>) {
        w.put_bytes(self);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        r.get_bytes().map(Bytes::copy_from_slice)
    }
}

impl<const N: usize> Field<'_> for [u8; N] {
    const LEAST: usize = N;

    fn put(&self, w: &mut Writer<'_>) {
        w.put_raw(self);
    }

    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(r.take(N)?);
        Ok(bytes)
    }
}

impl Field<'_> for [u32; 3] {
    const LEAST: usize = 12;

    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self[0]).put(self[1]).put(self[2]);
    }

    #[inline]
    fn get(r: &mut Reader<'_>) -> Result<Self, WireError> {
        Ok([r.get()?, r.get()?, r.get()?])
    }
}

impl<'a, A: Field<'a>, B: Field<'a>> Field<'a> for (A, B) {
    const LEAST: usize = A::LEAST + B::LEAST;

    fn put(&self, w: &mut Writer<'_>) {
        w.put_ref(&self.0).put_ref(&self.1);
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok((r.get()?, r.get()?))
    }
}

impl<'a, T: Field<'a>> Field<'a> for Option<T> {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.is_some());
        if let Some(value) = self {
            value.put(w);
        }
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
        if r.get::<bool>()? { r.get().map(Some) } else { Ok(None) }
    }
}

impl<'a, T: Field<'a>, E: Field<'a>> Field<'a> for Result<T, E> {
    fn put(&self, w: &mut Writer<'_>) {
        w.put(self.is_ok());
        match self {
            Ok(value) => value.put(w),
            Err(error) => error.put(w),
        }
    }

    fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
        Ok(if r.get::<bool>()? { Ok(r.get()?) } else { Err(r.get()?) })
    }
}

impl<'a, T: Field<'a>> Field<'a> for Vec<T> {
    const LEAST: usize = u32::LEAST;

    #[inline]
    fn put(&self, w: &mut Writer<'_>) {
        w.put_list(self, |w, item| item.put(w));
    }

    #[inline]
    fn get(r: &mut Reader<'a>) -> Result<Self, WireError> {
        r.get_list(T::LEAST, T::get)
    }
}

/// Declares a message: a struct whose fields travel in the order of their declaration. Fields behind `+` are additional
/// ones, each with its tag: they are absent or present, and readers of earlier versions skip them.
#[doc(hidden)]
#[macro_export]
macro_rules! message {
    ($($(#[$doc:meta])* $name:ident = $opcode:expr; {
        $($(#[$field_doc:meta])* $field:ident: $ty:ty,)*
    } $(+ {
        $($(#[$tagged_doc:meta])* $tagged:ident: $tagged_ty:ty = $tag:expr,)*
    })?)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $ty,)*
            $($($(#[$tagged_doc])* pub $tagged: Option<$tagged_ty>,)*)?
        }

        impl $name {
            /// The opcode of this message.
            pub const OPCODE: u16 = $opcode;

            /// Appends the body of this message.
            pub fn encode(&self, out: &mut Vec<u8>) {
                #[allow(unused_mut, unused_variables)]
                let mut w = $crate::wire::Writer::new(out);
                $(w.put_ref(&self.$field);)*
                $($(if let Some(field) = &self.$tagged {
                    w.put_tagged($tag, field);
                })*)?
            }

            /// Reads a body of this message.
            ///
            /// # Errors
            /// An error if the bytes are no such message.
            pub fn decode(body: &[u8]) -> Result<Self, $crate::wire::WireError> {
                #[allow(unused_mut)]
                let mut r = $crate::wire::Reader::new(body);
                #[allow(unused_mut)]
                let mut message = Self { $($field: r.get()?,)* $($($tagged: None,)*)? };
                r.finish_with(|_tag, _field| {
                    $($(if _tag == $tag {
                        message.$tagged = Some(_field.get()?);
                        return Ok(true);
                    })*)?
                    Ok(false)
                })?;
                Ok(message)
            }
        }
    )*};
}
pub(crate) use message;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_optional_field_is_skipped_and_unknown_required_field_is_an_error() {
        let mut body = Vec::new();
        Writer::new(&mut body).put(7u16).put_bytes(b"later");
        assert_eq!(Reader::new(&body).finish(), Ok(()));
        Writer::new(&mut body).put(0x8001u16).put_bytes(b"");
        assert_eq!(Reader::new(&body).finish(), Err(WireError::RequiredField { tag: 0x8001 }));
    }

    #[test]
    fn count_beyond_the_message_allocates_nothing() {
        let body = [0xff, 0xff, 0xff, 0xff, 1, 2, 3];
        let list: Result<Vec<u64>, _> = Reader::new(&body).get();
        assert!(matches!(list, Err(WireError::Truncated { .. })));
    }

    #[test]
    fn long_text_is_cut_at_a_character() {
        let text = "é".repeat(TEXT_LIMIT);
        let mut body = Vec::new();
        Writer::new(&mut body).put_text(&text);
        let read = Reader::new(&body).get_text().unwrap().to_owned();
        assert_eq!(read.len(), TEXT_LIMIT);
        assert!(read.chars().all(|character| character == 'é'));
    }
}
