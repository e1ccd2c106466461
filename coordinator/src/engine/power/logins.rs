//! Logins at BMCs: one at a time at each, and none again with an account that it refused. Several machines may share a BMC.
//!
//! What was refused is in the machine's document too. Where that names it no more, the machine has set its account since, and whichever
//! coordinator has heard of that has stored it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use landfall_api::RefusedLogin;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

use super::super::secrets::Version;

/// Accounts that a BMC has refused, and the machines whose documents name that.
type Refused = HashMap<Version, HashSet<String>>;

/// The accounts that each BMC has refused, by its URL. Bounded by the BMCs there were.
#[derive(Default)]
pub(super) struct Logins(Mutex<HashMap<String, Arc<AsyncMutex<Refused>>>>);

/// The right to log in at one BMC; no other task has it.
pub(super) struct Login(OwnedMutexGuard<Refused>);

impl Logins {
    /// Waits for its turn at this BMC: for as long as another login there takes.
    pub(super) async fn at(&self, bmc: &str) -> Login {
        let of = self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(bmc.to_owned()).or_default().clone();
        Login(of.lock_owned().await)
    }
}

impl Login {
    /// Whether the account was refused: as was seen here, or as the machine's document has it, which was read since the login was had.
    pub(super) fn is_refused<'s>(
        &mut self, version: Version, machine: &str, stored: impl IntoIterator<Item = &'s RefusedLogin>,
    ) -> bool {
        let mut is_named = false;
        for refused in stored {
            let of = (refused.secret_uid, refused.version);
            is_named |= of == version;
            self.0.entry(of).or_default().insert(machine.to_owned());
        }
        let is_forgiven = !is_named && self.0.get(&version).is_some_and(|machines| machines.contains(machine));
        if is_forgiven {
            self.0.remove(&version);
        }
        self.has_refused(version)
    }

    /// Whether the account was refused, as far as is known here.
    pub(super) fn has_refused(&self, version: Version) -> bool {
        self.0.contains_key(&version)
    }

    /// The BMC has refused it.
    pub(super) fn refused(&mut self, version: Version) {
        self.0.entry(version).or_default();
    }

    /// The machine's document names that from now on.
    pub(super) fn is_stored(&mut self, version: Version, machine: &str) {
        if let Some(machines) = self.0.get_mut(&version) {
            machines.insert(machine.to_owned());
        }
    }
}
