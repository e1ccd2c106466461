//! A machine's life beyond its workflows: whether anything may begin on it, taken over as it is, let go, deleted.

use jiff::Timestamp;
use landfall_api::{
    ConditionType as Type, EnrolmentStatus, ErrorCode, Machine, MachineFacts, MachinePhase, MachineStatus, Management,
    Problem, Reason, ReceiptState, Workflow, WorkflowPhase,
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
            format!(
                "machine \"{name}\" is only watched and cannot be \
            installed"
            ),
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

/// The workflow whose receipt the disk that was installed last carries, as far as is known.
pub fn installed_by(machine: &Machine) -> Option<Uuid> {
    let receipts = machine.status.iter().flat_map(|status| &status.receipts);
    let done = receipts.filter(|found| found.receipt.state == ReceiptState::Done);
    done.max_by_key(|found| found.receipt.written_at).map(|found| found.receipt.workflow_uid)
}

/// Of a machine that no document describes and that has just asked for the first time.
pub fn discovered(facts: &MachineFacts, now: Timestamp) -> MachineStatus {
    MachineStatus {
        phase: MachinePhase::Discovered,
        facts: Some(facts.clone().into()),
        enrolment: EnrolmentStatus { discovered_at: Some(now), ..EnrolmentStatus::default() },
        ..derive::new_machine_status()
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
                ReceiptState::Done => format!(
                    "disk {name} keeps the system installed by workflow \"{run}\", with its \
                    receipt"
                ),
                ReceiptState::Intent => {
                    format!("disk {name} does not boot: workflow \"{run}\" began to write it and did not finish")
                }
            }
        })
        .collect();
    if let Some(run) = run.filter(|run| is_running(run)) {
        let name = &run.metadata.name;
        stays.push(format!(
            "workflow \"{name}\" is cancelled in its current state; the disk that it was writing does \
            not boot"
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
    let status = machine.status.get_or_insert_with(derive::new_machine_status);
    status.workflow = Some(workflow.metadata.name.clone());
    if let Some(by) = workflow.spec.authority.as_ref().filter(|by| by.force) {
        let message = format!("{} said --force, {}", by.person, by.at);
        end_holds(machine, &Reason::Forced, &message, at);
    }
    derive::conditions(machine, Some(workflow), now);
}

pub(crate) fn end_holds(machine: &mut Machine, reason: &Reason, message: &str, at: (Timestamp, u64)) {
    let conditions = &mut machine.status.get_or_insert_with(derive::new_machine_status).conditions;
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
    use landfall_api::{DiskId, DiskReceipt, Receipt};

    use super::*;

    #[test]
    fn of_several_receipts_the_newest_done_one_counts() {
        let receipt = |workflow: u128, state, second| DiskReceipt {
            disk: DiskId::default(),
            receipt: Receipt {
                machine_uid: Uuid::from_u128(9),
                workflow_uid: Uuid::from_u128(workflow),
                workflow_name: "w".into(),
                generation: 1,
                action_index: 0,
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
        assert_eq!(installed_by(&machine), None);
        let receipts = vec![
            receipt(1, ReceiptState::Done, 10),
            receipt(2, ReceiptState::Done, 20),
            receipt(3, ReceiptState::Intent, 30),
        ];
        machine.status = Some(MachineStatus { receipts, ..derive::new_machine_status() });
        assert_eq!(installed_by(&machine), Some(Uuid::from_u128(2)));
    }
}
