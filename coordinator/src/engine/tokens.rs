//! The two tokens that prove a machine: of its boot script, for its enrolment; and of its workflow, for the installed
//! system's phone-home.

use std::time::Duration;

use jiff::Timestamp;
use landfall_api::{ErrorCode, Problem};
use landfall_store::{Store, access::random};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Clock, internal};

/// How long a workflow's bearer token is kept. It outlives the phone-home's deadline by far: a late one still sets the
/// machine right.
const BEARER_TTL: Duration = Duration::from_secs(90 * 24 * 3600);

/// What is stored of a boot token, under its hash.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct BootToken {
    pub(super) machine: Uuid,
    /// SHA-256 of the first key that used it, hex.
    pub(super) key: Option<String>,
    /// How often the machine's certificates had been revoked when it was made.
    #[serde(default)]
    pub(super) revocations: u64,
}

/// A boot token as it was read.
pub(super) struct Read {
    pub(super) token: BootToken,
    stored: Vec<u8>,
}

fn boot_name(token: &str) -> String {
    format!("boot-token/{}", hex::encode(Sha256::digest(token)))
}

fn bearer_name(workflow_uid: Uuid) -> String {
    format!("phone-home/{workflow_uid}")
}

/// Tokens, in the secret store.
pub(super) struct Tokens {
    store: Store,
    clock: Clock,
}

impl Tokens {
    pub(super) fn new(store: Store, clock: Clock) -> Self {
        Self { store, clock }
    }

    fn in_future(&self, ttl: Duration) -> Timestamp {
        self.clock.wall().checked_add(ttl).unwrap_or(Timestamp::MAX)
    }

    /// Makes a boot token of a machine whose certificates were revoked so often.
    pub(super) async fn mint(&self, machine: Uuid, revocations: u64, ttl: Duration) -> Result<String, Problem> {
        let token = random()?;
        let value = serde_json::to_vec(&BootToken { machine, key: None, revocations }).map_err(internal)?;
        self.store.secrets().put(&boot_name(&token), &value, self.in_future(ttl)).await?;
        Ok(token)
    }

    /// Gives a boot token to this key for `ttl` from now, unless another coordinator has changed the token since it was `read`. Answers
    /// whether the key has it now.
    pub(super) async fn bind(&self, token: &str, read: Read, key: String, ttl: Duration) -> Result<bool, Problem> {
        let bound = BootToken { key: Some(key), ..read.token };
        let value = serde_json::to_vec(&bound).map_err(internal)?;
        let (expires, now) = (self.in_future(ttl), self.clock.wall());
        Ok(self.store.secrets().swap(&boot_name(token), Some(&read.stored), &value, expires, now).await?)
    }

    /// What is known of a boot token, unless it has expired.
    pub(super) async fn get(&self, token: &str) -> Result<Option<Read>, Problem> {
        let stored = self.store.secrets().get(&boot_name(token), self.clock.wall()).await?;
        let read = |stored: Vec<u8>| {
            let token = serde_json::from_slice(&stored).map_err(internal)?;
            Ok(Read { token, stored })
        };
        stored.map(read).transpose()
    }

    /// A workflow's bearer token: the same for its whole life, so that the system phones home with any attempt's seed.
    pub(super) async fn bearer(&self, workflow_uid: Uuid) -> Result<String, Problem> {
        if let Some(known) = self.known_bearer(workflow_uid).await? {
            return Ok(known);
        }
        let bearer = format!("{workflow_uid}.{}", random()?);
        let (name, expires, now) = (bearer_name(workflow_uid), self.in_future(BEARER_TTL), self.clock.wall());
        if self.store.secrets().swap(&name, None, bearer.as_bytes(), expires, now).await? {
            return Ok(bearer);
        }
        // Another coordinator has made it in the same moment.
        let gone =
            || Problem::new(ErrorCode::StoreUnavailable, "the bearer token of a workflow was stored, and is gone");
        self.known_bearer(workflow_uid).await?.ok_or_else(gone)
    }

    /// The bearer token, if the workflow has one already.
    pub(super) async fn known_bearer(&self, workflow_uid: Uuid) -> Result<Option<String>, Problem> {
        let known = self.store.secrets().get(&bearer_name(workflow_uid), self.clock.wall()).await?;
        Ok(known.and_then(|bytes| String::from_utf8(bytes).ok()))
    }
}
