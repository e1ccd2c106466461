//! What the first process of a container does: it reads this from its standard input, because a command line and an environment
//! can be seen by others, and some of it is secret.

use std::path::PathBuf;

use landfall_api::ContainerMount;
use serde::{Deserialize, Serialize};

/// The argument by which the worker's own program becomes that process.
pub const ARGUMENT: &str = "container-init";

/// Everything that it does.
#[derive(Serialize, Deserialize)]
pub(super) struct Plan {
    /// Where the image's root file system is: a mount of its own.
    pub(super) root: PathBuf,
    /// Where the installed system is mounted.
    pub(super) system: PathBuf,
    /// What is shown of it, in this order.
    pub(super) mounts: Vec<ContainerMount>,
    /// Disks and partitions below /dev.
    pub(super) nodes: Vec<Node>,
    /// It sees the machine's network.
    pub(super) host_network: bool,
    /// The program and its arguments.
    pub(super) words: Vec<String>,
    /// Its whole environment.
    pub(super) env: Vec<(String, String)>,
    /// Where it starts; absolute.
    pub(super) directory: String,
    /// Who it is.
    pub(super) who: Who,
    /// What root may do: bits of capabilities(7).
    pub(super) capabilities: u64,
}

/// A block device of the container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Node {
    /// Below /dev.
    pub(super) name: String,
    /// As the kernel encodes it.
    pub(super) number: u64,
}

/// Whose process it is, by number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Who {
    pub(super) user: u32,
    pub(super) group: u32,
    /// Beside `group`.
    pub(super) groups: Vec<u32>,
}
