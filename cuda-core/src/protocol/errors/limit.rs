//! Numbers and shapes in errors: what was given, and what an operation requires.

use std::{borrow::Cow, fmt};

use crate::protocol::{Error, Result};

/// The values that a number may have, in [`Error::OutOfRange`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// This number or less.
    AtMost(u64),
    /// This number or more.
    AtLeast(u64),
    /// Less than this number.
    Below(u64),
    /// This number only.
    Exactly(u64),
    /// A multiple of this number.
    MultipleOf(u64),
}

impl Limit {
    /// Returns whether `given` is a valid value.
    #[inline]
    pub const fn allows(self, given: u64) -> bool {
        match self {
            Self::AtMost(most) => given <= most,
            Self::AtLeast(least) => given >= least,
            Self::Below(end) => given < end,
            Self::Exactly(value) => given == value,
            Self::MultipleOf(unit) => given.is_multiple_of(unit),
        }
    }

    /// Checks the `quantity` of `object`, which is `given`.
    ///
    /// # Errors
    /// [`Error::OutOfRange`] if the limit does not allow it.
    #[inline]
    pub fn check(
        self,
        object: impl Into<Cow<'static, str>>,
        quantity: Quantity,
        given: u64,
    ) -> Result<()> {
        if self.allows(given) {
            return Ok(());
        }
        Err(Error::out_of_range(object, quantity, given, self))
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(most) => write!(f, "at most {most}"),
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::Below(end) => write!(f, "less than {end}"),
            Self::Exactly(value) => write!(f, "{value}"),
            Self::MultipleOf(unit) => write!(f, "a multiple of {unit}"),
        }
    }
}

macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $text:literal;)*) => {
        /// The quantity whose number is invalid, in [`Error::OutOfRange`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Quantity {
            $($(#[$doc])* $name,)*
        }

        impl fmt::Display for Quantity {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $text,)*
                })
            }
        }
    };
}

quantities! {
    /// Elements of a buffer, of host memory or of a tensor.
    Elements = "number of elements";
    /// Bytes of memory or of a message.
    Bytes = "number of bytes";
    /// The start of a range, in the unit of the object.
    Start = "start";
    /// The end of a range, in the unit of the object.
    End = "end";
    /// A position, from 0.
    Index = "index";
    /// A device address, in bytes.
    Address = "address";
    /// The dimensions of a shape.
    Dimensions = "number of dimensions";
    /// One dimension of a shape, from 0.
    Dimension = "dimension";
    /// The size of one dimension.
    Size = "size of the dimension";
    /// Separately ordered pieces of an allocation.
    Pieces = "number of pieces";
    /// Graph nodes of a recording.
    Nodes = "number of graph nodes";
    /// Edges between graph nodes.
    Edges = "number of edges";
    /// Accesses of graph nodes to pieces of memory.
    Accesses = "number of accesses to pieces of memory";
    /// Bytes of host memory that a graph keeps for its uploads.
    UploadedBytes = "number of bytes with its uploads";
    /// Loops inside each other.
    LoopDepth = "number of loops inside each other";
    /// Memory pools of a device.
    MemoryPools = "number of memory pools";
    /// Streams of a device.
    Streams = "number of streams";
    /// Copies to another device that were announced and have not begun.
    Transfers = "number of announced copies";
    /// The number of a submission on its stream.
    Submission = "submission";
    /// Operations that are composed.
    Operations = "number of operations";
    /// Devices of a group.
    Devices = "number of devices";
    /// Tensors of a collective.
    Tensors = "number of tensors";
    /// Leases of a request.
    Leases = "number of leases";
    /// Idle workers of a node.
    Workers = "number of idle workers";
}

/// Returns the action that helps against a `quantity` outside of `limit`.
fn advice(quantity: Quantity, limit: Limit) -> &'static str {
    match (quantity, limit) {
        (Quantity::Elements | Quantity::Bytes, Limit::AtMost(_) | Limit::Below(_)) => {
            "use fewer, or split the work"
        }
        (Quantity::Elements | Quantity::Bytes, Limit::AtLeast(_)) => "use more",
        (Quantity::Elements | Quantity::Bytes, Limit::Exactly(_)) => {
            "use the same length on both sides"
        }
        (Quantity::Elements | Quantity::Bytes, Limit::MultipleOf(_)) => {
            "use another length, or elements of another type"
        }
        (Quantity::Start | Quantity::End, _) => "use a range inside of it",
        (Quantity::Index, _) => "count from 0",
        (Quantity::Address, _) => "use aligned memory, for example a copy",
        (Quantity::Dimensions, Limit::AtLeast(_)) => "add some with `unsqueeze`",
        (Quantity::Dimensions, _) => "merge some of them",
        (Quantity::Dimension, _) => "count dimensions from 0",
        (Quantity::Size, _) => "use another dimension or another shape",
        (Quantity::Pieces, _) => "write the whole buffer at once, which joins them",
        (Quantity::Nodes | Quantity::Edges | Quantity::Accesses, _) => {
            "record parts of the operation"
        }
        (Quantity::UploadedBytes, _) => "upload before the graph, or record parts of the operation",
        (Quantity::LoopDepth, _) => "nest fewer loops",
        (Quantity::MemoryPools, _) => "drop one",
        (Quantity::Streams, _) => "drop one, and wait for its work",
        (Quantity::Transfers, _) => "wait for some of them first",
        (Quantity::Submission, _) => "submit it first",
        (Quantity::Operations | Quantity::Devices | Quantity::Leases, _) => "name one or more",
        (Quantity::Tensors, _) => "pass one for each device",
        (Quantity::Workers, _) => "use fewer",
    }
}

