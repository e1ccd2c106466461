//! Bearer tokens of programs. The value is shown once and kept as its SHA-256 only: it has 256 random bits, so no slower
//! hash is needed.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use jiff::{SignedDuration, Timestamp};
use landfall_api::{ErrorCode, Problem, TokenInfo, TokenIssued, TokenRequest, is_dns_label};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::secret_value::{random, same};
use super::{Access, GrantKind};
use crate::error::StoreError;

/// How long a token may last.
pub const TTL: RangeInclusive<Duration> = Duration::from_secs(60)..=Duration::from_secs(366 * 24 * 3600);
/// The default lifetime.
pub const DEFAULT_TTL: Duration = Duration::from_secs(30 * 24 * 3600);
/// The largest number of tokens: every call with a token compares it with all of them.
const MAX_TOKENS: usize = 256;
/// An expired token stays in the list for this time, so that its owner can find out why it is refused.
const SHOWN_AFTER_END: SignedDuration = SignedDuration::from_hours(24);
/// The last use is stored when the one stored is older than this.
const USE_STEP: SignedDuration = SignedDuration::from_secs(60);
/// What every value begins with, so that scanners for leaked secrets find them.
const PREFIX: &str = "lft_";
/// Longer values are not even hashed.
const MAX_VALUE: usize = 256;

#[derive(Clone, Serialize, Deserialize)]
struct Stored {
    /// SHA-256 of the value.
    hash: [u8; 32],
    info: TokenInfo,
    /// Deleted and refused; still here because the store has not removed it yet.
    #[serde(skip)]
    deleted: bool,
}

impl Stored {
    fn read(name: &str, json: &str) -> Result<Self, StoreError> {
        serde_json::from_str(json).map_err(|source| StoreError::Corrupt { what: format!("the token {name}"), source })
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now.duration_since(self.info.expires) > SHOWN_AFTER_END
    }
}

#[derive(Default)]
pub(super) struct Tokens(BTreeMap<String, Stored>);

impl Tokens {
    pub(super) fn read(records: Vec<(String, String)>) -> Result<Self, StoreError> {
        let read = |(name, json): (String, String)| Stored::read(&name, &json).map(|stored| (name, stored));
        Ok(Self(records.into_iter().map(read).collect::<Result<_, StoreError>>()?))
    }

    /// Whether both are the same tokens, whenever they were used.
    pub(super) fn are(&self, others: &Self) -> bool {
        let hashes =
            |tokens: &Self| tokens.0.iter().map(|(name, stored)| (name.clone(), stored.hash)).collect::<Vec<_>>();
        hashes(self) == hashes(others)
    }

    /// Holds these from now on. One that is deleted, and still stored, stays refused.
    pub(super) fn replace(&mut self, mut others: Self) {
        for (name, stored) in &mut others.0 {
            stored.deleted = self.0.get(name).is_some_and(|known| known.deleted && known.hash == stored.hash);
        }
        *self = others;
    }

    /// The token with that value. Looks at every one and at every byte, so that the time taken tells nothing.
    fn find(&mut self, value: &str) -> Option<&mut Stored> {
        let hash: [u8; 32] = Sha256::digest(value.as_bytes()).into();
        let mut found = None;
        for stored in self.0.values_mut() {
            if same(&stored.hash, &hash) && !stored.deleted {
                found = Some(stored);
            }
        }
        found
    }
}

fn encoded(stored: &Stored) -> Result<String, Problem> {
    serde_json::to_string(stored)
        .map_err(|e| Problem::new(ErrorCode::Internal, "a token does not serialise").caused_by(&e))
}

