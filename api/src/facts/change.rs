//! What became of a machine's facts from one look to the next.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::MachineFacts;

/// Changes that a machine's status keeps; the oldest go first.
pub const MAX_FACT_CHANGES: usize = 64;
/// The longest text of a change, bytes; the rest is cut.
const MAX_SIDE: usize = 200;

/// One fact that differs from the last time the machine was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FactChange {
    /// When the coordinator saw it.
    pub at: Timestamp,
    /// Its path; a thing in a list is named by what identifies it: `memory.modules[DIMM_A1]`, `disks[S4EVNX0R].id.model`.
    pub fact: String,
    /// What it was; empty if it was not there.
    #[serde(default)]
    pub before: String,
    /// What it is; empty if it is gone.
    #[serde(default)]
    pub after: String,
}

/// Another look at a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Inspection {
    /// When its facts were stored.
    pub at: Timestamp,
    /// The facts that differ from those before it, oldest first.
    pub changes: Vec<FactChange>,
}

impl MachineFacts {
    /// What is different in `after`. What varies from boot to boot on the same hardware does not count: kernel names, links,
    /// drivers, the contents of disks, and 2 % of memory.
    pub fn changes(&self, after: &Self, at: Timestamp) -> Vec<FactChange> {
        let mut found = Vec::new();
        // Facts are plain data: they serialise.
        let [before, after] = [self, after].map(|facts| serde_json::to_value(facts).unwrap_or_default());
        compare("", "", &before, &after, &mut |fact, before, after| {
            found.push(FactChange { at, fact, before, after });
        });
        found
    }
}

/// Adds new changes to those that are kept, the newest [`MAX_FACT_CHANGES`]. Of a port's neighbour the last change alone is kept: anything on
/// the cable can announce itself anew and anew, and would push the others out.
pub fn keep_changes(kept: &mut Vec<FactChange>, new: Vec<FactChange>) {
    let is_older = |old: &FactChange| old.fact.contains("].neighbour.") && new.iter().any(|one| one.fact == old.fact);
    kept.retain(|old| !is_older(old));
    kept.extend(new);
    kept.drain(..kept.len().saturating_sub(MAX_FACT_CHANGES));
}

/// One fact in which two machines differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FactDifference {
    /// Its path; a thing in a list is named by its place: `memory.modules[DIMM_A1]`, `nics[0000:3b:00.0].driver`.
    pub fact: String,
    /// What the one machine has; empty if nothing.
    pub one: String,
    /// What the other has.
    pub other: String,
}

impl MachineFacts {
    /// In what the hardware of two machines differs. What is of one machine alone (serial numbers, addresses, neighbours) does not count,
    /// nor does what varies from boot to boot.
    pub fn differences(&self, other: &Self) -> Vec<FactDifference> {
        let mut found = Vec::new();
        let [one, other] = [self, other].map(|facts| {
            let mut facts = facts.clone();
            (facts.smbios.uuid, facts.smbios.serial) = (String::new(), String::new());
            for disk in &mut facts.disks {
                (disk.id.wwn, disk.id.serial) = (String::new(), String::new());
            }
            facts.memory.modules.iter_mut().for_each(|module| module.serial.clear());
            if let Some(tpm) = &mut facts.tpm {
                tpm.endorsement_key = None;
            }
            if let Some(bmc) = &mut facts.bmc {
                (bmc.address, bmc.address_v6, bmc.mac, bmc.vlan) = (None, None, None, None);
                bmc.address_source.clear();
            }
            let mut facts = serde_json::to_value(facts).unwrap_or_default();
            let nics = facts.get_mut("nics").and_then(Value::as_array_mut);
            for nic in nics.into_iter().flatten().filter_map(Value::as_object_mut) {
                nic.retain(|name, _| name != "mac" && name != "neighbour");
            }
            facts
        });
        compare("", "", &one, &other, &mut |fact, one, other| found.push(FactDifference { fact, one, other }));
        found
    }
}