/// Writes the message of [`Error::OutOfRange`].
pub(super) fn out_of_range(object: &str, quantity: Quantity, given: u64, limit: Limit) -> String {
    let given = match quantity {
        Quantity::Address => format!("{given:#x}"),
        _ => given.to_string(),
    };
    let advice = advice(quantity, limit);
    format!("{object}: the {quantity} is {given} and must be {limit}; {advice}")
}

/// The shapes that an operation takes, in [`Error::Shape`](crate::Error::Shape).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ExpectedShape {
    /// This shape.
    Same(Box<[usize]>),
    /// A shape with as many elements as this one.
    ElementsOf(Box<[usize]>),
    /// A shape that can be broadcast to this one.
    BroadcastTo(Box<[usize]>),
    /// A shape that can be broadcast together with this one.
    BroadcastWith(Box<[usize]>),
    /// A tensor whose elements can have this shape without a copy.
    ViewAs(Box<[usize]>),
    /// A shape whose dimensions this order names once each.
    OrderedBy(Box<[usize]>),
    /// The first operand of a matrix product with an operand of this shape.
    ProductWith(Box<[usize]>),
    /// A shape that can be divided into tiles of this shape.
    TilesOf(Box<[usize]>),
    /// A shape with a property that is stated in words, as the rest of a sentence that begins with "must": `have one
    /// element; ..`.
    Form(&'static str),
}

impl fmt::Display for ExpectedShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Same(shape) => write!(f, "must be {shape:?}"),
            Self::ElementsOf(shape) => {
                write!(f, "cannot become {shape:?}, which has another number of elements")
            }
            Self::BroadcastTo(shape) => write!(
                f,
                "cannot be broadcast to {shape:?}: from the last dimension on, each size must be 1 or the same"
            ),
            Self::BroadcastWith(shape) => write!(
                f,
                "cannot be broadcast together with {shape:?}: from the last dimension on, two sizes must be the same, or \
                 one must be 1"
            ),
            Self::ViewAs(shape) => write!(
                f,
                "is that of a view, which cannot become {shape:?} without a copy; copy it first, with `dup()`"
            ),
            Self::OrderedBy(order) => {
                write!(f, "cannot have the order {order:?}, which must name each dimension once")
            }
            Self::ProductWith(shape) => write!(
                f,
                "cannot be multiplied by {shape:?}: the shapes must be [.., m, k] and [.., k, n], and the other dimensions \
                 must broadcast; see `unsqueeze` and `transpose`"
            ),
            Self::TilesOf(tile) => write!(
                f,
                "cannot be divided into tiles of {tile:?}: both must have the same number of dimensions, three at most, \
                 and no size of a tile may be 0"
            ),
            Self::Form(form) => write!(f, "must {form}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_allow_their_values() {
        let cases = [
            (Limit::AtMost(3), [true, true, false]),
            (Limit::AtLeast(3), [false, true, true]),
            (Limit::Below(3), [true, false, false]),
            (Limit::Exactly(3), [false, true, false]),
            (Limit::MultipleOf(4), [false, false, true]),
        ];
        for (limit, expected) in cases {
            assert_eq!([2, 3, 4].map(|given| limit.allows(given)), expected, "{limit:?}");
        }
        // Only 0 is a multiple of 0.
        assert_eq!([0, 1].map(|given| Limit::MultipleOf(0).allows(given)), [true, false]);
    }

    #[test]
    fn message_has_object_number_limit_and_advice() {
        let said = |quantity, given, limit: Limit| {
            limit.check("a buffer", quantity, given).unwrap_err().to_string()
        };
        assert_eq!(
            said(Quantity::End, 9, Limit::AtMost(8)),
            "a buffer: the end is 9 and must be at most 8; use a range inside of it"
        );
        assert_eq!(
            said(Quantity::Address, 18, Limit::MultipleOf(4)),
            "a buffer: the address is 0x12 and must be a multiple of 4; use aligned memory, for example a copy"
        );
    }
}