impl Access {
    /// Makes a token; the answer is the only place where its value is ever seen.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidDocument` (name or ttl), `AlreadyExists`, `LimitReached`, or of the store.
    pub async fn make_token(&self, request: TokenRequest, who: &str, now: Timestamp) -> Result<TokenIssued, Problem> {
        if !is_dns_label(&request.name) {
            return Err(Problem::new(
                ErrorCode::InvalidDocument,
                format!("\"{}\" is not a valid token name", request.name),
            )
            .at("name")
            .hint("use 1 to 63 lower-case letters, digits and \"-\""));
        }
        let ttl = request.ttl.map_or(DEFAULT_TTL, |ttl| ttl.get());
        if !TTL.contains(&ttl) {
            return Err(Problem::new(
                ErrorCode::InvalidDocument,
                "a token's lifetime must be from one minute to 366 days",
            )
            .at("ttl")
            .hint("write a time such as 12h or 30d"));
        }
        let expires = now
            .checked_add(ttl)
            .map_err(|_| Problem::new(ErrorCode::InvalidDocument, "the token's lifetime is too long").at("ttl"))?;
        let value = format!("{PREFIX}{}", random()?);
        let info = TokenInfo {
            name: request.name,
            role: request.role,
            created_by: who.to_owned(),
            created: now,
            expires,
            last_used: None,
        };
        let stored = Stored { hash: Sha256::digest(value.as_bytes()).into(), info: info.clone(), deleted: false };
        let _one = self.inner.changing.lock().await;
        self.drop_ended(now).await?;
        let (taken, many) =
            self.with(|held| (held.tokens.0.contains_key(&info.name), held.tokens.0.len() >= MAX_TOKENS)).await?;
        let exists = || {
            Problem::new(ErrorCode::AlreadyExists, format!("a token \"{}\" already exists", info.name))
                .at("name")
                .hint(format!("choose another name, or delete it with: landfall token delete {}", info.name))
        };
        if taken {
            return Err(exists());
        }
        if many {
            return Err(Problem::new(ErrorCode::LimitReached, format!("the limit of {MAX_TOKENS} tokens is reached"))
                .hint("delete unused tokens; list them with: landfall token list"));
        }
        if !self.inner.store.add(GrantKind::Token, &info.name, &encoded(&stored)?).await? {
            // Another coordinator was asked for it a moment ago.
            return Err(exists());
        }
        self.with(|held| held.tokens.0.insert(info.name.clone(), stored)).await?;
        Ok(TokenIssued { token: info, value })
    }

