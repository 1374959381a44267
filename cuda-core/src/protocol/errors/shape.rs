//! Shapes that an operation requires.

use std::fmt;

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
