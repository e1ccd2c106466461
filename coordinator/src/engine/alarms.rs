//! Alarms: on the machine, and in the audit log, that another computer claims its identity. Any host that reaches the
//! port can cause one, so each is written rarely.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use landfall_api::{AuditOutcome, ErrorCode, Problem, Reason, message::Identity};
use landfall_machine::identity;

use super::{fleet::Fleet, identities::MAX_NAMED};
use landfall_edge::gate::Limiter;
use landfall_store::audit::Note;

/// One machine's alarm for one reason is written at most so often.
const EVERY: SignedDuration = SignedDuration::from_secs(10);
/// Alarms remembered; older ones than [`EVERY`] go first.
const REMEMBERED: usize = 1024;
/// Lines a second, of all machines.
static LINES: Limiter = Limiter::a_second(10);

/// Alarms, and when each was last written.
pub(super) struct Alarms {
    fleet: Arc<Fleet>,
    /// By machine and reason.
    last: Mutex<HashMap<(String, Reason), Timestamp>>,
}

impl Alarms {
    pub(super) fn new(fleet: Arc<Fleet>) -> Self {
        Self { fleet, last: Mutex::default() }
    }

    /// Whether one was written a moment ago; else one is now.
    fn too_soon(&self, machine: &str, reason: &Reason, now: Timestamp) -> bool {
        // A clock that was set back holds up nothing.
        let recent = |at: &Timestamp| (SignedDuration::ZERO..EVERY).contains(&now.duration_since(*at));
        // A panic elsewhere leaves nothing half done.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= REMEMBERED {
            last.retain(|_, at| recent(at));
        }
        let alarm = (machine.to_owned(), reason.clone());
        if last.get(&alarm).is_some_and(recent) {
            return true;
        }
        last.insert(alarm, now);
        false
    }

    /// Marks every machine that an ambiguous identity points to. Takes the lock of one after the other.
    pub(super) async fn alarm_all(&self, said: &Identity, reason: Reason, problem: &Problem) -> Result<(), Problem> {
        let named: BTreeSet<String> = {
            let index = self.fleet.index();
            let by_mac = said.macs.iter().filter_map(|mac| index.machine_of_mac(*mac));
            let by_uuid = said.smbios_uuid.and_then(|u| index.machine_of_uuid(u));
            by_mac.chain(by_uuid).chain(index.machines_of_serial(&said.serial)).collect()
        };
        for name in named.iter().take(MAX_NAMED) {
            let Some(uid) = self.fleet.store().machine(name).await?.and_then(|machine| machine.metadata.uid) else {
                continue;
            };
            let _lock = self.fleet.machines().lock(uid).await;
            self.alarm(name, reason.clone(), problem.message.clone()).await?;
        }
        Ok(())
    }

    /// Records on the machine, and in the audit log, that another computer claims its identity. Under the machine's lock: a step
    /// that is being stored could drop it otherwise.
    pub(super) async fn alarm(&self, machine: &str, reason: Reason, message: String) -> Result<(), Problem> {
        let now = self.fleet.now();
        let before = self.fleet.store().machine(machine).await?;
        let holds = before.as_ref().is_some_and(|machine| identity::has_alarm(machine));
        // An alarm that was cleared since is raised at once.
        if self.too_soon(machine, &reason, now) && holds {
            return Ok(());
        }
        if let Some(left_out) = LINES.step() {
            tracing::warn!(machine, %reason, %message, left_out, "identity alarm");
        }
        // Recorded once, not with each request of the same agent.
        if !before.is_some_and(|machine| identity::has_this_alarm(&machine, &reason, &message)) {
            let subject = format!("machine/{machine}");
            let note = Note {
                // Thinned by machine: forged identities must not fill the log.
                from: subject.clone(),
                outcome: AuditOutcome::Refused,
                code: Some(ErrorCode::AmbiguousIdentity),
                ..Note::own("IdentityAlarm", subject, format!("{reason}: {message}"))
            };
            self.fleet.store().audit().note(now, note).await;
        }
        self.fleet
            .mutate_machine(machine, |machine| identity::alarm(machine, reason.clone(), message.clone(), now))
            .await
            .map(drop)
    }
}
