//! Templates rendered into the list of actions that a run pins. The run itself is `landfall_machine::run`.

mod expand;
mod multipart;
mod parameters;
mod render;
mod scalar;
mod secret_ref;
mod seed;
mod written_twice;

pub use expand::{Fragments, refuse_circles};
pub use render::{Plan, render};
pub use scalar::MAX_RENDERED;
pub use secret_ref::{SecretRef, references, resolve, without_placeholders};
pub use seed::{NetworkError, SeedFiles, seed_files};
