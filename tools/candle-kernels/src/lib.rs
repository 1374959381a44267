//! Replaces the crate `candle-kernels`, which candle's feature `cuda` needs and which only `nvcc` can compile.
//!
//! The workspace patches that crate with this one (`[patch.crates-io]`), so that the feature `candle-cuda` of
//! `cuda-tensor` compiles on every machine. Programs that depend on `cuda-tensor` get the real crate: a patch affects
//! only its own workspace.
//!
//! This crate has no kernels. Operations of candle that load one fail, and its launchers for quantized matrices abort
//! the process. Uploads, downloads, copies and views that need no kernel work.

/// The launchers of the compiled kernels.
pub mod ffi;

/// The name of a module of kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
#[allow(missing_docs)] // the names of the source files
pub enum Id {
    Affine,
    Binary,
    Cast,
    Conv,
    Fill,
    Indexing,
    Quantized,
    Reduce,
    Sort,
    Ternary,
    Unary,
}

/// All modules, in the order of their indices.
pub const ALL_IDS: [Id; 11] = [
    Id::Affine,
    Id::Binary,
    Id::Cast,
    Id::Conv,
    Id::Fill,
    Id::Indexing,
    Id::Quantized,
    Id::Reduce,
    Id::Sort,
    Id::Ternary,
    Id::Unary,
];

/// A module of kernels, with its code.
#[derive(Debug)]
pub struct Module {
    index: usize,
}

impl Module {
    /// Returns the index of the module in [`ALL_IDS`].
    pub fn index(&self) -> usize {
        self.index
    }

    /// Returns the PTX of the module. It has no kernels.
    pub fn ptx(&self) -> &'static str {
        ".version 7.0\n.target sm_52\n.address_size 64\n"
    }
}

macro_rules! modules {
    ($($name:ident: $id:ident;)*) => {$(
        #[allow(missing_docs)] // named after the variant of `Id`
        pub const $name: Module = Module { index: Id::$id as usize };
    )*};
}

modules! {
    AFFINE: Affine;
    BINARY: Binary;
    CAST: Cast;
    CONV: Conv;
    FILL: Fill;
    INDEXING: Indexing;
    QUANTIZED: Quantized;
    REDUCE: Reduce;
    SORT: Sort;
    TERNARY: Ternary;
    UNARY: Unary;
}
