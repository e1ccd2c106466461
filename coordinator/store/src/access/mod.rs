//! Who may operate: bearer tokens, and operators whose certificates were revoked.
//!
//! Held in memory and written through to the store, so that every call is checked against what holds now, and a
//! revocation takes effect at once: open streams check again after each [`Access::changed`].

mod grants;
mod operators;
mod secret_value;
mod tokens;

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OnceCell, watch};

pub use grants::{GrantKind, GrantStore, MemoryGrants};
pub use operators::Certificate;
pub use secret_value::{password, random, same};
pub use tokens::{DEFAULT_TTL, TTL};

use crate::error::StoreError;
use operators::Revoked;
use tokens::Tokens;

/// The grants. Cloning shares them.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    store: Arc<dyn GrantStore>,
    held: OnceCell<Mutex<Held>>,
    changed: watch::Sender<u64>,
    /// One change at a time, so that memory and store agree on the order.
    changing: tokio::sync::Mutex<()>,
}

/// What is held in memory: everything.
#[derive(Default)]
struct Held {
    tokens: Tokens,
    revoked: Revoked,
}

impl Access {
    /// Over a back end, which is read at the first question.
    pub fn new(store: Arc<dyn GrantStore>) -> Self {
        let inner = Inner {
            store,
            held: OnceCell::new(),
            changed: watch::Sender::new(0),
            changing: tokio::sync::Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Changes after a revocation: long-running streams check again then.
    pub fn changed(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }

    /// Takes in what other coordinators of the same database have changed.
    ///
    /// # Errors
    /// [`StoreError`] of the back end.
    pub async fn refresh(&self) -> Result<(), StoreError> {
        let _one = self.inner.changing.lock().await;
        let tokens = Tokens::read(self.inner.store.all(GrantKind::Token).await?)?;
        let revoked = Revoked::read(self.inner.store.all(GrantKind::RevokedOperator).await?)?;
        let taken = |held: &mut Held| {
            let is_same = held.tokens.are(&tokens) && held.revoked == revoked;
            // Also where the tokens are the same: another coordinator may have noted when one was used.
            held.tokens.replace(tokens);
            held.revoked = revoked;
            !is_same
        };
        if self.with(taken).await? {
            self.tell_changed();
        }
        Ok(())
    }

    fn tell_changed(&self) {
        self.inner.changed.send_modify(|count| *count = count.wrapping_add(1));
    }

    async fn with<T>(&self, look: impl FnOnce(&mut Held) -> T) -> Result<T, StoreError> {
        let held = self
            .inner
            .held
            .get_or_try_init(|| async {
                let tokens = Tokens::read(self.inner.store.all(GrantKind::Token).await?)?;
                let revoked = Revoked::read(self.inner.store.all(GrantKind::RevokedOperator).await?)?;
                Ok::<_, StoreError>(Mutex::new(Held { tokens, revoked }))
            })
            .await?;
        // Every change is one insertion or removal, so a poisoned lock is still good.
        Ok(look(&mut held.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
