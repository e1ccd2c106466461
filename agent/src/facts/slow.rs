//! Facts that may take their time: a BMC that starts answers after seconds, a TPM may have to make its key. Each is asked once, beside
//! everything else; the coordinator gets it with the facts, or after them.

use std::future;
use std::path::Path;

use landfall_api::{BmcFacts, Digest, MachineFacts};
use tokio::sync::watch;

use super::{bmc, tpm};
use crate::drivers::{self, Uevents};
use crate::thread::on_thread;

#[derive(Default)]
struct Answers {
    endorsement_key: Option<Digest>,
    bmc: Option<BmcFacts>,
}

impl Answers {
    fn fill(&self, facts: &mut MachineFacts) {
        facts.bmc.clone_from(&self.bmc);
        if let Some(tpm) = &mut facts.tpm {
            tpm.endorsement_key = self.endorsement_key;
        }
    }
}

/// What was answered so far.
#[derive(Clone)]
pub(crate) struct Slow(watch::Receiver<Answers>);

impl Slow {
    /// Begins to ask.
    pub(crate) fn ask() -> Self {
        let (answers, known) = watch::channel(Answers::default());
        tokio::spawn(async move {
            let key = async {
                let key = on_thread("tpm", tpm::endorsement_key).await.ok().flatten();
                answers.send_modify(|answers| answers.endorsement_key = key);
            };
            let bmc = async {
                bmc_device().await;
                let bmc = on_thread("bmc", bmc::facts).await.ok().flatten();
                answers.send_modify(|answers| answers.bmc = bmc);
            };
            tokio::join!(key, bmc);
        });
        Self(known)
    }

    /// Adds what was answered.
    pub(crate) fn fill(&self, facts: &mut MachineFacts) {
        self.0.borrow().fill(facts);
    }

    /// Waits until something is answered that `facts` do not have.
    pub(crate) async fn changed(&self, facts: &MachineFacts) {
        let is_new = |known: &Answers| {
            let mut filled = facts.clone();
            known.fill(&mut filled);
            filled != *facts
        };
        if self.0.clone().wait_for(is_new).await.is_err() {
            future::pending::<()>().await;
        }
    }
}

/// Waits for the kernel's device of a BMC: its driver may be loaded late, and take seconds to find it.
async fn bmc_device() {
    let is_there = || bmc::NAMES.iter().any(|name| Path::new(name).exists());
    // Subscribed first: what appears after the look is announced.
    let notices = Uevents::subscribe();
    if is_there() {
        return;
    }
    let Ok(mut notices) = notices else { return };
    while !is_there() {
        if notices.next(drivers::is_bmc).await.is_err() {
            return;
        }
    }
}
