//! What running this process is about, and nothing of what it does: its health, the directory it reads, and what it could
//! not serve.

use crate::{health::Health, manifest_dir::Manifests, sightings::Sightings};

/// One of each, shared by all users.
#[derive(Debug, Default)]
pub struct Ops {
    /// Whether it can do its work.
    pub health: Health,
    /// What the last look at the directory of manifests found.
    pub manifests: Manifests,
    /// What netbooted and was not served.
    pub sightings: Sightings,
}
