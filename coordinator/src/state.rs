//! The handle that every service of the coordinator shares.

use std::sync::Arc;

use crate::{config::Config, engine::Engine, pki::Pki, store::Store};

/// What every service of the coordinator shares; handed around as `Arc<Coordinator>`.
pub struct Coordinator {
    /// The configuration, fixed for the life of the process.
    pub config: Config,
    /// Documents, events and secrets.
    pub store: Store,
    /// The only writer of status.
    pub engine: Engine,
    /// The certificate authority.
    pub pki: Arc<Pki>,
}
