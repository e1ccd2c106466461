//! Checks of the house rules that no compiler makes: which crate may know which, files that import each other, paths that the
//! documentation names, the length of files, the number of a type's methods, plain words, questions that only the machine crate
//! answers. `tests/house.rs` runs them over this repository.
//!
//! Each check is a function from the repository to what it found; [`ceilings`] says how much of it is still allowed.

pub mod ceilings;
pub mod circles;
pub mod methods;
pub mod paths;
pub mod questions;
pub mod tree;
pub mod walls;
pub mod words;