/// `kind` is the path without what identifies the things in lists.
fn compare(path: &str, kind: &str, before: &Value, after: &Value, say: &mut impl FnMut(String, String, String)) {
    if before == after || varies(kind) {
        return;
    }
    match (before, after) {
        (Value::Number(a), Value::Number(b)) if ["memoryBytes", "memory.nodes.sizeBytes"].contains(&kind) => {
            let [a, b] = [a, b].map(|n| n.as_u64().unwrap_or(0));
            if a.abs_diff(b) > a / 50 {
                say(path.to_owned(), a.to_string(), b.to_string());
            }
        }
        (Value::Object(a), Value::Object(b)) => {
            let names = |map: &Map<String, Value>| map.keys().cloned().collect::<Vec<_>>();
            each(path, kind, names(a), names(b), |name| (a.get(name), b.get(name)), |name, of| join(of, name), say);
        }
        (Value::Array(a), Value::Array(b)) => {
            let keys = |list: &[Value]| list.iter().map(key).collect::<Vec<_>>();
            let find = |list: &'_ [Value], wanted: &str| list.iter().position(|item| key(item) == wanted);
            let pair = |name: &str| (find(a, name).map(|n| &a[n]), find(b, name).map(|n| &b[n]));
            each(path, kind, keys(a), keys(b), pair, |name, of| format!("{of}[{name}]"), say);
        }
        _ => say(path.to_owned(), text(before), text(after)),
    }
}

/// Facts that may be absent on the same hardware.
const MAY_BE_ABSENT: [&str; 6] =
    ["nics.neighbour", "nics.firmware", "disks.byId", "bmc", "tpm.endorsementKey", "firmware.setupMode"];

