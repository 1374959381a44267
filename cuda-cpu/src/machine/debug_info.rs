//! Debug information of a program, for faults: the CUDA source lines of ops, and the names of variables.

use cuda_core::SourceLine;
use cuda_ptx::{Location, Position};

use crate::fault::{FaultSpace, NearVariable};

/// Maximum depth of inlined calls that is reported.
const MAX_INLINED: usize = 32;

/// The source locations of a program. They are only read to report faults.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    /// Numbers and names of the `.file` directives.
    files: Vec<(u32, String)>,
    /// Ranges of ops with the same location, in ascending order of their first op. `None` if the location is unknown.
    stretches: Vec<(u32, Option<Location>)>,
}

impl Sources {
    pub(crate) fn new(files: &[(u32, String)]) -> Self {
        Self { files: files.to_vec(), stretches: Vec::new() }
    }

    /// Starts a function at `pc`. Locations of the previous function do not extend into it.
    pub(crate) fn begin_function(&mut self, pc: u32) {
        self.stretches.push((pc, None));
    }

    /// Sets the location of the ops from `pc` on.
    pub(crate) fn mark(&mut self, pc: u32, location: Location) {
        self.stretches.push((pc, Some(location)));
    }

    /// Returns the source line of the op at `pc`.
    pub(crate) fn line(&self, pc: u32) -> Option<SourceLine> {
        let at = self.stretches.partition_point(|(first, _)| *first <= pc).checked_sub(1)?;
        let location = self.stretches[at].1.filter(|location| location.line > 0)?;
        let Location { file, line, column, .. } = location;
        let mut calls = vec![self.place(Position { file, line, column })?];
        let mut next = location.inlined_at.map(|call| (at, call));
        while let Some((before, call)) = next.filter(|_| calls.len() <= MAX_INLINED) {
            calls.extend(self.place(call));
            next = self.call_of(before, call);
        }
        calls.into_iter().rev().reduce(|call, place| place.inlined_at(call))
    }

    /// Returns the location into which the call at `position` was itself inlined, from an earlier `.loc` of that
    /// position.
    fn call_of(&self, before: usize, position: Position) -> Option<(usize, Position)> {
        let function = self.stretches[..before].iter().enumerate().rev();
        let mut function = function.map_while(|(at, (_, location))| Some((at, (*location)?)));
        let same = |l: &Location| (l.file, l.line, l.column);
        let wanted = (position.file, position.line, position.column);
        let (at, location) = function.find(|(_, location)| same(location) == wanted)?;
        location.inlined_at.map(|call| (at, call))
    }

    fn place(&self, Position { file, line, column }: Position) -> Option<SourceLine> {
        let (_, path) = self.files.iter().find(|(index, _)| *index == file)?;
        Some(SourceLine::new(path, line, column))
    }
}

/// A variable of global, constant or shared memory.
#[derive(Debug, Clone)]
pub(crate) struct NamedVariable {
    pub(crate) name: String,
    pub(crate) space: FaultSpace,
    pub(crate) address: u64,
    /// Size in bytes. `None` for the whole dynamic shared memory.
    pub(crate) size: Option<u64>,
    /// The kernel whose shared memory contains it, if it is only one.
    pub(crate) kernel: Option<u32>,
}

/// The variables of a module.
#[derive(Debug, Default)]
pub(crate) struct VariableNames(pub(crate) Vec<NamedVariable>);

/// Maximum distance at which a variable is named, in bytes. Farther variables explain nothing.
const NEAR: u64 = 4096;

impl VariableNames {
    /// Returns the variable that contains the address, or else the nearest one. `dynamic` is the kernel's dynamic
    /// shared memory in bytes.
    pub(crate) fn near(
        &self,
        kernel: u32,
        space: FaultSpace,
        address: u64,
        dynamic: u64,
    ) -> Option<NearVariable> {
        let seen =
            |v: &&NamedVariable| v.space == space && v.kernel.is_none_or(|own| own == kernel);
        let distance = |v: &NamedVariable| match address.checked_sub(v.address) {
            None => v.address - address,
            // The first byte past the end has distance 1.
            Some(at) => at.saturating_add(1).saturating_sub(v.size.unwrap_or(dynamic)),
        };
        let near = self.0.iter().filter(seen).min_by_key(|v| distance(v))?;
        // A wild pointer is not related to any global variable.
        if space == FaultSpace::Global && distance(near) > NEAR {
            return None;
        }
        Some(NearVariable {
            name: near.name.clone(),
            address: near.address,
            size: near.size.unwrap_or(dynamic),
            offset: address.wrapping_sub(near.address) as i64,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(line: u32, inlined_at: Option<u32>) -> Location {
        let call = |line| Position { file: 1, line, column: 2 };
        let inlined_at = inlined_at.map(call);
        Location { instruction: 0, file: 1, line, column: 2, inlined_at }
    }

    fn text(sources: &Sources, pc: u32) -> Option<String> {
        sources.line(pc).map(|line| line.to_string())
    }

    #[test]
    fn op_has_the_location_of_the_latest_loc() {
        let mut sources = Sources::new(&[(1, "k.cu".into())]);
        sources.begin_function(0);
        sources.mark(2, location(10, None));
        sources.mark(5, location(11, None));
        sources.begin_function(9);
        assert_eq!(text(&sources, 1), None);
        assert_eq!(text(&sources, 4).as_deref(), Some("k.cu:10:2"));
        assert_eq!(text(&sources, 8).as_deref(), Some("k.cu:11:2"));
        assert_eq!(text(&sources, 9), None);
    }

    #[test]
    fn inlined_calls_are_followed_to_the_kernel() {
        let mut sources = Sources::new(&[(1, "k.cu".into())]);
        sources.begin_function(0);
        sources.mark(0, location(20, None));
        sources.mark(0, location(10, Some(20)));
        sources.mark(0, location(9, Some(10)));
        let chain = "k.cu:9:2 inlined at k.cu:10:2 inlined at k.cu:20:2";
        assert_eq!(text(&sources, 3).as_deref(), Some(chain));
    }

    #[test]
    fn cyclic_inlined_calls_end() {
        let mut sources = Sources::new(&[(1, "k.cu".into())]);
        sources.begin_function(0);
        for _ in 0..1000 {
            sources.mark(0, location(5, Some(5)));
        }
        let line = text(&sources, 0).unwrap();
        assert_eq!(line.matches("inlined").count(), MAX_INLINED);
    }

    fn variable(name: &str, address: u64, size: Option<u64>, kernel: Option<u32>) -> NamedVariable {
        NamedVariable { name: name.into(), space: FaultSpace::Shared, address, size, kernel }
    }

    #[test]
    fn names_what_is_at_an_address_or_next_to_it() {
        let variables = VariableNames(vec![
            variable("a", 0, Some(40), None),
            variable("b", 48, Some(16), Some(1)),
            variable("c", 48, Some(8), Some(2)),
            variable("rest", 64, None, None),
        ]);
        let near = |kernel, at| variables.near(kernel, FaultSpace::Shared, at, 32).unwrap();
        assert_eq!(near(1, 4).to_string(), "at byte 4 of `a` (40 bytes at 0x0)");
        assert_eq!(near(1, 40).to_string(), "1 byte after `a` (40 bytes at 0x0)");
        assert_eq!(near(1, 44).to_string(), "4 bytes before `b` (16 bytes at 0x30)");
        assert_eq!(near(2, 50).name, "c");
        assert_eq!(near(2, 70).to_string(), "at byte 6 of `rest` (32 bytes at 0x40)");
        assert!(variables.near(1, FaultSpace::Global, 4, 0).is_none());
    }
}
