//! The declaration of a kernel in `kernels!`, for the check of PTX that is compiled at run time. Generated code uses
//! it.

use cuda_core::{Error, Result, protocol};
use cuda_nvrtc::signature;
pub use cuda_nvrtc::signature::{Declared, NumberKind, Scalar};

/// Returns the size of a value for [`Declared::Value`]. A larger size than any parameter has is `u32::MAX`.
pub const fn size_of_value<T>() -> Option<u32> {
    let size = size_of::<T>();
    Some(if size > u32::MAX as usize { u32::MAX } else { size as u32 })
}

/// An entry that a program declares.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    /// The name in the PTX.
    pub entry: &'static str,
    /// The arguments: as they are written, and their types.
    pub arguments: &'static [(&'static str, Declared)],
}

impl Kernel {
    /// Compares the declaration with a PTX text.
    ///
    /// # Errors
    /// [`Error::NoSuchKernel`], [`Error::Arguments`] and [`Error::InvalidPtx`].
    pub(super) fn check_all(kernels: &[Self], ptx: &str) -> Result<()> {
        if kernels.is_empty() {
            return Ok(());
        }
        let entries = protocol::entries(ptx)?;
        kernels.iter().try_for_each(|kernel| kernel.check(&entries, ptx))
    }

    fn check(&self, entries: &[protocol::EntryInfo], ptx: &str) -> Result<()> {
        let Some(entry) = entries.iter().find(|entry| entry.name == self.entry) else {
            let names: Vec<_> = entries.iter().map(|entry| format!("`{}`", entry.name)).collect();
            let available = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            return Err(Error::NoSuchKernel { name: self.entry.to_owned(), available });
        };
        let wrong = |detail| Error::Arguments { kernel: self.entry.to_owned(), detail };
        let (want, have) = (entry.params.len(), self.arguments.len());
        if want != have {
            return Err(wrong(format!(
                "the source has {want} parameters, the declaration has {have}"
            )));
        }
        let types = signature::of_entry(ptx, self.entry).filter(|types| types.len() == want);
        for (index, ((shown, declared), param)) in
            self.arguments.iter().zip(&entry.params).enumerate()
        {
            let size = match declared {
                Declared::Buffer { .. } => Some(8),
                Declared::Scalar(number) => Some(number.size),
                Declared::Value(size) => *size,
            };
            if let Some(size) = size.filter(|size| *size != param.size) {
                let detail = format!(
                    "parameter {index} is `{}` ({} bytes), but `{shown}` has {size} bytes; change the declaration or the source",
                    param.ty, param.size,
                );
                return Err(wrong(detail));
            }
            let ty = types.as_ref().and_then(|types| types.get(index));
            if let Some((ty, why)) = ty.and_then(|ty| Some((ty, ty.misfit(*declared)?))) {
                return Err(wrong(format!(
                    "parameter {index} is `{ty}` in the source, but `{shown}` {why}"
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "// cuda-nvrtc: signature k _Z20cuda_nvrtc_signatureIPFvPKfPfjEEvv
.version 8.0\n.target sm_80\n.address_size 64
.visible .entry k(.param .u64 a, .param .u64 b, .param .u32 n) { ret; }";
    const FLOATS: Option<Scalar> = Some(Scalar { kind: NumberKind::Float, size: 4 });
    const N: Scalar = Scalar { kind: NumberKind::Integer, size: 4 };

    fn message(entry: &'static str, arguments: &'static [(&'static str, Declared)]) -> String {
        let checked = Kernel::check_all(&[Kernel { entry, arguments }], PTX);
        checked.err().map_or_else(String::new, |error| error.to_string())
    }

    #[test]
    fn declaration_is_compared_with_compiled_text() {
        const A: (&str, Declared) =
            ("a: &[f32]", Declared::Buffer { element: FLOATS, written: false });
        const B: (&str, Declared) =
            ("b: &mut [f32]", Declared::Buffer { element: FLOATS, written: true });
        const B_READ: (&str, Declared) =
            ("b: &[f32]", Declared::Buffer { element: FLOATS, written: false });
        const LAST: (&str, Declared) = ("n: u32", Declared::Scalar(N));
        const WIDE: (&str, Declared) = ("n: Wide", Declared::Value(Some(8)));
        assert_eq!(message("k", &[A, B, LAST]), "");
        assert!(message("other", &[]).contains("no kernel `other` in the module; it has `k`"));
        assert!(
            message("k", &[A, B]).ends_with("the source has 3 parameters, the declaration has 2")
        );
        assert!(
            message("k", &[A, B, WIDE])
                .contains("parameter 2 is `u32` (4 bytes), but `n: Wide` has 8 bytes")
        );
        assert!(
            message("k", &[A, B_READ, LAST])
                .contains("parameter 1 is `float *` in the source, but `b: &[f32]` is only read")
        );
    }
}
