//! Nothing but a finished pipeline makes a `Verified`, and the steps of the commit cannot be had out of order.

#[test]
fn only_a_finished_pipeline_makes_a_verified() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}
