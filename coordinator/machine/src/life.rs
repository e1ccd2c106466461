//! A machine's life beyond its workflows: whether anything may begin on it, taken over as it is, let go, deleted.

use jiff::Timestamp;
use landfall_api::{
    ActionSpec, ConditionType as Type, DiskFacts, EnrolmentStatus, ErrorCode, Machine, MachineFacts, MachinePhase,
    MachineStatus, Management, Problem, Reason, ReceiptState, Workflow, WorkflowPhase, WorkflowStatus,
};
use uuid::Uuid;

use crate::{advance, derive};

/// What keeps a machine's document while an agent may be acting on it.
pub const AGENT: &str = "landfall.dev/agent";

/// Whether anything may begin on the machine.
///
/// # Errors
/// [`Problem`] with code `Conflict` (it is being deleted), `Unmanaged` or `Maintenance`.
pub fn may_begin(machine: &Machine) -> Result<(), Problem> {
    let name = &machine.metadata.name;
    let refused =
        |code, message: String, hint: String| Err(Problem::new(code, message).at(format!("Machine/{name}")).hint(hint));
    if machine.metadata.deletion_timestamp.is_some() {
        let hint = format!("wait for it with: landfall wait machine/{name} --for=delete, then apply it anew");
        return refused(ErrorCode::Conflict, format!("machine \"{name}\" is being deleted"), hint);
    }
    if machine.spec.management == Management::External {
        let hint = "remove spec.management from its document to let Landfall install it".to_owned();
        return refused(
            ErrorCode::Unmanaged,
            format!("machine \"{name}\" is only watched and cannot be installed"),
            hint,
        );
    }
    if machine.spec.maintenance {
        let hint = "remove spec.maintenance from its document when the work on it is done".to_owned();
        return refused(ErrorCode::Maintenance, format!("machine \"{name}\" is in maintenance"), hint);
    }
    Ok(())
}

/// Whether a machine that netboots is to run the agent; else it boots its own disk.
pub fn wants_agent(machine: &Machine, workflow: Option<&Workflow>) -> bool {
    let Some(run) = workflow.and_then(|w| w.status.as_ref()) else { return false };
    let conditions = machine.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let untouchable = machine.metadata.deletion_timestamp.is_some() || machine.spec.management == Management::External;
    if untouchable || derive::held(conditions).is_some() {
        return false;
    }
    match run.phase {
        WorkflowPhase::Pending => may_begin(machine).is_ok(),
        // What is under way goes on, maintenance or not.
        WorkflowPhase::Running => true,
        _ => false,
    }
}

/// Whether an agent has ever taken the workflow, or it has ended.
pub fn has_begun(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.phase != WorkflowPhase::Pending)
}

/// Whether the workflow has not ended.
pub fn is_open(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| !status.phase.is_terminal())
}

/// Whether the workflow has ended.
pub fn has_ended(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.phase.is_terminal())
}

/// Whether the workflow has succeeded.
pub fn succeeded(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.phase == WorkflowPhase::Succeeded)
}

/// Whether a person stopped the workflow.
pub fn was_cancelled(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.phase == WorkflowPhase::Cancelled)
}

/// Whether the workflow was asked for and no agent has taken it yet.
pub fn waits(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(|status| status.phase == WorkflowPhase::Pending)
}

/// Whether an agent may be at work on the workflow.
pub fn is_running(workflow: &Workflow) -> bool {
    workflow.status.as_ref().is_some_and(advance::is_running)
}

/// Whether a system is installed on the machine, as far as is known.
pub fn is_installed(status: &MachineStatus) -> bool {
    derive::holds(&status.conditions, &Type::Provisioned)
}

/// Whether one of the machine's disks was installed, as far as is known.
pub fn was_installed(status: &MachineStatus) -> bool {
    !status.receipts.is_empty() || derive::holds(&status.conditions, &Type::NoReceipt)
}

