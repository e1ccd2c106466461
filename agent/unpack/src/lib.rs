//! Unpacks a tar archive, or the layers of an OCI image, into a directory, and nothing outside of it.
//!
//! An archive is not trusted: it may name `..`, go through a symbolic link that it made before, link to what is outside, or
//! claim sizes that no machine has. Names are made places below the directory, the kernel resolves every one with the installed
//! system's root as `/` (`openat2`, `RESOLVE_IN_ROOT`), links that the archive made itself never lead out of the directory, what
//! is made replaces what stands in its place and follows no link, and every amount has a bound. What is invalid is refused by the
//! entry's name.
//!
//! [`Unpacker`] is the whole of it. Who calls it gives decompressed bytes, and an end of them that proves them.

mod acl;
mod attributes;
mod entry;
mod error;
mod follow;
mod hidden;
mod inherit;
mod layer;
mod name;
mod pax;
mod reader;
mod remove;
mod resolve;
mod root;
mod target;
mod unpacker;
mod write;

pub use error::{Fault, UnpackError};
pub use inherit::inherit;
pub use target::Target;
pub use unpacker::{Limits, Manner, Tally, Unpacker};
