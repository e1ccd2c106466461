//! Places for connections and transfers: a bounded number of them, so that no flood takes memory or descriptors without
//! end, and a rule who gives way, so that none locks others out.
//!
//! A new connection takes a [`Place`] at a [`Gate`]. When all are taken, the connection that has been quiet for longest
//! gives way, first one of the holder with the most places. One that has moved lately does not, as a rule: a thousand
//! machines that come back at once are all served, one after another, while those that opened a connection and fell
//! silent make room. But if one holder has many (`MANY`), its oldest gives way to a holder with far fewer, and it is
//! refused instead of queued, because others would wait behind it: so one or two addresses that keep every place busy
//! lock no other out. [`Seat`] is what a connection tells of itself, [`Watched`] tells it for a socket, [`Busy`] for a
//! request.

mod held;
mod limit;
pub mod open_files;
mod origin;
mod seat;
mod watched;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

pub use held::Held;
pub use limit::{Limiter, Limiters, MAX_ADDRESSES, Rate};
pub use origin::{count_hosts_of, each_of, origin};
pub use seat::{Busy, Seat};
pub use watched::Watched;

/// A connection that waits for a place looks again after this: being quiet for long enough is no event.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A holder with more than this gives one up, even if all are in use, to a holder with less than a [`FAR_FEWER`]th.
const MANY: usize = 32;
const FAR_FEWER: usize = 4;

/// How many places there are, and who may be asked to give one up.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Places in all.
    pub total: usize,
    /// A connection without a request gives way after being quiet for so long.
    pub waiting: Duration,
    /// One with a request under way, likewise.
    pub stalled: Duration,
}

/// A gate with so many places; `K` says whose they are. Clones share it.
#[derive(Debug)]
pub struct Gate<K: Key> {
    shared: Arc<Shared<K>>,
}

impl<K: Key> Clone for Gate<K> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

/// Whose a place is: an address, a machine.
pub trait Key: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> Key for T {}

#[derive(Debug)]
struct Shared<K> {
    limits: Limits,
    state: Mutex<State<K>>,
    freed: Notify,
}

#[derive(Debug)]
struct State<K> {
    next: u64,
    seats: HashMap<u64, (K, Arc<Seat>)>,
    /// How many places each holder has; none has 0.
    each: HashMap<K, usize>,
}

/// What came of asking for a place.
#[derive(Debug)]
pub enum Admission<K: Key> {
    /// Here it is.
    Admitted(Place<K>),
    /// All are taken by others that are in use.
    Full,
    /// This one holder has as many as one may, or many where others hold the rest; all are in use.
    TooMany,
}

impl<K: Key> Gate<K> {
    /// A gate with every place free.
    pub fn new(limits: Limits) -> Self {
        let state = Mutex::new(State { next: 0, seats: HashMap::new(), each: HashMap::new() });
        Self { shared: Arc::new(Shared { limits, state, freed: Notify::new() }) }
    }

    /// A place for `holder`, who may have `each` of them; waits while all are taken and in use. `None` if the holder itself
    /// has too many.
    pub async fn admit(&self, holder: &K, each: usize) -> Option<Place<K>> {
        loop {
            let mut freed = std::pin::pin!(self.shared.freed.notified());
            // Before the look: a place that becomes free just after it must not be missed.
            freed.as_mut().enable();
            match self.try_admit(holder, each) {
                Admission::Admitted(place) => return Some(place),
                Admission::TooMany => return None,
                Admission::Full => {
                    // Either way it is looked at again.
                    let _elapsed = timeout(LOOK_AGAIN, freed).await;
                }
            }
        }
    }

    /// A place for `holder`, at once or not at all.
    pub fn try_admit(&self, holder: &K, each: usize) -> Admission<K> {
        let now = Instant::now();
        let mut state = self.shared.state();
        let held = state.each.get(holder).copied().unwrap_or(0);
        if held >= each && !state.make_room(Some(holder), self.shared.limits, now) {
            return Admission::TooMany;
        }
        if state.seats.len() >= self.shared.limits.total
            && !state.make_room(None, self.shared.limits, now)
            && !state.take_from_the_greediest(held)
        {
            let alone = held == state.seats.len();
            return if held > MANY && !alone { Admission::TooMany } else { Admission::Full };
        }
        let id = state.next;
        state.next += 1;
        let seat = Arc::new(Seat::new(now));
        state.seats.insert(id, (holder.clone(), Arc::clone(&seat)));
        *state.each.entry(holder.clone()).or_default() += 1;
        Admission::Admitted(Place { shared: Arc::clone(&self.shared), id, seat })
    }

    /// Places taken now.
    pub fn taken(&self) -> usize {
        self.shared.state().seats.len()
    }
}

impl<K> Shared<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        // Nothing that holds it can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Key> State<K> {
    /// Asks the quietest connection (of one holder, or of the one with the most places) to close. Its place is free at
    /// once; it learns of it and closes a moment later.
    fn make_room(&mut self, of: Option<&K>, limits: Limits, now: Instant) -> bool {
        let quiet_enough = |seat: &Seat| {
            let quiet = seat.quiet(now);
            let limit = if seat.is_busy() { limits.stalled } else { limits.waiting };
            (quiet >= limit).then_some(quiet)
        };
        let victim = self
            .seats
            .iter()
            .filter(|(_, (holder, _))| of.is_none_or(|of| of == holder))
            .filter_map(|(id, (holder, seat))| {
                let held = self.each.get(holder).copied().unwrap_or(0);
                Some((held, quiet_enough(seat)?, *id))
            })
            .max();
        let Some((_, _, id)) = victim else { return false };
        if let Some(seat) = self.remove(id) {
            seat.give_way();
        }
        true
    }

    /// Asks the holder with the most places for its oldest one, if it has many and far more than `held`, the newcomer's
    /// number.
    fn take_from_the_greediest(&mut self, held: usize) -> bool {
        let Some((greediest, most)) = self.each.iter().max_by_key(|(_, held)| **held) else { return false };
        if *most <= MANY || held >= *most / FAR_FEWER {
            return false;
        }
        let oldest = self.seats.iter().filter(|(_, (holder, _))| holder == greediest).map(|(id, _)| *id).min();
        match oldest.and_then(|id| self.remove(id)) {
            Some(seat) => seat.give_way(),
            None => return false,
        }
        true
    }

    fn remove(&mut self, id: u64) -> Option<Arc<Seat>> {
        let (holder, seat) = self.seats.remove(&id)?;
        if let Some(held) = self.each.get_mut(&holder) {
            *held -= 1;
            if *held == 0 {
                self.each.remove(&holder);
            }
        }
        Some(seat)
    }
}

/// One taken place; free again when dropped.
#[derive(Debug)]
pub struct Place<K: Key> {
    shared: Arc<Shared<K>>,
    id: u64,
    seat: Arc<Seat>,
}

impl<K: Key> Place<K> {
    /// What the connection tells of itself.
    pub fn seat(&self) -> &Arc<Seat> {
        &self.seat
    }
}

impl<K: Key> Drop for Place<K> {
    fn drop(&mut self) {
        self.shared.state().remove(self.id);
        self.shared.freed.notify_one();
    }
}

#[cfg(test)]
mod tests;
