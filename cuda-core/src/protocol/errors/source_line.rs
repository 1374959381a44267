//! Places in the source of a program.

use std::fmt;

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
    fn display_lists_the_line_and_its_inlined_calls() {
        let outer = SourceLine::new("k.cu", 30, 9);
        let inner = SourceLine::new("k.cu", 20, 0).inlined_at(outer);
        let place = SourceLine::new("h.cuh", 3, 5).inlined_at(inner);
        assert_eq!(place.to_string(), "h.cuh:3:5 inlined at k.cu:20 inlined at k.cu:30:9");
    }
}
