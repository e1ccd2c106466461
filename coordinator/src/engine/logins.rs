//! Logins at BMCs: one at a time at each, and none again with an account that it refused. Several machines may share a BMC.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use landfall_api::RefusedLogin;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};
use uuid::Uuid;

/// An account: the uid of its Secret, and the version of the values.
pub(in crate::engine) type Version = (Uuid, u64);

/// The accounts that each BMC has refused, by its URL. Bounded by the BMCs there were.
#[derive(Default)]
pub(in crate::engine) struct Logins(Mutex<HashMap<String, Arc<AsyncMutex<HashSet<Version>>>>>);

/// The right to log in at one BMC; no other task has it.
pub(in crate::engine) struct Login(OwnedMutexGuard<HashSet<Version>>);

impl Logins {
    /// Waits for its turn at this BMC: for as long as another login there takes.
    pub(in crate::engine) async fn at(&self, bmc: &str) -> Login {
        let of = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(bmc.to_owned()).or_default().clone();
        Login(of.lock_owned().await)
    }

    /// The machine itself has set its account at this BMC: what was refused there says nothing any more. Done once a login that is
    /// under way has ended, for which nothing waits here.
    pub(in crate::engine) fn forgive(&self, bmc: &str) {
        let of = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(bmc).cloned();
        if let Some(of) = of {
            tokio::spawn(async move { of.lock_owned().await.clear() });
        }
    }
}

impl Login {
    /// Whether the account was refused: as was seen here, or as a status has it.
    pub(in crate::engine) fn is_refused(&mut self, version: Version, stored: Option<&RefusedLogin>) -> bool {
        self.0.extend(stored.map(|refused| (refused.secret_uid, refused.version)));
        self.0.contains(&version)
    }

    /// The BMC has refused it.
    pub(in crate::engine) fn refused(&mut self, version: Version) {
        self.0.insert(version);
    }
}
