//! Templates rendered into the list of actions that a run pins. The run itself is `landfall_machine::run`.

mod render;
mod secret_ref;
mod seed;

pub use render::{MAX_RENDERED, Plan, render};
pub use secret_ref::{SecretRef, references, resolve};
pub use seed::{SeedFiles, seed_files};
