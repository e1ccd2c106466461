//! A kernel package on disk: which modules it has, what they need, and which a profile wants.
//!
//! The package carries no `modules.dep` (its post-install script runs depmod), so everything is read from the
//! `.modinfo` section of each module, as depmod itself does.

mod compression;
pub mod index;
pub mod modinfo;
pub mod module;
pub mod profile;
pub mod resolve;
#[cfg(test)]
pub(crate) mod testing;
pub mod tree;

pub use compression::Stored;
pub use module::Module;
pub use profile::Profile;
pub use resolve::{ResolveError, Selection, resolve};
pub use tree::{KernelTree, TreeError};
