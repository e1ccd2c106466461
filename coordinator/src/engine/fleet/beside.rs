//! What this coordinator is among others with one database: which machines are its own, whether it leads, and what it does while none of
//! the others does the same.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use landfall_api::{ErrorCode, Machine, Problem};
use landfall_store::{Alone, CONFIRMED_WITHIN, Hold, Store, Unconfirmed};
use tokio::sync::{Mutex as AsyncMutex, watch};
use tokio::time::{Instant, timeout};

use super::clock::Clock;

/// For so long those that come share what is done alone; then others have their turn.
const SHARES: Duration = Duration::from_millis(500);
/// What others store is taken in within a second. A revision that is not here after this may be of another store.
const HEARD_WITHIN: Duration = Duration::from_secs(2);
/// A machine's lock is held so long at most for it.
const WITHIN: Duration = Duration::from_secs(5);

/// This coordinator among others; one that has its store alone is the only one.
pub struct Beside {
    /// This coordinator's URL, where several have one database.
    own: Option<Arc<str>>,
    store: Store,
    clock: Clock,
    /// Of several, it does what one alone does: for how long nothing has confirmed that.
    lead: Mutex<Option<Unconfirmed>>,
    led_by: Mutex<Option<String>>,
    /// Up to which revision the index has taken in what others stored.
    followed: watch::Sender<u64>,
    /// What this coordinator does while no other one does it, and since when.
    held: [AsyncMutex<(Weak<Hold>, Instant)>; 3],
}

impl Beside {
    pub(super) fn new(own: Option<Arc<str>>, store: Store, clock: Clock) -> Self {
        Self {
            own,
            store,
            lead: Mutex::default(),
            led_by: Mutex::default(),
            followed: watch::Sender::new(0),
            held: [(); 3].map(|()| AsyncMutex::new((Weak::new(), clock.steady()))),
            clock,
        }
    }

    /// This coordinator's URL, where several have one database.
    pub(super) fn own(&self) -> Option<Arc<str>> {
        self.own.clone()
    }

    /// Of several coordinators, this one does what one alone does, as long as `lead` confirms it; or does not any more.
    pub(in crate::engine) fn set_lead(&self, lead: Option<Unconfirmed>) {
        *self.lead.lock().unwrap_or_else(PoisonError::into_inner) = lead;
    }

    /// Whether this coordinator does what one of several does alone.
    pub(super) fn leads(&self) -> bool {
        self.still_leads()()
    }

    /// Asks whether it still leads as it does now: not again, after it had ceased to.
    pub fn still_leads(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let lead = self.lead.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_alone = self.own.is_none();
        move || is_alone || lead.as_ref().is_some_and(|unconfirmed| unconfirmed() < CONFIRMED_WITHIN)
    }

    /// Which coordinator leads, where it is not this one.
    pub fn led_by(&self) -> Option<String> {
        self.led_by.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Another one leads, or none does.
    pub fn set_led_by(&self, url: Option<String>) {
        *self.led_by.lock().unwrap_or_else(PoisonError::into_inner) = url;
    }

    /// Whether the machine's session is this coordinator's own.
    pub(in crate::engine) fn has_session(&self, machine: &Machine) -> bool {
        let holder = machine.status.as_ref().and_then(|status| status.session.as_ref());
        self.own.is_some() && holder.and_then(|holder| holder.coordinator.as_deref()) == self.own.as_deref()
    }

    /// Whether this coordinator is the one that time passes for on the machine: it has its session, or the machine has none and this
    /// one leads.
    pub(super) fn has(&self, machine: &Machine) -> bool {
        let Some(own) = self.own.as_deref() else { return true };
        let holder = machine.status.as_ref().and_then(|status| status.session.as_ref());
        holder.and_then(|holder| holder.coordinator.as_deref()).map_or_else(|| self.leads(), |of| of == own)
    }

    /// The index has taken in what was stored up to this revision.
    pub(in crate::engine) fn followed(&self, revision: u64) {
        self.followed.send_replace(revision);
    }

    /// Waits, 2 s at most, until the index has what was stored up to this revision: another coordinator has answered a caller with it.
    /// Answers whether it has.
    pub async fn hear_of(&self, revision: u64) -> bool {
        if self.own.is_none() {
            return true;
        }
        let mut followed = self.followed.subscribe();
        timeout(HEARD_WITHIN, followed.wait_for(|followed| *followed >= revision)).await.is_ok()
    }

    /// Waits until no other coordinator does the same, and the index has what they stored; they wait until the answer is dropped. Those
    /// that do the same here share it: one connection, and one commit.
    ///
    /// # Errors
    /// [`Problem`] with code `StoreUnavailable`.
    pub(in crate::engine) async fn alone(&self, what: Alone) -> Result<Arc<Hold>, Problem> {
        if self.own.is_none() {
            return Ok(Arc::default());
        }
        timeout(WITHIN, self.alone_in_turn(what)).await.unwrap_or_else(|_| Err(late()))
    }

    async fn alone_in_turn(&self, what: Alone) -> Result<Arc<Hold>, Problem> {
        let mut held = self.held[what as usize].lock().await;
        let now = self.clock.steady();
        let is_shared = |hold: &Arc<Hold>| hold.holds() && now.saturating_duration_since(held.1) < SHARES;
        if let Some(hold) = held.0.upgrade().filter(is_shared) {
            return Ok(hold);
        }
        let hold = Arc::new(self.store.documents().hold(what).await?);
        let Some(seen) = hold.seen else { return Ok(hold) };
        // Its sender is this one's.
        drop(self.followed.subscribe().wait_for(|followed| *followed >= seen).await);
        if !hold.holds() {
            return Err(late());
        }
        *held = (Arc::downgrade(&hold), now);
        Ok(hold)
    }
}

fn late() -> Problem {
    let what = "another coordinator does the same for too long, or what it stored was not taken in";
    Problem::new(ErrorCode::StoreUnavailable, what)
        .hint("repeat the request in a moment; if that does not help, restart this coordinator")
}