/// Compares what both have of the same name, and names what one of them lacks.
fn each<'v>(
    path: &str, kind: &str, before: Vec<String>, after: Vec<String>,
    pair: impl Fn(&str) -> (Option<&'v Value>, Option<&'v Value>), under: impl Fn(&str, &str) -> String,
    say: &mut impl FnMut(String, String, String),
) {
    let new = after.into_iter().filter(|name| !before.contains(name)).collect::<Vec<_>>();
    for name in before.iter().chain(&new) {
        let path = under(name, path);
        // A list's items are all of one kind.
        let kind = if path.ends_with(']') { kind.to_owned() } else { join(kind, name) };
        match pair(name) {
            (Some(a), Some(b)) => compare(&path, &kind, a, b, say),
            // Only another one is a change: a switch may start or stop to announce itself, a BMC or a TPM not answer in time, an
            // older agent or another driver not ask.
            (None, _) | (_, None) if MAY_BE_ABSENT.contains(&kind.as_str()) => {}
            // A disk may not answer in time; that it fails is a change all the same.
            (None, Some(health)) if kind == "disks.health" && health.get("failing") == Some(&Value::Bool(true)) => {
                say(join(&path, "failing"), String::new(), "true".to_owned());
            }
            _ if kind == "disks.health" => {}
            (a, b) if !varies(&kind) => say(path, a.map(text).unwrap_or_default(), b.map(text).unwrap_or_default()),
            _ => {}
        }
    }
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// What differs from boot to boot on the same hardware.
fn varies(kind: &str) -> bool {
    // Of its health, that a disk fails is a change; its counters rise by themselves.
    if kind.starts_with("disks.health.") {
        return !["disks.health.failing", "disks.health.reason"].contains(&kind);
    }
    let names = ["disks.id.name", "disks.hctl", "disks.contents", "nics.name", "nics.carrier", "nics.speedMbit"];
    let software = [
        "nics.driver", "devices.driver", "devices.modules", "devices.modalias", "devices.problem",
        "devices.missingModules", "nics.neighbour.description",
    ];
    names.contains(&kind) || software.contains(&kind)
}

/// What identifies a thing in a list; a scalar is its own name.
fn key(item: &Value) -> String {
    let id = item.get("id").unwrap_or(item);
    let known =
        ["wwn", "slot", "mac", "serial", "address", "path", "number"].into_iter().filter_map(|name| id.get(name));
    known.map(text).find(|text| !text.is_empty()).unwrap_or_else(|| text(item))
}

/// A value in one line.
fn text(value: &Value) -> String {
    let mut line = match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Object(fields) => {
            let parts = fields.iter().map(|(name, value)| (name, text(value)));
            let parts = parts.filter(|(_, value)| !value.is_empty()).map(|(name, value)| format!("{name} {value}"));
            parts.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    };
    if let Some(end) = (0..=MAX_SIDE.min(line.len())).rev().find(|at| line.is_char_boundary(*at)) {
        line.truncate(end);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BmcFacts, Digest, DiskFacts, DiskHealth, DiskId, MemoryFacts, MemoryModule, Neighbour, NicFacts, TpmFacts,
    };

    fn facts() -> MachineFacts {
        let disk = |serial: &str, name: &str| DiskFacts {
            id: DiskId { serial: serial.into(), name: name.into(), model: "M".into(), ..DiskId::default() },
            ..DiskFacts::default()
        };
        let module = |slot: &str, serial: &str| MemoryModule {
            slot: slot.into(),
            size_bytes: 1 << 34,
            serial: serial.into(),
            ..MemoryModule::default()
        };
        let mut facts = MachineFacts {
            memory_bytes: 100_000,
            memory: MemoryFacts { nodes: Vec::new(), modules: vec![module("A1", "s1"), module("A2", "s2")] },
            disks: vec![disk("D1", "sda"), disk("D2", "sdb")],
            ..MachineFacts::default()
        };
        facts.cpu.flags = vec!["avx".into(), "vmx".into()];
        facts
    }

    fn said(change: impl FnOnce(&mut MachineFacts)) -> Vec<[String; 3]> {
        let mut after = facts();
        change(&mut after);
        let found = facts().changes(&after, Timestamp::UNIX_EPOCH);
        found.into_iter().map(|change| [change.fact, change.before, change.after]).collect()
    }

    fn nic(carrier: bool) -> NicFacts {
        NicFacts {
            name: "eth0".into(),
            mac: "52:54:00:00:00:01".parse().unwrap(),
            driver: String::new(),
            firmware: String::new(),
            speed_mbit: None,
            carrier,
            address: String::new(),
            neighbour: None,
        }
    }

    #[test]
    fn other_firmware_of_a_port_is_a_change() {
        let with = |firmware: &str| MachineFacts {
            nics: vec![NicFacts { firmware: firmware.into(), ..nic(true) }],
            ..MachineFacts::default()
        };
        // An older agent did not ask for it.
        for (before, after, changes) in [("1.0", "1.1", 1), ("1.0", "1.0", 0), ("", "1.0", 0), ("1.0", "", 0)] {
            let found = with(before).changes(&with(after), Timestamp::UNIX_EPOCH);
            assert_eq!(found.len(), changes, "{before} {after}: {found:?}");
        }
    }

    #[test]
    fn a_change_names_what_was_and_what_is() {
        let nic = nic(false);
        for (change, wanted) in [
            (said(|f| f.firmware.version = "2.1".into()), ["firmware.version", "", "2.1"]),
            (said(|f| f.disks[1].id.model = "N".into()), ["disks[D2].id.model", "M", "N"]),
            (said(|f| f.memory.modules[0].serial = "s9".into()), ["memory.modules[A1].serial", "s1", "s9"]),
            (said(|f| drop(f.cpu.flags.pop())), ["cpu.flags[vmx]", "vmx", ""]),
            (said(|f| f.memory_bytes = 97_000), ["memoryBytes", "100000", "97000"]),
            (said(|f| f.tpm = Some(TpmFacts { version: 2, ..TpmFacts::default() })), ["tpm", "", "version 2"]),
            (
                said(|f| drop(f.memory.modules.remove(1))),
                ["memory.modules[A2]", "slot A2, sizeBytes 17179869184, serial s2", ""],
            ),
            (
                said(|f| f.nics = vec![nic.clone()]),
                ["nics[52:54:00:00:00:01]", "", "name eth0, mac 52:54:00:00:00:01, carrier false"],
            ),
        ] {
            assert_eq!(change, [wanted.map(str::to_owned)]);
        }
    }

    #[test]
    fn a_disk_changes_when_it_begins_to_fail() {
        let health = |failing, hours| {
            let reason = if failing { "worn".to_owned() } else { String::new() };
            Some(DiskHealth { failing, reason, power_on_hours: Some(hours), ..DiskHealth::default() })
        };
        assert_eq!(said(|f| f.disks[0].health = health(false, 1)), [[""; 3]; 0]);
        let (mut before, mut after) = (facts(), facts());
        (before.disks[0].health, after.disks[0].health) = (health(false, 1), health(false, 2));
        assert_eq!(before.changes(&after, Timestamp::UNIX_EPOCH), []);
        after.disks[0].health = health(true, 2);
        let changed: Vec<_> = before.changes(&after, Timestamp::UNIX_EPOCH).into_iter().map(|one| one.fact).collect();
        assert_eq!(changed, ["disks[D1].health.failing", "disks[D1].health.reason"]);
        let first = said(|f| f.disks[0].health = health(true, 1));
        assert_eq!(first, [["disks[D1].health.failing", "", "true"].map(str::to_owned)]);
        let mut silent = facts();
        silent.keep_unanswered(&after);
        assert_eq!(silent.disks[0].health, health(true, 2), "a disk that did not answer is as it was");
    }

    #[test]
    fn a_flood_of_neighbours_pushes_no_other_change_out() {
        let change = |fact: &str, after: String| FactChange { fact: fact.into(), after, ..FactChange::default() };
        let mut kept = vec![change("firmware.version", "2.1".into())];
        for n in 0..2 * MAX_FACT_CHANGES {
            keep_changes(&mut kept, vec![change("nics[52:54:00:00:00:01].neighbour.port", n.to_string())]);
        }
        let shown: Vec<_> = kept.iter().map(|one| one.after.as_str()).collect();
        assert_eq!(shown, ["2.1", "127"]);
        keep_changes(&mut kept, vec![change("cpu.logical", "8".into()); MAX_FACT_CHANGES]);
        assert_eq!((kept.len(), kept[0].fact.as_str()), (MAX_FACT_CHANGES, "cpu.logical"));
    }

    #[test]
    fn two_machines_differ_in_their_hardware_alone() {
        let other = |change: fn(&mut MachineFacts)| {
            let mut other = facts();
            other.smbios.serial = "S2".into();
            other.disks.iter_mut().zip(["A1", "A2"]).for_each(|(disk, serial)| disk.id.serial = serial.into());
            other.memory.modules[0].serial = "t1".into();
            change(&mut other);
            let differences = facts().differences(&other).into_iter();
            differences.map(|found| [found.fact, found.one, found.other]).collect::<Vec<_>>()
        };
        assert_eq!(other(|_| ()), Vec::<[String; 3]>::new());
        assert_eq!(other(|f| f.firmware.version = "2.1".into()), [["firmware.version", "", "2.1"].map(str::to_owned)]);
        let smaller = other(|f| f.memory.modules[1].size_bytes = 1);
        assert_eq!(smaller, [["memory.modules[A2].sizeBytes", "17179869184", "1"].map(str::to_owned)]);
    }

    #[test]
    fn another_neighbour_is_a_change_and_a_silent_one_stays() {
        let at = |carrier, port: Option<&str>| {
            let neighbour = port.map(|port| Neighbour { port: port.into(), ..Neighbour::default() });
            MachineFacts { nics: vec![NicFacts { neighbour, ..nic(carrier) }], ..MachineFacts::default() }
        };
        for (carrier, port, known, changes) in [
            (true, Some("2"), Some("2"), 1),
            (true, Some("1"), Some("1"), 0),
            (true, None, Some("1"), 0),
            (false, None, Some("1"), 0),
        ] {
            let (before, mut after) = (at(true, Some("1")), at(carrier, port));
            after.keep_unanswered(&before);
            let shown = after.nics[0].neighbour.as_ref().map(|neighbour| neighbour.port.as_str());
            assert_eq!((shown, before.changes(&after, Timestamp::UNIX_EPOCH).len()), (known, changes));
        }
        assert!(at(true, None).changes(&at(true, Some("1")), Timestamp::UNIX_EPOCH).is_empty());
    }

    #[test]
    fn another_bmc_is_a_change_and_a_silent_one_stays() {
        let with = |bmc: Option<u16>, key: Option<u8>| MachineFacts {
            tpm: Some(TpmFacts {
                version: 2,
                endorsement_key: key.map(|key| Digest::from_sha256([key; 32])),
                ..TpmFacts::default()
            }),
            bmc: bmc.map(|vlan| BmcFacts { vlan: Some(vlan), ..BmcFacts::default() }),
            ..MachineFacts::default()
        };
        let before = with(Some(7), Some(1));
        let mut silent = with(None, None);
        assert_eq!(before.changes(&silent, Timestamp::UNIX_EPOCH), []);
        assert_eq!(silent.changes(&before, Timestamp::UNIX_EPOCH), []);
        silent.keep_unanswered(&before);
        assert_eq!(silent, before);
        let mut other = with(Some(8), Some(2));
        other.keep_unanswered(&before);
        let changed: Vec<_> = before.changes(&other, Timestamp::UNIX_EPOCH).into_iter().map(|one| one.fact).collect();
        assert_eq!(changed, ["tpm.endorsementKey", "bmc.vlan"]);
        assert_eq!(before.differences(&other), [], "each machine has a key and a network of its own");
        let mut replaced = with(Some(7), None);
        replaced.tpm.as_mut().unwrap().description = "another".into();
        replaced.keep_unanswered(&before);
        assert_eq!(replaced.tpm.unwrap().endorsement_key, None, "another TPM does not get the key of the old one");
    }

    #[test]
    fn what_varies_from_boot_to_boot_is_no_change() {
        let none = said(|f| {
            f.disks[0].id.name = "sdb".into();
            f.disks[1].id.name = "sda".into();
            f.disks.swap(0, 1);
            f.disks[0].hctl = "1:0:0:0".into();
            f.memory_bytes = 99_000;
        });
        assert_eq!(none, Vec::<[String; 3]>::new());
    }
}
