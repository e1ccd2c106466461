//! Facts that may take their time: a BMC that starts answers after seconds, a TPM may have to make its key. Each is asked beside
//! everything else until it answers, some times; the coordinator gets the answer with the facts, or after them.

use std::future;
use std::path::Path;
use std::time::Duration;

use landfall_api::{BmcFacts, Digest, MachineFacts};
use tokio::sync::watch;
use tokio::time::sleep;

use super::tpm;
use crate::bmc;
use crate::drivers::{self, Uevents};
use crate::thread::on_thread;

/// How often each is asked, and the time between.
const TRIES: u32 = 5;
const AGAIN: Duration = Duration::from_secs(60);

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
        // One that fails by itself costs the other nothing.
        let of_bmc = answers.clone();
        tokio::spawn(async move {
            device(&[tpm::DEVICE], "tpmrm").await;
            let key = asked("tpm", tpm::endorsement_key).await;
            answers.send_modify(|answers| answers.endorsement_key = key);
        });
        tokio::spawn(async move {
            device(&bmc::NAMES, "ipmi").await;
            let bmc = asked("bmc", bmc::facts).await;
            of_bmc.send_modify(|answers| answers.bmc = bmc);
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

/// Asks until there is an answer, a few times: a BMC that starts answers the first question and not the second.
async fn asked<T: Send + 'static>(name: &str, question: fn() -> Option<T>) -> Option<T> {
    for _ in 1..TRIES {
        if let Some(answer) = on_thread(name, question).await.ok().flatten() {
            return Some(answer);
        }
        sleep(AGAIN).await;
    }
    on_thread(name, question).await.ok().flatten()
}

/// Waits for a device of the kernel's: its driver may be loaded late, and take seconds to find it.
async fn device(names: &[&str], subsystem: &str) {
    let is_there = || names.iter().any(|name| Path::new(name).exists());
    // Subscribed first: what appears after the look is announced.
    let notices = Uevents::subscribe();
    if is_there() {
        return;
    }
    let Ok(mut notices) = notices else { return };
    while !is_there() {
        if notices.next(|message| drivers::announces(message, subsystem)).await.is_err() {
            return;
        }
    }
}
