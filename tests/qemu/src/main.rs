//! `landfall-lab`.
fn main() {}
