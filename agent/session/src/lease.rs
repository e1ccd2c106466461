//! Leases: for how long the agent may act without hearing from the coordinator.
//!
//! It counts from the hello or heartbeat by which the coordinator last heard of the agent when it gave the lease, as the
//! coordinator says; not from the arrival, for a message may lie in a buffer for long. The coordinator counts from when it
//! gives the lease, which is later. So the agent's end is never behind the coordinator's, and no other computer gets the
//! machine beside it; the time that both messages travel is lost to the agent. (The clocks' drift, some milliseconds in ten
//! minutes, is left out.)
//!
//! A lease belongs to a *term*. A term that ran out or was revoked stays dead for ever, even if a renewal arrives
//! afterwards: in between another computer may have got the machine. Only a new assignment starts a new term.
//!
//! [`Lease`] is pure; [`LeaseWatch`] puts the clock beside it. Times are [`crate::boot_time`]s.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::BootClock;

/// One term, without a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The instant from which it no longer holds; `None`: it is dead.
    until: Option<Duration>,
}

impl Lease {
    /// A term that holds for `length` from `from`.
    pub const fn begin(from: Duration, length: Duration) -> Self {
        Self { until: Some(from.saturating_add(length)) }
    }
    /// A term that never held.
    pub const fn dead() -> Self {
        Self { until: None }
    }
    /// Holds for `length` from `from`, if it still holds; never shortened by a renewal. Says whether it holds.
    pub fn renew(&mut self, now: Duration, from: Duration, length: Duration) -> bool {
        self.until = self.until.filter(|until| now < *until).map(|until| until.max(from.saturating_add(length)));
        self.until.is_some()
    }
    /// Ends it at once.
    pub const fn revoke(&mut self) {
        self.until = None;
    }
    /// How long it still holds; `None` once it is dead or has run out.
    pub fn remaining(&self, now: Duration) -> Option<Duration> {
        self.until?.checked_sub(now).filter(|left| !left.is_zero())
    }
}

/// One term as those see it who act under it. Cheap to clone; asked before every destructive step, from any thread.
#[derive(Debug, Clone)]
pub struct LeaseWatch {
    term: Arc<Mutex<Lease>>,
    clock: BootClock,
    changed: watch::Receiver<()>,
}

impl LeaseWatch {
    /// Whether the agent may act at this instant.
    pub fn is_valid(&self) -> bool {
        self.remaining().is_some()
    }
    /// How long it may act, as far as is known now; `None` once it may not.
    pub fn remaining(&self) -> Option<Duration> {
        self.term.lock().unwrap_or_else(PoisonError::into_inner).remaining(self.clock.now())
    }
    /// Waits until the agent may no longer act.
    pub async fn expired(&self) {
        let mut changed = self.changed.clone();
        while let Some(left) = self.remaining() {
            tokio::select! {
                biased;
                // A timer may be late (it does not count suspended time), never early: `remaining` decides.
                () = tokio::time::sleep(left) => {}
                ended = changed.changed() => if ended.is_err() {
                    // The session is gone and renews no more; what is left still counts.
                    tokio::time::sleep(self.remaining().unwrap_or_default()).await;
                },
            }
        }
    }
}

/// The session's side: begins, renews and revokes terms.
#[derive(Debug)]
pub(crate) struct LeaseKeeper {
    term: Arc<Mutex<Lease>>,
    clock: BootClock,
    changed: watch::Sender<()>,
}

