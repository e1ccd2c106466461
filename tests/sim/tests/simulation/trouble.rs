//! What befalls one of several coordinators while it lives: it hangs, is cut off from the database or from the computers, its clock is
//! set; or the database itself crashes and comes back. Afterwards the coordinator goes on as if nothing had been.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use landfall_coordinator::engine::Timepiece;
use landfall_sim::chance::Chance;
use tokio::time::{Instant, sleep, timeout};

use super::database::{Database, Seat};
use super::flag::Flag;
use super::truth::Truth;

/// A host's wall clock. It outlives the coordinator's process.
#[derive(Clone)]
pub(crate) struct WallClock {
    begun: (Timestamp, Instant),
    ahead: Arc<Mutex<SignedDuration>>,
}

impl WallClock {
    /// All clocks of a world begin with the same second.
    pub(crate) fn new(begun: (Timestamp, Instant)) -> Self {
        Self { begun, ahead: Arc::default() }
    }

    fn set(&self, ahead: SignedDuration) {
        *self.ahead.lock().unwrap() = ahead;
    }
}

impl Timepiece for WallClock {
    fn wall(&self) -> Timestamp {
        self.begun.0 + self.begun.1.elapsed() + *self.ahead.lock().unwrap()
    }
}

/// One life of a coordinator, as its troubles see it.
pub(crate) struct Troubled {
    pub(crate) seat: Seat,
    pub(crate) database: Database,
    /// True while it is cut off from all computers.
    pub(crate) apart: Flag<bool>,
    pub(crate) truth: Truth,
}

impl Troubled {
    /// Until it is calm.
    pub(crate) async fn run(self, wall: WallClock, calm: Flag<bool>, mut chance: Chance) {
        while !calm.get() {
            drop(timeout(Duration::from_secs(20 + chance.below(400)), calm.until(|calm| *calm)).await);
            let long = if chance.percent(30) { 90 } else { 12 };
            let (long, late) =
                (Duration::from_millis(chance.below(long * 1000)), Duration::from_millis(chance.below(600)));
            let pass = async |long| drop(timeout(long, calm.until(|calm| *calm)).await);
            match chance.below(5) {
                _ if calm.get() => {}
                0 => {
                    self.saw("is cut off from the database");
                    self.lose(late);
                    pass(long).await;
                    self.back();
                }
                1 => {
                    self.saw("is cut off from the computers");
                    self.apart.set(true);
                    pass(long).await;
                    self.apart.set(false);
                }
                2 => {
                    self.saw("hangs");
                    self.apart.set(true);
                    self.lose(late);
                    pass(long).await;
                    self.apart.set(false);
                    // What the computers sent meanwhile is there at once, what the database has to say comes later.
                    sleep(Duration::from_millis(chance.below(500))).await;
                    self.back();
                }
                3 => {
                    // Two that differ by an hour look as if the store had been away for so long: what was asked waits for a person.
                    let by = i64::try_from(chance.below(3000)).unwrap() - 1500;
                    self.saw(&format!("has its clock set {by} s ahead"));
                    wall.set(SignedDuration::from_secs(by));
                }
                _ => {
                    let Some(comes_back) = self.database.crash() else { continue };
                    self.truth.saw("the database crashes");
                    self.truth.with(|known| known.crashes += 1);
                    // Also when this coordinator does not live to see it.
                    let (truth, long) = (self.truth.clone(), long.min(Duration::from_secs(20)));
                    tokio::spawn(async move {
                        sleep(long).await;
                        truth.saw("the database is back");
                        comes_back();
                    });
                }
            }
        }
        wall.set(SignedDuration::ZERO);
    }

    fn lose(&self, late: Duration) {
        self.seat.link.cut(Instant::now() - late);
        self.database.silent(self.seat.life);
    }

    /// It reaches the database again.
    fn back(&self) {
        self.saw("is back");
        self.database.back(&self.seat);
    }

    fn saw(&self, what: &str) {
        self.truth.saw(format!("coordinator {} {what}", self.seat.life));
    }
}
