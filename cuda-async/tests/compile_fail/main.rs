//! Programs without `unsafe` that must not compile.

#[test]
fn cases() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/fail/*.rs");
}
