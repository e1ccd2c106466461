//! The commands, one file each.

pub(crate) mod apply;
pub(crate) mod completion;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod logs;
pub(crate) mod provision;
pub(crate) mod watch;
