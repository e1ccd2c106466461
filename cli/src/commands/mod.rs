//! The commands, one file each.

pub(crate) mod apply;
pub(crate) mod audit;
pub(crate) mod backup;
pub(crate) mod complete;
pub(crate) mod completion;
pub(crate) mod confirm;
pub(crate) mod context;
pub(crate) mod delete;
pub(crate) mod describe;
pub(crate) mod edit;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod history;
pub(crate) mod logs;
pub(crate) mod machines;
pub(crate) mod man;
pub(crate) mod preview;
pub(crate) mod provision;
pub(crate) mod runs;
pub(crate) mod stated;
pub(crate) mod template;
pub(crate) mod token;
pub(crate) mod version;
pub(crate) mod wait;
pub(crate) mod watch;
