//! Faults of kernels, and their places in the source of a program.

use std::{borrow::Cow, fmt};

/// A kernel's fault, with the details that the device knows. A CPU device fills every field. A GPU fills the kind, and
/// few other fields.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fault {
    /// The fault in words: "out-of-bounds write of 4 bytes in global memory".
    pub what: String,
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The kernel, if known.
    pub kernel: Option<String>,
    /// The place of the fault, if known.
    pub site: Option<FaultSite>,
    /// The advice for bringing the device back, if the backend gave it. The message of [`Error`](crate::Error) contains
    /// it; this fault's own text does not.
    pub recovery: Option<Cow<'static, str>>,
}

impl Fault {
    /// Creates a fault of which only the kind and the text are known.
    pub fn new(kind: FaultKind, what: impl Into<String>) -> Self {
        Self { what: what.into(), kind, kernel: None, site: None, recovery: None }
    }

    /// Sets the kernel of the fault.
    pub fn in_kernel(mut self, kernel: impl Into<String>) -> Self {
        self.kernel = Some(kernel.into());
        self
    }

    /// Sets the place of the fault.
    pub fn at(mut self, site: FaultSite) -> Self {
        self.site = Some(site);
        self
    }

    /// Sets the advice for bringing the device back.
    pub fn recovery(mut self, way: impl Into<Cow<'static, str>>) -> Self {
        self.recovery = Some(way.into());
        self
    }

    /// The end of an error's message, after this fault's text.
    pub(crate) fn advice(&self) -> String {
        self.recovery.as_ref().map_or_else(String::new, |way| format!("; {way}"))
    }
}

/// The kind of a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside every allocation, or to freed memory.
    IllegalAddress,
    /// An access that is not aligned to its size.
    Misaligned,
    /// A device-side `assert` failed.
    Assert,
    /// The kernel executed a `trap` instruction.
    Trap,
    /// Threads wait at barriers or for each other, and none can continue.
    Deadlock,
    /// Threads of a warp wait at different barriers, where all of them must execute the same one.
    BarrierDivergence,
    /// A read of memory that was never written.
    Uninitialized,
    /// Two threads use the same memory, one of them writes, and nothing orders them.
    Race,
    /// A write through an argument that the launch only reads.
    ReadOnlyArgument,
    /// The launch executed more instructions than its budget allows.
    Budget,
    /// Any other fault.
    Other,
}

/// The place of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultSite {
    /// `blockIdx` of the thread.
    pub block: [u32; 3],
    /// `threadIdx` of the thread.
    pub thread: [u32; 3],
    /// The address that was accessed, for faults of accesses.
    pub address: Option<u64>,
    /// The line in the PTX, from 1.
    pub ptx_line: Option<u32>,
    /// The line in the source that was compiled to it, if the PTX names it (`-lineinfo`).
    pub source: Option<SourceLine>,
    /// The allocation next to the address, in words.
    pub nearest: Option<String>,
}

impl FaultSite {
    /// Creates a place of which only the thread is known.
    pub fn new(block: [u32; 3], thread: [u32; 3]) -> Self {
        Self { block, thread, address: None, ptx_line: None, source: None, nearest: None }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if let Some(kernel) = &self.kernel {
            write!(f, " in kernel `{kernel}`")?;
        }
        self.site.as_ref().map_or(Ok(()), |site| site.fmt(f))
    }
}

impl fmt::Display for FaultSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ([bx, by, bz], [tx, ty, tz]) = (self.block, self.thread);
        write!(f, ", block ({bx}, {by}, {bz}), thread ({tx}, {ty}, {tz})")?;
        if let Some(line) = self.ptx_line {
            write!(f, ", PTX line {line}")?;
        }
        if let Some(source) = &self.source {
            write!(f, ", {source}")?;
        }
        if let Some(address) = self.address {
            write!(f, ", address {address:#x}")?;
        }
        self.nearest.as_ref().map_or(Ok(()), |nearest| write!(f, " ({nearest})"))
    }
}

/// A place in the source that PTX was compiled from, according to its `.loc` directives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct SourceLine {
    /// The path of the file, as it was passed to the compiler.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
    /// The position of the call, if this place is in an inlined function.
    pub inlined_at: Option<Box<SourceLine>>,
}

impl SourceLine {
    /// Creates a place in a function that was not inlined.
    pub fn new(file: impl Into<String>, line: u32, column: u32) -> Self {
        Self { file: file.into(), line, column, inlined_at: None }
    }

    /// Sets the position of the call at which the function was inlined.
    pub fn inlined_at(mut self, call: SourceLine) -> Self {
        self.inlined_at = Some(Box::new(call));
        self
    }
}

impl fmt::Display for SourceLine {
    /// Writes `file:line:column`, a form that editors and terminals recognize.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if self.column > 0 {
            write!(f, ":{}", self.column)?;
        }
        self.inlined_at.as_ref().map_or(Ok(()), |call| write!(f, " inlined at {call}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_has_all_fields_in_one_line() {
        let mut site = FaultSite::new([1, 0, 0], [31, 0, 0]);
        site.address = Some(0x1000);
        site.ptx_line = Some(42);
        site.source = Some(SourceLine::new("scale.cu", 7, 5));
        site.nearest = Some("4 bytes past an allocation of 16".into());
        let fault = Fault::new(FaultKind::IllegalAddress, "out-of-bounds write of 4 bytes")
            .in_kernel("scale")
            .at(site);
        assert_eq!(
            fault.to_string(),
            "out-of-bounds write of 4 bytes in kernel `scale`, block (1, 0, 0), thread (31, 0, 0), \
             PTX line 42, scale.cu:7:5, address 0x1000 (4 bytes past an allocation of 16)"
        );
    }
}

#[cfg(test)]
mod source_line_tests {
    use super::*;

    #[test]
    fn display_lists_the_line_and_its_inlined_calls() {
        let outer = SourceLine::new("k.cu", 30, 9);
        let inner = SourceLine::new("k.cu", 20, 0).inlined_at(outer);
        let place = SourceLine::new("h.cuh", 3, 5).inlined_at(inner);
        assert_eq!(place.to_string(), "h.cuh:3:5 inlined at k.cu:20 inlined at k.cu:30:9");
    }
}
