//! Another look at a machine, on demand: its agent reports facts and disks anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use landfall_api::message::ToAgent;
use landfall_api::{ErrorCode, Inspection, Problem};
use landfall_machine::Session;
use landfall_proto::revision::INSPECT;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

use super::fleet::Fleet;

/// How long a person waits for the agent; the operator's command waits for 60 s. Disks that hang take 5 s of it.
const LIMIT: Duration = Duration::from_secs(45);

/// Looks at machines that people asked for.
pub struct Inspections {
    fleet: Arc<Fleet>,
    /// Who waits, by the inspection's uid, with the machine's: as many as requests are under way.
    waiting: Mutex<HashMap<Uuid, (Uuid, oneshot::Sender<()>)>>,
}

/// One who waits; forgotten when dropped.
struct Waiting<'a>(&'a Inspections, Uuid);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting().remove(&self.1);
    }
}

impl Inspections {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, waiting: Mutex::default() }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<Uuid, (Uuid, oneshot::Sender<()>)>> {
        // Every statement leaves the map consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The facts of this look are stored. One that no person waits for any more, or of another machine, does not count.
    pub fn ended(&self, machine: Uuid, inspection: Uuid) {
        let mut waiting = self.waiting();
        if waiting.get(&inspection).is_some_and(|(asked, _)| *asked == machine)
            && let Some((_, tell)) = waiting.remove(&inspection)
        {
            // The person has gone.
            let _ = tell.send(());
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
        let inspection = Uuid::new_v4();
        let (tell, looked) = oneshot::channel();
        let _waiting = Waiting(self, inspection);
        let asked = {
            let mut live = self.fleet.machines().lock(uid).await;
            if !live.is_connected() {
                return Err(absent());
            }
            if live.session.as_ref().map_or(0, Session::protocol) < INSPECT {
                let what = format!("the agent of machine \"{name}\" is of an older release");
                return Err(of(ErrorCode::VersionSkew, what).hint("netboot the machine again"));
            }
            self.waiting().insert(inspection, (uid, tell));
            live.send(ToAgent::Inspect(inspection));
            self.fleet.now()
        };
        if !matches!(timeout(LIMIT, looked).await, Ok(Ok(()))) {
            if !self.fleet.machines().lock(uid).await.is_connected() {
                return Err(absent());
            }
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