/// The receipt that the disk with the system carries, as far as is known: its workflow, and the index of its action where
/// another disk carries a receipt too and `workflow`, the machine's last one, says which of them has the system. (Of an older
/// one only the disk that was written last is known.)
pub fn installed_by(machine: &Machine, workflow: Option<&Workflow>) -> Option<(Uuid, Option<u32>)> {
    let receipts = machine.status.iter().flat_map(|status| &status.receipts);
    let done = || receipts.clone().map(|found| &found.receipt).filter(|receipt| receipt.state == ReceiptState::Done);
    let last = done().max_by_key(|receipt| receipt.written_at)?;
    let of_system = workflow.and_then(|workflow| {
        let status = workflow.status.as_ref()?;
        let own = |uid| workflow.metadata.uid == Some(uid) || status.takes_over.contains(&uid);
        let of_run = || done().filter(|receipt| own(receipt.workflow_uid));
        let system = seeded(machine, status)
            .or_else(|| Some(status.actions.iter().rposition(|action| action.action.spec.writes_system())? as u32))?;
        let several = of_run().any(|receipt| receipt.action_index != system);
        let found = of_run().find(|receipt| receipt.action_index == system)?;
        Some((found.workflow_uid, several.then_some(system)))
    });
    Some(of_system.unwrap_or((last.workflow_uid, None)))
}

/// The action whose receipt is on the disk that a seed names.
fn seeded(machine: &Machine, run: &WorkflowStatus) -> Option<u32> {
    let named = run.actions.iter().rev().find_map(|action| match &action.action.spec {
        ActionSpec::CloudInit(spec) => spec.disk.as_ref(),
        ActionSpec::Ignition(spec) => spec.disk.as_ref(),
        _ => None,
    })?;
    let status = machine.status.as_ref()?;
    let matches = |disk: &&DiskFacts| named.mismatches(disk).is_ok_and(|mismatches| mismatches.is_empty());
    let disk = status.facts.as_ref()?.disks.iter().find(matches)?;
    let on_it = status.receipts.iter().find(|found| found.disk.same_disk(&disk.id));
    on_it.map(|found| found.receipt.action_index)
}

/// Of a machine that no document describes and that has just asked for the first time.
pub fn discovered(facts: &MachineFacts, now: Timestamp) -> MachineStatus {
    MachineStatus {
        phase: MachinePhase::Discovered,
        facts: Some(facts.clone().into()),
        enrolment: EnrolmentStatus { discovered_at: Some(now), ..EnrolmentStatus::default() },
        ..MachineStatus::default()
    }
}

/// Whether a person has to decide before anything begins on the machine.
pub fn is_held(machine: &Machine) -> Option<&landfall_api::Condition> {
    derive::held(&machine.status.as_ref()?.conditions)
}

/// What a machine's disks carry, in sentences for people.
pub fn what_stays(machine: &Machine, run: Option<&Workflow>) -> Vec<String> {
    let Some(status) = &machine.status else { return Vec::new() };
    let mut stays: Vec<String> = status
        .receipts
        .iter()
        .map(|found| {
            let (disk, run) = (&found.disk, &found.receipt.workflow_name);
            let name = [&disk.name, &disk.serial, &disk.wwn, &disk.path].into_iter().find(|s| !s.is_empty());
            let name = name.map_or("?", String::as_str);
            match found.receipt.state {
                ReceiptState::Done => {
                    format!("disk {name} keeps the system installed by workflow \"{run}\", with its receipt")
                }
                ReceiptState::Intent => {
                    format!("disk {name} does not boot: workflow \"{run}\" began to write it and did not finish")
                }
            }
        })
        .collect();
    if let Some(run) = run.filter(|run| is_running(run)) {
        let name = &run.metadata.name;
        stays.push(format!(
            "workflow \"{name}\" is cancelled in its current state; the disk that it was writing does not boot"
        ));
    }
    if stays.is_empty() && is_installed(status) {
        stays.push("the installed system stays; it carries no receipt".to_owned());
    }
    if stays.is_empty() {
        stays.push("the content of its disks is unknown".to_owned());
    }
    stays
}

/// A workflow was asked for: the machine's document names it. A person who said `--force` ends the holds.
pub fn take_up(machine: &mut Machine, workflow: &Workflow, now: Timestamp) {
    let at = (now, machine.metadata.generation);
    let status = machine.status.get_or_insert_default();
    status.workflow = Some(workflow.metadata.name.clone());
    if let Some(by) = workflow.spec.authority.as_ref().filter(|by| by.force) {
        let message = format!("{} said --force, {}", by.person, by.at);
        end_holds(machine, &Reason::Forced, &message, at);
    }
    derive::conditions(machine, Some(workflow), now);
}

