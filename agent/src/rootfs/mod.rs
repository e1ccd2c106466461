//! The installed system's file systems: found on a disk, mounted, read from and written to without ever leaving them.

mod btrfs;
mod find;
mod forget;
mod fstab;
mod label;
mod labelled;
mod layout;
mod mount_unit;
mod mounted;
mod names;
mod partitions;
mod place;
mod read;
mod system;
mod table;
#[cfg(test)]
mod tests;
mod tree;
mod turns;

pub(crate) use self::find::NotFound;
pub(crate) use self::labelled::{Labelled, NotLabelled};
pub(crate) use self::mounted::Access;
pub(crate) use self::names::FileSystem;
pub(crate) use self::partitions::{Kept, SystemDisk};
pub(crate) use self::read::Opened;
pub(crate) use self::system::{ReachError, System};
pub(crate) use self::tree::{Owner, Tree};
