//! What a workflow would destroy, as far as the machine's facts say: for the person who is about to request it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    Action, ActionSpec, DiskFacts, DiskHealth, DiskId, DiskReceipt, DiskSelector, HealthTestSpec, Machine, WipeLevel,
};

/// The body of `POST …/machines/{name}/preview`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PreviewRequest {
    /// Name of the template; without one the preview is of deprovisioning the machine.
    pub template: Option<String>,
    /// Values for its parameters.
    pub parameters: BTreeMap<String, serde_json::Value>,
    /// The disks that deprovisioning wipes, as in its request.
    pub disks: Vec<DiskSelector>,
    /// How thoroughly it wipes them, as in its request.
    #[serde(skip_serializing_if = "WipeLevel::is_default")]
    pub level: WipeLevel,
    /// What will do instead, as in its request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallback: Vec<WipeLevel>,
}

/// What a workflow would destroy.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Preview {
    /// Whether an agent has reported the machine's disks. If not, what is on them is unknown.
    pub disks_known: bool,
    /// Each action that destroys data, in order.
    pub actions: Vec<PreviewedAction>,
    /// The known receipts on these disks.
    pub receipts: Vec<DiskReceipt>,
    /// Names all of the above, except for when the disks were looked at: the request that a person makes after seeing it
    /// has this in `expects`. Empty from a coordinator that does not compare.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub digest: String,
}

/// One action that destroys data.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PreviewedAction {
    /// Its name.
    pub name: String,
    /// The disks it would choose by the facts that were reported last. Where one is to be chosen and this has several, the
    /// action refuses.
    pub disks: Vec<DiskFacts>,
    /// How many of its selectors match no disk that was reported.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmatched: u32,
    /// The names of the partitions it keeps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub keep: Vec<String>,
    /// Of `wipe`: the levels that will do, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<WipeLevel>,
}

