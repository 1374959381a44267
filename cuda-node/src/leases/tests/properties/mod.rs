//! Random programs: clients, operators, workers and clocks in any order, with invariants after each step.

mod program;
mod steps;

use proptest::prelude::*;

use self::{program::Program, steps::step};

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_programs_keep_the_invariants(
        preempt in any::<bool>(),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut program = Program::new(preempt);
        for step in &steps {
            program.run(step);
        }
        program.finish();
    }
}
