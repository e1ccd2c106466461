//! Revoked certificates of operators. By name and time, not by serial: certificates are issued offline, so the
//! coordinator has no list of them, and a person who lost a laptop knows the name.

use std::collections::BTreeMap;

use jiff::Timestamp;
use landfall_api::{ErrorCode, OperatorRevoked, Problem};

use super::{Access, GrantKind};
use crate::error::StoreError;

/// Names remembered. They are never forgotten, so their number has an end.
const MAX_REVOKED: usize = 1000;

#[derive(Default, PartialEq)]
pub(super) struct Revoked(BTreeMap<String, Timestamp>);

impl Revoked {
    pub(super) fn read(records: Vec<(String, String)>) -> Result<Self, StoreError> {
        let read = |(name, json): (String, String)| {
            let at: Timestamp = serde_json::from_str(&json)
                .map_err(|source| StoreError::Corrupt { what: format!("the revocation of operator {name}"), source })?;
            Ok((name, at))
        };
        Ok(Self(records.into_iter().map(read).collect::<Result<_, StoreError>>()?))
    }
}

/// What is checked of an operator's certificate.
#[derive(Debug, Clone, Copy)]
pub struct Certificate<'a> {
    /// The name in it.
    pub name: &'a str,
    /// When it was made.
    pub made: Timestamp,
    /// When it ends.
    pub not_after: Timestamp,
}

impl Access {
    /// Refuses every certificate of that name made until `now`, at once and for ever. A later one is valid again.
    ///
    /// # Errors
    /// [`Problem`] with code `LimitReached`, `InvalidDocument` (an empty or endless name), or of the store.
    pub async fn revoke_operator(&self, name: &str, now: Timestamp) -> Result<OperatorRevoked, Problem> {
        if name.is_empty() || name.len() > 253 {
            return Err(
                Problem::new(ErrorCode::InvalidDocument, "an operator's name must have 1 to 253 characters").at("name")
            );
        }
        let _one = self.inner.changing.lock().await;
        // Never back: another coordinator's clock may be ahead of this one's.
        let known = self.with(|held| held.revoked.0.get(name).copied()).await?;
        let now = known.map_or(now, |known| known.max(now));
        let full = self.with(|held| held.revoked.0.len() >= MAX_REVOKED && !held.revoked.0.contains_key(name)).await?;
        if full {
            let message = format!("the limit of {MAX_REVOKED} revoked operators is reached");
            return Err(Problem::new(ErrorCode::LimitReached, message).hint("create a new certificate authority"));
        }
        let json = serde_json::to_string(&now)
            .map_err(|e| Problem::new(ErrorCode::Internal, "a time does not serialise").caused_by(&e))?;
        self.inner.store.put(GrantKind::RevokedOperator, name, &json).await?;
        self.with(|held| held.revoked.0.insert(name.to_owned(), now)).await?;
        self.tell_changed();
        Ok(OperatorRevoked { name: name.to_owned(), revoked_at: now })
    }

    /// The names that are revoked, in order.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn revoked_operators(&self) -> Result<Vec<String>, StoreError> {
        self.with(|held| held.revoked.0.keys().cloned().collect()).await
    }

    /// Whether an operator's certificate is still good.
    ///
    /// # Errors
    /// [`Problem`] with code `Unauthenticated` (it has ended), `Revoked`, or of the store.
    pub async fn check_operator(&self, certificate: Certificate<'_>, now: Timestamp) -> Result<(), Problem> {
        let Certificate { name, made, not_after } = certificate;
        if not_after < now {
            return Err(Problem::new(
                ErrorCode::Unauthenticated,
                format!("the certificate of {name} expired {not_after}"),
            )
            .hint("issue a new one with: landfall-coordinator issue-operator"));
        }
        match self.with(|held| held.revoked.0.get(name).copied()).await? {
            Some(at) if made <= at => Err(Problem::new(
                ErrorCode::Revoked,
                format!("the certificates of {name} made until {at} were revoked"),
            )
            .hint("issue a new one with: landfall-coordinator issue-operator")),
            _ => Ok(()),
        }
    }
}
