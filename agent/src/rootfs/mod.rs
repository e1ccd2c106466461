//! The installed system's root file system: found on a disk, mounted, written to without ever leaving it.

mod find;
mod tree;

pub(crate) use self::{find::find, tree::Tree};
