//! The programs of the book's chapters about tensors run as doctests, one item to a chapter.
#![cfg(doctest)]

#[doc = include_str!("../../book/src/tensors.md")]
struct Tensors;

#[doc = include_str!("../../book/src/products.md")]
struct Products;

#[cfg(feature = "dlpack")]
#[doc = include_str!("../../book/src/dlpack.md")]
struct DlPack;