pub(crate) fn end_holds(machine: &mut Machine, reason: &Reason, message: &str, at: (Timestamp, u64)) {
    let conditions = &mut machine.status.get_or_insert_default().conditions;
    for kind in derive::HOLDS {
        if derive::find(conditions, &kind).is_some() {
            derive::set(conditions, kind, false, reason.clone(), message, at);
        }
    }
}

/// Another run has not ended.
pub fn busy(machine: &str, workflow: &str) -> Problem {
    Problem::new(ErrorCode::MachineBusy, format!("machine \"{machine}\" is busy with workflow \"{workflow}\""))
        .hint(format!("wait for it, or stop it with: landfall cancel {workflow}"))
        .at(format!("Machine/{machine}"))
}

#[cfg(test)]
mod tests {
    use landfall_api::{ActionStatus, DiskId, DiskReceipt, Receipt};

    use super::*;

    #[test]
    fn of_several_receipts_the_newest_done_one_counts() {
        let receipt = |workflow: u128, action_index, state, second| DiskReceipt {
            disk: DiskId::default(),
            receipt: Receipt {
                machine_uid: Uuid::from_u128(9),
                workflow_uid: Uuid::from_u128(workflow),
                workflow_name: "w".into(),
                generation: 1,
                action_index,
                image_digest: None,
                state,
                written_at: Timestamp::from_second(second).unwrap(),
            },
        };
        let mut machine: Machine = serde_json::from_value(serde_json::json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": { "name": "m1" },
            "spec": { "identity": { "macs": [], "serial": "S" } },
        }))
        .unwrap();
        assert_eq!(installed_by(&machine, None), None);
        let receipts = vec![
            receipt(1, 0, ReceiptState::Done, 10),
            receipt(2, 2, ReceiptState::Done, 20),
            receipt(3, 0, ReceiptState::Intent, 30),
        ];
        machine.status = Some(MachineStatus { receipts, ..MachineStatus::default() });
        assert_eq!(installed_by(&machine, None), Some((Uuid::from_u128(2), None)));
        // Run 2 took over run 1, which had written the system; it laid out a disk for data.
        let action = |json: serde_json::Value| serde_json::from_value::<landfall_api::Action>(json).unwrap();
        let write = action(
            serde_json::json!({"name": "write", "writeImage": {"disk": {}, "image": {"url": "http://x/i", "digest": format!("sha256:{}", "0".repeat(64))}}}),
        );
        let data =
            action(serde_json::json!({"name": "data", "storage": {"disks": [{"partitions": [{"role": "data"}]}]}}));
        let actions = [write, data].into_iter().map(ActionStatus::pending).collect();
        let status = WorkflowStatus { actions, takes_over: vec![Uuid::from_u128(1)], ..WorkflowStatus::default() };
        let run = Workflow {
            api_version: machine.api_version.clone(),
            kind: landfall_api::Kind::Workflow,
            metadata: landfall_api::Metadata { uid: Some(Uuid::from_u128(2)), ..machine.metadata.clone() },
            spec: landfall_api::WorkflowSpec { machine: "m1".into(), ..landfall_api::WorkflowSpec::default() },
            status: Some(status),
        };
        assert_eq!(installed_by(&machine, Some(&run)), Some((Uuid::from_u128(1), Some(0))));
        // Two images, and the seed says which one is the system.
        let mut run = run;
        let seed = action(serde_json::json!({"name": "seed", "cloudInit": {"disk": {"serial": "S2"}}}));
        let status = run.status.as_mut().unwrap();
        status.actions.push(ActionStatus::pending(seed));
        let disk = DiskFacts { id: DiskId { serial: "S2".into(), ..DiskId::default() }, ..DiskFacts::default() };
        let known = machine.status.as_mut().unwrap();
        known.receipts[1].disk = disk.id.clone();
        known.facts = Some(MachineFacts { disks: vec![disk], ..MachineFacts::default() }.into());
        assert_eq!(installed_by(&machine, Some(&run)), Some((Uuid::from_u128(2), Some(2))));
    }
}
