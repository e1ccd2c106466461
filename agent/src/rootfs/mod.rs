//! The installed system's root file system: found on a disk, mounted, read from and written to without ever leaving it.

mod boot;
mod find;
mod names;
mod read;
mod table;
mod tree;

pub(crate) use self::{
    boot::{mount_listed, mount_typed},
    find::{Access, Mounted, find},
    names::FileSystem,
    read::Opened,
    tree::{Owner, Tree},
};