impl LeaseKeeper {
    /// Before the first assignment: a term that never held.
    pub(crate) fn new(clock: BootClock) -> Self {
        Self { term: Arc::new(Mutex::new(Lease::dead())), clock, changed: watch::Sender::new(()) }
    }
    /// An assignment arrived: renews the present term if it holds, else begins another. `counts_from`: see
    /// [`landfall_api::message::Assignment`].
    pub(crate) fn grant(&mut self, length: Duration, counts_from: Option<Duration>) -> LeaseWatch {
        if !self.renew(length, counts_from) {
            // Watches of the dead term keep it, and it stays dead.
            *self = Self {
                term: Arc::new(Mutex::new(Lease::begin(self.from(counts_from), length))),
                clock: self.clock.clone(),
                changed: watch::Sender::new(()),
            };
        }
        self.watch()
    }
    /// A renewal arrived. Says whether the term still holds.
    pub(crate) fn renew(&self, length: Duration, counts_from: Option<Duration>) -> bool {
        self.change(|term| term.renew(self.clock.now(), self.from(counts_from), length))
    }
    /// A time to come is none that the agent said.
    fn from(&self, counts_from: Option<Duration>) -> Duration {
        let now = self.clock.now();
        counts_from.map_or(now, |from| from.min(now))
    }
    /// Ends the present term at once.
    pub(crate) fn revoke(&self) {
        self.change(Lease::revoke);
    }
    /// The present term.
    pub(crate) fn watch(&self) -> LeaseWatch {
        LeaseWatch { term: self.term.clone(), clock: self.clock.clone(), changed: self.changed.subscribe() }
    }
    fn change<T>(&self, f: impl FnOnce(&mut Lease) -> T) -> T {
        let out = f(&mut self.term.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_lease_holds_until_its_end_and_not_at_it() {
        let lease = Lease::begin(s(100), s(10));
        assert_eq!(lease.remaining(s(100)), Some(s(10)));
        assert_eq!(lease.remaining(s(109)), Some(s(1)));
        assert_eq!(lease.remaining(s(110)), None);
        assert_eq!(Lease::dead().remaining(s(0)), None);
    }

    #[test]
    fn a_renewal_extends_and_never_shortens() {
        let mut lease = Lease::begin(s(0), s(10));
        assert!(lease.renew(s(9), s(9), s(10)));
        assert_eq!(lease.remaining(s(9)), Some(s(10)));
        assert!(lease.renew(s(10), s(10), s(1)));
        assert_eq!(lease.remaining(s(10)), Some(s(9)));
    }

    #[test]
    fn a_renewal_after_the_end_revives_nothing() {
        let mut lease = Lease::begin(s(0), s(10));
        assert!(!lease.renew(s(10), s(10), s(10)));
        assert_eq!(lease.remaining(s(10)), None);
        // Not even with a clock that reads earlier.
        assert!(!lease.renew(s(5), s(5), s(10)));
    }

    #[test]
    fn a_revoked_lease_is_never_renewed() {
        let mut lease = Lease::begin(s(0), s(10));
        lease.revoke();
        assert_eq!(lease.remaining(s(1)), None);
        assert!(!lease.renew(s(1), s(1), s(10)));
    }

    #[test]
    fn a_lease_counts_from_what_the_agent_said() {
        let now = Arc::new(Mutex::new(s(100)));
        let clock = now.clone();
        let mut keeper = LeaseKeeper::new(BootClock::new(move || *clock.lock().unwrap()));
        // Said at 90, and the answer lay in a buffer for 10 s.
        assert_eq!(keeper.grant(s(60), Some(s(90))).remaining(), Some(s(50)));
        *now.lock().unwrap() = s(140);
        assert!(keeper.renew(s(60), Some(s(110))));
        assert_eq!(keeper.watch().remaining(), Some(s(30)));
        assert!(keeper.renew(s(60), Some(s(9999))));
        assert_eq!(keeper.watch().remaining(), Some(s(60)), "no longer than from now");
        // One that took longer than the lease begins no term.
        *now.lock().unwrap() = s(500);
        assert!(!keeper.grant(s(60), Some(s(400))).is_valid());
        assert_eq!(keeper.grant(s(60), None).remaining(), Some(s(60)), "an older coordinator says nothing");
    }

    #[test]
    fn a_new_term_leaves_watches_of_the_dead_one_dead() {
        let mut keeper = LeaseKeeper::new(BootClock::new(crate::boot_time));
        assert!(!keeper.watch().is_valid());
        let old = keeper.grant(s(1000), None);
        let repeated = keeper.grant(s(2000), None);
        assert!(old.remaining() > Some(s(1500)) && repeated.is_valid());
        keeper.revoke();
        assert!(!old.is_valid());
        let new = keeper.grant(s(1000), None);
        assert!(new.is_valid() && !old.is_valid() && !repeated.is_valid());
    }

    #[tokio::test]
    async fn expiry_is_noticed_on_revocation_and_on_time() {
        let mut keeper = LeaseKeeper::new(BootClock::new(crate::boot_time));
        let revoked = keeper.grant(s(1000), None);
        let waiting = tokio::spawn(async move { revoked.expired().await });
        keeper.revoke();
        tokio::time::timeout(s(60), waiting).await.unwrap().unwrap();
        let short = keeper.grant(Duration::from_millis(30), None);
        drop(keeper);
        tokio::time::timeout(s(60), short.expired()).await.unwrap();
        assert!(!short.is_valid());
    }
}
