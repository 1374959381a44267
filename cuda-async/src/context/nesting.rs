//! A limit on boxes whose polls are nested.

use cuda_core::Result;

use crate::{context::tree::ExecutionContext, misuse};

/// The maximum number of nested [`boxed`](crate::ops::DeviceOp::boxed) operations in one operation: 128. More of them
/// are an error, because polls and drops of nested boxes use the stack. The limit fits in a stack of 2 MiB, with 16 KiB
/// for each box.
///
/// A step of your own that polls boxed steps forwards [`Submit::nested_boxes`](crate::op::Submit::nested_boxes).
pub const MAX_NESTED_BOXES: usize = 128;

/// Counts one nested poll, until it is dropped.
pub(crate) struct Nesting<'a> {
    cx: &'a ExecutionContext,
    before: usize,
}

impl ExecutionContext {
    /// Counts the poll of a box.
    ///
    /// # Errors
    /// If the polls of [`MAX_NESTED_BOXES`] boxes are nested already.
    pub(crate) fn enter_box(&self) -> Result<Nesting<'_>> {
        let before = self.nesting();
        if before >= MAX_NESTED_BOXES {
            return Err(misuse::too_many_nested_boxes(MAX_NESTED_BOXES));
        }
        self.set_nesting(before + 1);
        Ok(Nesting { cx: self, before })
    }
}

impl Drop for Nesting<'_> {
    fn drop(&mut self) {
        self.cx.set_nesting(self.before);
    }
}
