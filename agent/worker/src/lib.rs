//! The worker of the tools layer. It reads one job, performs one action, and reports; it keeps nothing.
//!
//! The agent starts it inside the tools layer, where Debian's programs are (`mkfs.ext4`, `mdadm`, …), in mount and process
//! namespaces of its own. A cancel, a time limit and the end of the lease are the worker's end, and that of every process it
//! started: so an action here needs no code that stops it, and must leave a state that it can begin again from at any instant.
//!
//! A new action of the worker is a line in `actions` and a module of its own, which gets a [`Context`].

mod actions;
mod container;
mod context;
mod program;
#[cfg(test)]
mod registry;
mod reporter;
mod serve;
mod storage;
#[cfg(test)]
mod testing;

pub use self::actions::unpack;
pub use self::container::{ARGUMENT as CONTAINER, init as container_init};
pub use self::context::{Context, Failure};
pub use self::reporter::Reporter;
pub use self::serve::{ServeError, serve};
pub use self::storage::{Layout, Mounted};