// Serde gives a reference.
#[expect(clippy::trivially_copy_pass_by_ref)]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl Preview {
    /// Of these actions on this machine.
    pub fn of(actions: &[Action], machine: &Machine) -> Self {
        let status = machine.status.as_ref();
        let facts = status.and_then(|status| status.facts.as_ref());
        let disks = facts.map(|facts| facts.disks.as_slice()).unwrap_or_default();
        let receipts = status.map(|status| status.receipts.as_slice()).unwrap_or_default();
        let own = receipts.iter().filter(|on| Some(on.receipt.machine_uid) == machine.metadata.uid);
        let own: Vec<&DiskId> = own.map(|on| &on.disk).collect();
        let previewed = actions.iter().filter_map(|action| {
            let (selectors, keep): (Vec<&DiskSelector>, _) = match &action.spec {
                ActionSpec::WriteImage(spec) => (vec![&spec.disk], spec.keep.clone()),
                ActionSpec::Wipe(spec) if spec.disks.is_empty() => {
                    let carries = |disk: &&DiskFacts| own.iter().any(|id| id.same_disk(&disk.id));
                    let disks = disks.iter().filter(carries).cloned().collect();
                    return Some(PreviewedAction {
                        name: action.name.clone(),
                        disks,
                        levels: spec.levels(),
                        ..PreviewedAction::default()
                    });
                }
                ActionSpec::Wipe(spec) => (spec.disks.iter().collect(), Vec::new()),
                ActionSpec::HealthTest(HealthTestSpec { disk_write: Some(spec), .. }) => {
                    (spec.disks.iter().collect(), Vec::new())
                }
                ActionSpec::Storage(spec) => {
                    let keep = (0..spec.disks.len()).flat_map(|item| spec.preserved(item)).collect();
                    (spec.disks.iter().flat_map(|layout| &layout.select).collect(), keep)
                }
                ActionSpec::RunContainer(spec) if !spec.devices.is_empty() => {
                    (spec.devices.iter().map(|device| &device.disk).collect(), Vec::new())
                }
                _ => return None,
            };
            let unmatched =
                selectors.iter().filter(|selector| !disks.iter().any(|disk| matches(selector, disk))).count();
            let chosen = disks.iter().filter(|disk| selectors.iter().any(|selector| matches(selector, disk)));
            Some(PreviewedAction {
                name: action.name.clone(),
                disks: chosen.cloned().collect(),
                unmatched: u32::try_from(unmatched).unwrap_or(u32::MAX),
                keep,
                levels: if let ActionSpec::Wipe(spec) = &action.spec { spec.levels() } else { Vec::new() },
            })
        });
        let actions: Vec<PreviewedAction> = previewed.collect();
        let on_them = |on: &&DiskReceipt| actions.iter().flat_map(|a| &a.disks).any(|d| d.id.same_disk(&on.disk));
        let receipts = receipts.iter().filter(on_them).cloned().collect();
        Self { disks_known: facts.is_some(), actions, receipts, digest: String::new() }
    }

    /// What its digest is made from: all but when the agent looked, and counters of the disks' health, which change with each start of the
    /// machine.
    pub fn compared(&self) -> Self {
        let mut compared = Self { digest: String::new(), ..self.clone() };
        let disks = compared.actions.iter_mut().flat_map(|action| &mut action.disks);
        for disk in disks {
            if let Some(contents) = &mut disk.contents {
                contents.seen_at = Timestamp::UNIX_EPOCH;
            }
            let fails = disk.health.take().filter(|health| health.failing);
            disk.health =
                fails.map(|DiskHealth { failing, reason, .. }| DiskHealth { failing, reason, ..DiskHealth::default() });
        }
        compared
    }

    /// Whether data may be lost. Only a disk that its agent saw blank has nothing to lose: a disk whose contents are
    /// unknown may hold anything, and so may the one that a selector chooses later, where it matches none now. Partitions
    /// that an action keeps count as well: its disk is written all the same. To an action that erases more than signatures no disk
    /// is blank.
    pub fn may_destroy(&self) -> bool {
        let maybe = |disk: &DiskFacts| disk.contents.as_ref().is_none_or(|contents| !contents.is_blank());
        let of_action = |action: &PreviewedAction| {
            let erases = action.levels.iter().any(|level| *level != WipeLevel::Signatures);
            erases || action.disks.is_empty() || action.unmatched > 0 || action.disks.iter().any(maybe)
        };
        !self.receipts.is_empty() || self.actions.iter().any(of_action)
    }
}

