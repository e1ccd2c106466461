//! What is in a tools layer, as its own file `manifest.json` says.

use serde::{Deserialize, Serialize};

use crate::ActionSpec;

/// The manifest of a tools layer: what it was made for and from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolsManifest {
    /// As Rust names it, such as `x86_64`.
    pub architecture: String,
    /// The release of the kernel whose modules it carries, such as `6.1.0-35-amd64`; it is that of the boot image.
    pub kernel: String,
    /// The protocol revision that the worker speaks with the agent; it is that of the boot image's release.
    pub protocol: u32,
    /// Kernel modules, by name, in alphabetical order.
    pub modules: Vec<String>,
    /// Programs, in alphabetical order of their paths.
    pub programs: Vec<ToolsProgram>,
}

/// A program of a tools layer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolsProgram {
    /// Where it is in the layer.
    pub path: String,
    /// The Debian package that it came from.
    pub package: String,
    /// That package's version.
    pub version: String,
}

impl ToolsManifest {
    /// The newest revision of the protocol that coordinator, agent and worker of this release speak; landfall-proto's `revision`
    /// says what each brought. That of the newest action, or of the newest change apart from actions.
    pub const PROTOCOL: u32 = {
        let (actions, others) = (ActionSpec::NEWEST_PROTOCOL, 10);
        if actions > others { actions } else { others }
    };
    /// Where it is in the layer, without the leading `/`.
    pub const PATH: &str = "manifest.json";
    /// Where [`Self::made_for`] is in the layer, without the leading `/`: all that an agent reads.
    pub const MADE_FOR: &str = "made-for";
    /// Where the worker is in the layer, without the leading `/`.
    pub const WORKER: &str = "landfall-worker";
    /// Where the new system's root is mounted in the layer, without the leading `/`.
    pub const TARGET: &str = "target";

    /// What it was made for, as one line: processor, kernel, and the revision that the agent must speak.
    pub fn made_for(architecture: &str, kernel: &str, protocol: u32) -> String {
        format!("{architecture}, kernel {kernel}, protocol {protocol}\n")
    }
}
