//! Another look at a machine, on demand: its agent reports facts and disks anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use landfall_api::message::ToAgent;
use landfall_api::{ErrorCode, Inspection, Problem};
use landfall_machine::Session;
use landfall_proto::revision::INSPECT;
use tokio::sync::watch;
use tokio::time::timeout;
use uuid::Uuid;

use super::fleet::Fleet;

/// How long a person waits for the agent; the operator's command waits for 60 s. Disks that hang take 5 s of it.
const LIMIT: Duration = Duration::from_secs(45);

/// Looks at machines that people asked for.
pub struct Inspections {
    fleet: Arc<Fleet>,
    /// Who waits for a look, by the machine's uid: as many as requests are under way.
    waiting: Mutex<HashMap<Uuid, watch::Sender<()>>>,
}

impl Inspections {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, waiting: Mutex::default() }
    }

    fn wait(&self, machine: Uuid) -> watch::Receiver<()> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Those whose last receiver has gone are forgotten here.
        waiting.retain(|_, tell| tell.receiver_count() > 0);
        waiting.entry(machine).or_default().subscribe()
    }

    /// The facts and disks of a look that ended are stored.
    pub fn ended(&self, machine: Uuid) {
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&machine);
        if let Some(tell) = waiting {
            tell.send_replace(());
        }
    }

    /// Has a machine's agent look at it again, and waits for what it finds.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (no such machine), `SourceUnreachable` (no agent is connected), `VersionSkew` (it is of an older
    /// release), `Timeout` (as while a workflow runs, since a look would contradict what it writes); or the store's.
    pub async fn inspect(&self, name: &str) -> Result<Inspection, Problem> {
        let machine = self.fleet.described(name).await?;
        let of = |code, what: String| Problem::new(code, what).at(name);
        let absent = || {
            of(ErrorCode::SourceUnreachable, format!("no agent of machine \"{name}\" is connected"))
                .hint("netboot the machine; landfall get machines shows which are connected")
        };
        let uid = machine.metadata.uid.ok_or_else(absent)?;
        let (asked, mut looked) = {
            let mut live = self.fleet.machines().lock(uid).await;
            if !live.is_connected() {
                return Err(absent());
            }
            if live.session.as_ref().map_or(0, Session::protocol) < INSPECT {
                let what = format!("the agent of machine \"{name}\" is of an older release");
                return Err(of(ErrorCode::VersionSkew, what).hint("netboot the machine again"));
            }
            let looked = self.wait(uid);
            live.send(ToAgent::Inspect);
            (self.fleet.now(), looked)
        };
        if !matches!(timeout(LIMIT, looked.changed()).await, Ok(Ok(()))) {
            let what = format!("the agent of machine \"{name}\" did not report within {} s", LIMIT.as_secs());
            let hint = "while a workflow runs on the machine, its agent looks once the workflow has ended";
            return Err(of(ErrorCode::Timeout, what).hint(hint));
        }
        let machine = self.fleet.described(name).await?;
        let mut changes = machine.status.as_ref().map(|status| status.fact_changes.clone()).unwrap_or_default();
        changes.retain(|change| change.at >= asked);
        Ok(Inspection { at: self.fleet.now(), changes })
    }
}
