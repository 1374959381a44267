//! The results of held work: whether anything can see them.

use cuda_core::{
    Access,
    protocol::{AllocId, Work},
};

/// The work that a stream holds, as far as its results are concerned.
#[derive(Default)]
pub(super) struct Results {
    /// The numbers of the submissions that a caller may wait for.
    awaited: Vec<u64>,
    /// The allocations that the work writes, also several times.
    written: Vec<AllocId>,
    /// Whether some of the work states no write. Only an effect that it does not state can be its purpose, for example
    /// output of `printf`, so it always runs.
    has_unstated_effects: bool,
}

impl Results {
    /// Adds work.
    #[inline]
    pub(super) fn add(&mut self, number: u64, work: &Work<'_>) {
        self.awaited.push(number);
        let mut writes = false;
        work.uses(|used| {
            writes |= used.access == Access::Write;
            if used.access == Access::Write && self.written.last() != Some(&used.base) {
                self.written.push(used.base);
            }
        });
        self.has_unstated_effects |= !writes;
    }

    /// Records that no caller waits for these submissions.
    pub(super) fn cancel(&mut self, first: u64, last: u64) {
        self.awaited.retain(|number| !(first..=last).contains(number));
    }

    /// Whether no caller waits for any of the work, and all memory that it writes is freed behind it. Nothing else can
    /// read that memory: other work that uses it would have flushed this work before the free.
    pub(super) fn are_unseen(&self, is_freed: impl Fn(AllocId) -> bool) -> bool {
        self.awaited.is_empty()
            && !self.has_unstated_effects
            && self.written.iter().all(|id| is_freed(*id))
    }

    /// Forgets the work, which was launched or discarded.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.awaited.clear();
        self.written.clear();
        self.has_unstated_effects = false;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use cuda_core::protocol::{FunctionId, Launch, LaunchConfig, ModuleId, Region, Relocation};

    use super::*;

    fn launch(operands: &[(u64, Access)]) -> Work<'static> {
        let relocation = |(id, access): &(u64, Access)| {
            let region = Region { alloc: AllocId(*id), offset: 0 };
            Relocation { at: 0, region, bytes: 4, access: *access }
        };
        Work::Launch(Launch {
            function: FunctionId { module: ModuleId(1), entry: 0 },
            config: LaunchConfig::new(1, 1),
            params: vec![0; 8].into(),
            relocations: operands.iter().map(relocation).collect::<Vec<_>>().into(),
            variables: Vec::new().into(),
        })
    }

    fn are_unseen(works: &[&[(u64, Access)]], freed: &[u64]) -> bool {
        let mut results = Results::default();
        (1..).zip(works).for_each(|(number, operands)| results.add(number, &launch(operands)));
        results.cancel(1, u64::MAX);
        results.are_unseen(|id| freed.contains(&id.0))
    }

    #[test]
    fn results_are_unseen_if_all_memory_that_is_written_is_freed() {
        use Access::{Read, Write};
        assert!(are_unseen(
            &[&[(1, Read), (2, Write)], &[(2, Write)], &[(2, Read), (3, Write)]],
            &[3, 2]
        ));
        assert!(!are_unseen(&[&[(1, Write), (2, Write)]], &[2]));
        assert!(!are_unseen(&[&[(2, Write)], &[(1, Write)], &[(2, Write)]], &[2]));
        // Work that states no write may have effects that it does not state.
        assert!(!are_unseen(&[&[(2, Write)], &[(2, Read)]], &[2]));
        assert!(!are_unseen(&[&[]], &[2]));
    }
}