    /// Every token, by name.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub async fn tokens(&self) -> Result<Vec<TokenInfo>, Problem> {
        Ok(self.with(|held| held.tokens.0.values().map(|stored| stored.info.clone()).collect()).await?)
    }

    /// Deletes a token; it is refused from now on. If the store fails, that lasts only until the next start: try again.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, or of the store.
    pub async fn delete_token(&self, name: &str) -> Result<TokenInfo, Problem> {
        let _one = self.inner.changing.lock().await;
        let gone = self.with(|held| held.tokens.0.get(name).map(|stored| stored.info.clone())).await?;
        let gone = gone.ok_or_else(|| {
            Problem::new(ErrorCode::NotFound, format!("there is no token \"{name}\""))
                .hint("list them with: landfall token list")
        })?;
        self.with(|held| held.tokens.0.get_mut(name).map(|stored| stored.deleted = true)).await?;
        self.tell_changed();
        self.inner.store.remove(GrantKind::Token, name, None).await?;
        // Only now: until the store has let go of it, it can be asked for again.
        self.with(|held| held.tokens.0.remove(name)).await?;
        Ok(gone)
    }

    /// Who holds this value.
    ///
    /// # Errors
    /// [`Problem`] with code `Unauthenticated`, or of the store.
    pub async fn holder(&self, value: &str, now: Timestamp) -> Result<TokenInfo, Problem> {
        let refused = |what: &str| {
            Problem::new(ErrorCode::Unauthenticated, format!("the bearer token {what}"))
                .hint("an admin can create another with: landfall token create")
        };
        if value.len() > MAX_VALUE {
            return Err(refused("is not known"));
        }
        let found = self
            .with(|held| {
                let stored = held.tokens.find(value)?;
                let before = stored.clone();
                let note = stored.info.last_used.is_none_or(|used| now.duration_since(used) >= USE_STEP);
                if note && stored.info.expires > now {
                    stored.info.last_used = Some(now);
                }
                Some((stored.clone(), note.then_some(before)))
            })
            .await?;
        let Some((stored, before)) = found else { return Err(refused("is not known")) };
        if stored.info.expires <= now {
            return Err(refused(&format!("\"{}\" ended {}", stored.info.name, stored.info.expires)));
        }
        if let Some(before) = before {
            self.store_use(&before, &stored).await;
        }
        Ok(stored.info)
    }

    /// Whether the token of that name, made then, still opens something.
    ///
    /// # Errors
    /// [`Problem`] of the store.
    pub async fn still_held(&self, token: &TokenInfo) -> Result<bool, Problem> {
        let held = |stored: &Stored| stored.info.created == token.created && !stored.deleted;
        Ok(self.with(|all| all.tokens.0.get(&token.name).is_some_and(held)).await?)
    }

    /// Deleted meanwhile, here or by another coordinator, it must not come back.
    async fn store_use(&self, before: &Stored, stored: &Stored) {
        let _one = self.inner.changing.lock().await;
        let (Ok(old), Ok(json)) = (encoded(before), encoded(stored)) else { return };
        if let Err(error) = self.inner.store.replace(GrantKind::Token, &stored.info.name, &old, &json).await {
            tracing::warn!(%error, token = stored.info.name, "the last use of a token was not stored");
        }
    }

    /// Goes by what is stored, not by memory: another coordinator may have made a new token of that name, or noted a use.
    async fn drop_ended(&self, now: Timestamp) -> Result<(), StoreError> {
        if !self.with(|held| held.tokens.0.values().any(|stored| stored.is_over(now))).await? {
            return Ok(());
        }
        for (name, json) in self.inner.store.all(GrantKind::Token).await? {
            if Stored::read(&name, &json)?.is_over(now) {
                self.inner.store.remove(GrantKind::Token, &name, Some(&json)).await?;
            }
        }
        self.with(|held| held.tokens.0.retain(|_, stored| !stored.is_over(now))).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use landfall_api::{DurationSpec, Role};

    use super::*;
    use crate::access::{GrantStore, MemoryGrants};

    fn request(name: &str, seconds: u64) -> TokenRequest {
        TokenRequest { name: name.into(), role: Role::Viewer, ttl: Some(DurationSpec::from_secs(seconds)) }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(seconds).unwrap()
    }

    #[tokio::test]
    async fn a_token_is_shown_once_and_stored_as_a_hash() {
        let store = Arc::new(MemoryGrants::default());
        let access = Access::new(store.clone());
        let made = access.make_token(request("ci", 600), "ann", at(1000)).await.unwrap();
        let kept = store.all(GrantKind::Token).await.unwrap();
        assert!(!kept[0].1.contains(&made.value) && !kept[0].1.contains(made.value.trim_start_matches(PREFIX)));
        assert_eq!(access.holder(&made.value, at(1100)).await.unwrap().name, "ci");
        let info = access.tokens().await.unwrap().remove(0);
        assert_eq!((info.last_used, info.created_by.as_str()), (Some(at(1100)), "ann"));
        // Another process over the same store knows it, with its last use.
        let again = Access::new(store.clone());
        assert_eq!(again.tokens().await.unwrap(), [info]);
        for wrong in ["", "lft_", &made.value[..20], &format!("{}0", made.value), &"x".repeat(1 << 20)] {
            assert_eq!(access.holder(wrong, at(1100)).await.unwrap_err().code, ErrorCode::Unauthenticated);
        }
        let ended = access.holder(&made.value, at(1600)).await.unwrap_err();
        assert!(ended.message.contains("ended"), "{ended}");
        assert_eq!(
            access.make_token(request("ci", 600), "ann", at(1000)).await.unwrap_err().code,
            ErrorCode::AlreadyExists
        );
        let mut changed = access.changed();
        access.delete_token("ci").await.unwrap();
        assert!(changed.has_changed().unwrap());
        changed.mark_unchanged();
        assert_eq!(access.holder(&made.value, at(1100)).await.unwrap_err().code, ErrorCode::Unauthenticated);
        assert_eq!(access.delete_token("ci").await.unwrap_err().code, ErrorCode::NotFound);
        assert!(store.all(GrantKind::Token).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn tokens_are_bounded_and_expired_ones_make_room() {
        let access = Access::new(Arc::new(MemoryGrants::default()));
        for (name, seconds) in [("", 600), ("Ann", 600), ("a b", 600), ("a", 59), ("a", 367 * 24 * 3600)] {
            let refused = access.make_token(request(name, seconds), "ann", at(0)).await.unwrap_err();
            assert_eq!(refused.code, ErrorCode::InvalidDocument, "{name} {seconds}");
        }
        for n in 0..MAX_TOKENS {
            access.make_token(request(&format!("t{n}"), 600), "ann", at(0)).await.unwrap();
        }
        let full = access.make_token(request("more", 600), "ann", at(0)).await.unwrap_err();
        assert_eq!(full.code, ErrorCode::LimitReached);
        access.make_token(request("more", 600), "ann", at(600 + 25 * 3600)).await.unwrap();
        assert_eq!(access.tokens().await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn tokens_of_one_coordinator_hold_at_another() {
        let store = Arc::new(MemoryGrants::default());
        let [here, there] = [store.clone(), store.clone()].map(|store| Access::new(store));
        assert!(there.tokens().await.unwrap().is_empty());
        let made = here.make_token(request("ci", 600), "ann", at(1000)).await.unwrap();
        there.refresh().await.unwrap();
        assert_eq!(there.holder(&made.value, at(1001)).await.unwrap().name, "ci");
        // When it was used there is known here, and stored at the next use here.
        here.refresh().await.unwrap();
        assert_eq!(here.tokens().await.unwrap()[0].last_used, Some(at(1001)));
        here.holder(&made.value, at(1099)).await.unwrap();
        let mut changed = there.changed();
        there.refresh().await.unwrap();
        assert!(!changed.has_changed().unwrap(), "nothing has");
        assert_eq!(there.tokens().await.unwrap()[0].last_used, Some(at(1099)));
        here.delete_token("ci").await.unwrap();
        // Used once more before the other has heard of it.
        there.holder(&made.value, at(1200)).await.unwrap();
        assert!(store.all(GrantKind::Token).await.unwrap().is_empty(), "it came back");
        there.refresh().await.unwrap();
        assert!(changed.has_changed().unwrap());
        assert_eq!(there.holder(&made.value, at(1201)).await.unwrap_err().code, ErrorCode::Unauthenticated);
        here.revoke_operator("bob", at(1200)).await.unwrap();
        changed.mark_unchanged();
        there.refresh().await.unwrap();
        assert!(changed.has_changed().unwrap() && there.revoked_operators().await.unwrap() == ["bob"]);
    }

    #[tokio::test]
    async fn a_token_is_not_replaced_by_a_coordinator_that_lags() {
        let store = Arc::new(MemoryGrants::default());
        let [here, there] = [store.clone(), store].map(|store| Access::new(store));
        let ended = here.make_token(request("ci", 600), "ann", at(0)).await.unwrap();
        assert_eq!(there.tokens().await.unwrap(), [ended.token]);
        let later = at(600 + 25 * 3600);
        // This removes the one that has ended; the other coordinator goes by it still.
        let made = here.make_token(request("ci", 600), "ann", later).await.unwrap();
        there.make_token(request("other", 600), "bob", later).await.unwrap();
        let refused = there.make_token(request("ci", 600), "bob", later).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::AlreadyExists);
        for access in [here, there] {
            access.refresh().await.unwrap();
            assert_eq!(access.holder(&made.value, later).await.unwrap().created_by, "ann");
            assert_eq!(access.tokens().await.unwrap().len(), 2);
        }
    }

    /// Removes nothing while it is set to fail.
    #[derive(Default)]
    struct Failing(MemoryGrants, std::sync::atomic::AtomicBool);

    #[async_trait::async_trait]
    impl super::super::GrantStore for Failing {
        async fn add(&self, kind: GrantKind, name: &str, json: &str) -> Result<bool, StoreError> {
            self.0.add(kind, name, json).await
        }
        async fn put(&self, kind: GrantKind, name: &str, json: &str) -> Result<(), StoreError> {
            self.0.put(kind, name, json).await
        }
        async fn replace(&self, kind: GrantKind, name: &str, old: &str, json: &str) -> Result<(), StoreError> {
            self.0.replace(kind, name, old, json).await
        }
        async fn remove(&self, kind: GrantKind, name: &str, old: Option<&str>) -> Result<(), StoreError> {
            if self.1.load(std::sync::atomic::Ordering::SeqCst) {
                return Err(StoreError::NoRandom);
            }
            self.0.remove(kind, name, old).await
        }
        async fn all(&self, kind: GrantKind) -> Result<Vec<(String, String)>, StoreError> {
            self.0.all(kind).await
        }
    }

    #[tokio::test]
    async fn a_failed_deletion_still_revokes_the_token_at_once() {
        let store = Arc::new(Failing::default());
        let access = Access::new(store.clone());
        let made = access.make_token(request("ci", 600), "ann", at(1000)).await.unwrap();
        store.1.store(true, std::sync::atomic::Ordering::SeqCst);
        access.delete_token("ci").await.unwrap_err();
        assert_eq!(access.holder(&made.value, at(1001)).await.unwrap_err().code, ErrorCode::Unauthenticated);
        assert!(!access.still_held(&made.token).await.unwrap());
        store.1.store(false, std::sync::atomic::Ordering::SeqCst);
        access.delete_token("ci").await.unwrap();
        let again = Access::new(store);
        assert_eq!(again.holder(&made.value, at(1002)).await.unwrap_err().code, ErrorCode::Unauthenticated);
    }
}
