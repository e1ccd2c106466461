//! What one of several coordinators does alone, as far as machines need it: it takes over those of coordinators that are gone.
//! A small version of the coordinator's own, whose other duties and whose database are not simulated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_coordinator::engine::Engine;
use tokio::time::{Instant, sleep, timeout};

use super::database::{Database, Seat};
use super::store::ANSWER;
use super::truth::Truth;

/// How often one that waits looks.
const LOOK: Duration = Duration::from_millis(200);
/// How often the one that leads asks who is there.
const ASK: Duration = Duration::from_millis(500);
/// One that is not there gets so long to come back.
const COMES_BACK: Duration = Duration::from_secs(5);
/// What failed is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(5);

/// One life of a coordinator.
pub(crate) struct Candidate {
    pub(crate) seat: Seat,
    pub(crate) database: Database,
    pub(crate) truth: Truth,
}

impl Candidate {
    /// Leads whenever no other one does.
    pub(crate) async fn run(self, engine: Engine) {
        let mut takes_over = false;
        loop {
            loop {
                self.seat.link.mended().await;
                if self.database.lead(self.seat.life) {
                    break;
                }
                takes_over = true;
                sleep(LOOK).await;
            }
            let (lost, link) = (Arc::<AtomicBool>::default(), self.seat.link.clone());
            let is_lost = lost.clone();
            let unconfirmed = move || match link.cut_since() {
                _ if is_lost.load(Ordering::Acquire) => Duration::MAX,
                Some(since) => since.elapsed(),
                None => Duration::ZERO,
            };
            self.truth.saw(format!("coordinator {} leads", self.seat.life));
            self.truth.with(|known| known.leads += 1);
            match engine.begin_to_lead(Arc::new(unconfirmed), takes_over).await {
                Ok(()) => {
                    self.lead(&engine).await;
                    takes_over = true;
                }
                Err(_) => sleep(PAUSE).await,
            }
            lost.store(true, Ordering::Release);
            engine.cease_to_lead();
            self.database.cease(self.seat.life);
        }
    }

    /// Until its session is lost.
    async fn lead(&self, engine: &Engine) {
        let (begun, mut seen) = (Instant::now(), BTreeMap::new());
        let (mut said, mut owes) = (Vec::new(), false);
        loop {
            if timeout(ANSWER, self.seat.link.mended()).await.is_err() || !self.database.leads(self.seat.life) {
                return;
            }
            seen.extend(self.database.there().into_iter().map(|url| (url, Instant::now())));
            seen.retain(|_, at| at.elapsed() < COMES_BACK);
            let there: Vec<_> = seen.keys().cloned().collect();
            if begun.elapsed() >= COMES_BACK && (owes || said != there) {
                let has = |url: &str| there.iter().any(|known| **known == *url);
                owes = engine.others().take_over(&has).await.is_err();
                if owes {
                    sleep(AGAIN).await;
                }
                said = there;
            }
            sleep(ASK).await;
        }
    }
}
