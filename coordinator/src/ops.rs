//! What running this process is about, and nothing of what it does: its health, and the directory it reads.

use crate::{health::Health, manifest_dir::Manifests};

/// One of each, shared by all users.
#[derive(Debug, Default)]
pub struct Ops {
    /// Whether it can do its work.
    pub health: Health,
    /// What the last look at the directory of manifests found.
    pub manifests: Manifests,
}
