//! The handle that every service of the coordinator shares.

use std::sync::Arc;

use crate::{config::Config, engine::Engine, ops::Ops, pki::Pki};
use landfall_store::Store;

/// What every service of the coordinator shares; handed around as `Arc<Coordinator>`.
pub struct Coordinator {
    /// The configuration as it was at the start; see [`crate::reload`] for what may change later.
    pub config: Config,
    /// Documents, events and secrets.
    pub store: Store,
    /// The only writer of status.
    pub engine: Engine,
    /// The certificate authority.
    pub pki: Arc<Pki>,
    /// Its health, and the directory of manifests.
    pub ops: Arc<Ops>,
}

impl Coordinator {
    /// Whether it has lost its store for so long that people and machines are better off with another coordinator, and there is one.
    pub(crate) fn has_lost_store_to_others(&self) -> bool {
        !self.config.others.is_empty() && self.engine.fleet().has_lost_store()
    }
}
