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

pub(crate) use self::{
    find::NotFound,
    labelled::{Labelled, NotLabelled},
    mounted::Access,
    names::FileSystem,
    partitions::{Kept, SystemDisk},
    read::Opened,
    system::{ReachError, System},
    tree::{Owner, Tree},
};