/// A selector that does not parse was refused before.
fn matches(selector: &DiskSelector, disk: &DiskFacts) -> bool {
    selector.mismatches(disk).is_ok_and(|why| why.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Document;

    fn machine() -> Machine {
        let disk = |name: &str, serial: &str, contents: serde_json::Value| {
            json!({"id": {"name": name, "serial": serial, "wwn": "", "path": "", "model": "", "sizeBytes": 1024},
                "transport": "virtio", "rotational": false, "logicalSectorBytes": 512, "physicalSectorBytes": 512,
                "readOnly": false, "contents": contents})
        };
        let full = json!({"seenAt": "2026-01-01T00:00:00Z", "table": "gpt"});
        let blank = json!({"seenAt": "2026-01-01T00:00:00Z"});
        let uid = "00000000-0000-0000-0000-000000000001";
        let document = json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Machine",
            "metadata": {"name": "m", "uid": uid}, "spec": {"identity": {"macs": ["52:54:00:00:00:01"]}},
            "status": {"phase": "Available", "conditions": [],
                "facts": {"smbios": {"uuid": "", "serial": "", "manufacturer": "", "product": ""},
                    "cpu": {"model": "", "logical": 1, "architecture": "x86_64"}, "memoryBytes": 1, "nics": [],
                    "firmware": {"mode": "bios"},
                    "disks": [disk("vda", "A", full), disk("vdb", "B", blank)]},
                "receipts": [{"disk": {"name": "vdb", "serial": "B", "wwn": "", "path": "", "model": "",
                    "sizeBytes": 1024}, "receipt": {"machineUid": uid, "workflowUid": uid, "workflowName": "old",
                    "generation": 1, "actionIndex": 0, "state": "Done", "writtenAt": "2026-01-01T00:00:00Z"}}]}});
        let Document::Machine(machine) = Document::from_value(document).unwrap() else { panic!() };
        Machine::clone(&machine)
    }

    fn preview(actions: serde_json::Value, machine: &Machine) -> Preview {
        let actions: Vec<Action> = serde_json::from_value(actions).unwrap();
        Preview::of(&actions, machine)
    }

    fn names(action: &PreviewedAction) -> Vec<&str> {
        action.disks.iter().map(|disk| disk.id.name.as_str()).collect()
    }

    #[test]
    fn a_preview_lists_the_disks_each_action_would_choose() {
        let write = json!({"name": "write", "writeImage": {"disk": {"serial": "A"}, "keep": ["data"],
            "image": {"url": "http://h/i", "digestWaived": true}}});
        let clear = json!({"name": "clear", "wipe": {}});
        let both = json!({"name": "both", "wipe": {"disks": [{"serial": "B"}, {"serial": "A"}]}});
        let restart = json!({"name": "restart", "reboot": {}});
        let layout = json!({"name": "layout", "storage": {"disks": [{"select": [{"serial": "B"}, {"serial": "A"}],
            "partitions": [{"name": "archive", "preserve": true}, {"name": "p"}]}]}});
        let found = preview(json!([write, clear, both, layout, restart]), &machine());
        let [write, clear, both, layout] = found.actions.as_slice() else { panic!("{found:?}") };
        assert_eq!((names(layout), layout.keep.as_slice()), (vec!["vda", "vdb"], &["archive".to_owned()][..]));
        assert_eq!((names(write), write.keep.as_slice()), (vec!["vda"], &["data".to_owned()][..]));
        assert_eq!((names(clear), names(both)), (vec!["vdb"], vec!["vda", "vdb"]));
        assert!(found.disks_known && found.may_destroy() && found.receipts.len() == 1);
    }

    #[test]
    fn only_what_is_on_the_chosen_disks_is_destroyed() {
        let clear = |serial: &str| json!([{"name": "c", "wipe": {"disks": [{"serial": serial}]}}]);
        assert!(preview(clear("A"), &machine()).may_destroy(), "a table");
        assert!(preview(clear("B"), &machine()).may_destroy(), "a receipt");
        let mut machine = machine();
        machine.status.as_mut().unwrap().receipts.clear();
        assert!(!preview(clear("B"), &machine).may_destroy(), "blank");
        let erase = json!([{"name": "e", "wipe": {"disks": [{"serial": "B"}], "level": "zero"}}]);
        assert!(preview(erase, &machine).may_destroy(), "data without a signature");
        let layout = |serials: [&str; 2]| {
            let select = serials.map(|serial| json!({"serial": serial}));
            json!([{"name": "l", "storage": {"disks": [{"select": select, "partitions": [{"name": "p"}]}]}}])
        };
        let one_missing = preview(layout(["B", "C"]), &machine);
        assert!(one_missing.may_destroy() && one_missing.actions[0].unmatched == 1, "the other may be any disk");
        assert!(!preview(layout(["B", "B"]), &machine).may_destroy());
    }

    #[test]
    fn what_is_unknown_may_be_lost() {
        let clear = |serial: &str| json!([{"name": "c", "wipe": {"disks": [{"serial": serial}]}}]);
        let mut machine = machine();
        let status = machine.status.as_mut().unwrap();
        status.receipts.clear();
        status.facts.as_mut().unwrap().disks[1].contents = None;
        assert!(preview(clear("B"), &machine).may_destroy(), "nothing is known of the disk");
        assert!(preview(clear("C"), &machine).may_destroy(), "no reported disk matches");
        machine.status = None;
        let unknown = preview(clear("A"), &machine);
        assert!(!unknown.disks_known && unknown.may_destroy(), "no agent has reported disks");
        assert!(!preview(json!([{"name": "r", "reboot": {}}]), &machine).may_destroy());
    }
}
