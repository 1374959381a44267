//! Programs that must not compile: safe code that would break soundness, and forgotten operations.

#[test]
fn cases() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/fail/*.rs");
}
