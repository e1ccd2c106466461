//! Actions of the worker that change an installed system, as they are sent and as they end.

use landfall_api::message::{ActionKind, ActionResult, StorageResult};
use landfall_api::{
    DiskId, Exec, ExecProgram, ExecResult, ExecVariable, FileSource, GrowRootResult, GrowRootSpec, RunContainerResult,
    RunContainerSpec, SecretText, SizeSpec, StorageSpec, SystemIdentityResult, SystemIdentitySpec, WriteFile,
    WriteFileResult,
};

use super::{action, assigned, assignment, digest, selector};

#[test]
fn an_assignment_of_every_change() {
    let grow = GrowRootSpec { size: Some(SizeSpec::Bytes(20 << 30)), disk: None };
    let download = FileSource::Download { url: "http://h/f".into(), digest: digest(0x11) };
    for (record, name, timeout, attempts, kind) in [
        ("identity", "identity", 300, 3, identity()),
        ("grow-root", "grow", 1800, 3, ActionKind::GrowRoot(grow)),
        ("run-container", "tool", 3600, 1, container()),
        ("exec-script", "run", 3600, 1, exec(ExecProgram::Script("#!/bin/sh\nid\n".into()))),
        ("exec-command", "run", 3600, 1, exec(ExecProgram::Command(vec!["/usr/bin/id".into(), "-u".into()]))),
        ("write-file", "file", 300, 3, file(FileSource::Content(SecretText::new("key\n")))),
        ("write-file-download", "file", 300, 3, file(download)),
        ("storage", "layout", 1800, 1, storage()),
    ] {
        assigned(&format!("assignment-{record}"), assignment(vec![action(name, timeout, attempts, kind)]));
    }
}

/// With every field.
fn exec(program: ExecProgram) -> ActionKind {
    let variable = |name: &str, secret| ExecVariable { name: name.into(), value: SecretText::new("v4lue"), secret };
    ActionKind::Exec(Exec {
        program,
        variables: vec![variable("MODE", false), variable("TOKEN", true)],
        directory: "/opt".into(),
        disk: Some(selector("serial", "D1")),
    })
}

/// With every field.
fn file(source: FileSource) -> ActionKind {
    ActionKind::WriteFile(WriteFile {
        path: "/etc/app/key".into(),
        source,
        owner: Some("app".into()),
        group: Some("adm".into()),
        mode: 0o640,
        disk: Some(selector("serial", "D1")),
    })
}

/// With every field.
fn storage() -> ActionKind {
    let spec = serde_json::json!({
        "keys": {"disk": "hunter22"},
        "disks": [
            {"select": [{"serial": "A"}, {"serial": "B"}],
                "partitions": [{"role": "esp", "size": "1GiB"}, {"name": "pv"}]},
            {"select": [{"serial": "C"}], "table": "mbr", "partitions": [{"role": "root", "format": "btrfs", "label": "root",
                "subvolumes": [{"name": "@", "mount": "/", "options": "noatime"}, {"name": "@home"}]}]},
            {"select": [{"serial": "D"}],
                "partitions": [{"name": "data", "preserve": true, "format": "xfs", "mount": "/srv", "options": "ro"}]},
        ],
        "raids": [{"name": "m", "level": 1, "from": ["pv"], "encrypt": {"key": "disk", "name": "crypt"}}],
        "volumeGroups": [{"name": "vg", "from": ["m"], "volumes": [
            {"name": "swap", "size": "10%", "format": "swap"}, {"name": "rest", "size": "rest", "format": "none"}]}]});
    ActionKind::Storage(serde_json::from_value::<StorageSpec>(spec).unwrap().resolved())
}

/// With every field.
fn identity() -> ActionKind {
    let spec = serde_json::json!({"hostname": "node-17.example.net",
        "users": [{"name": "anna", "sshKeys": ["ssh-ed25519 AAAA anna@desk"], "passwordHash": "$6$salt$hash", "sudo": true,
            "groups": ["adm"], "shell": "/bin/zsh"}],
        "network": {"format": "netplan", "interfaces": [{"mac": "52:54:00:12:34:56", "addresses": ["192.0.2.17/24"],
            "gateways": ["192.0.2.1"], "nameservers": ["192.0.2.53"], "searchDomains": ["example.net"], "mtu": 9000},
            {"name": "eth1", "dhcp": true}]}});
    let spec = serde_json::from_value::<SystemIdentitySpec>(spec).unwrap();
    ActionKind::Identity(spec.resolved("node-17").unwrap())
}

/// With every field.
fn container() -> ActionKind {
    let spec = serde_json::json!({"image": "oci://h:5000/site/tool@sha256:00", "command": ["/bin/tool"], "args": ["-v"],
        "env": {"TOKEN": "hunter22"}, "directory": "/work", "user": "1000:1000", "network": "host",
        "capabilities": ["NET_ADMIN", "SYSLOG"], "devices": [{"disk": {"serial": "D1"}, "path": "/dev/target"}],
        "mounts": [{"from": "/etc", "to": "/mnt/etc", "readOnly": true}], "disk": {"serial": "D2"}});
    let spec = serde_json::from_value::<RunContainerSpec>(spec).unwrap();
    ActionKind::RunContainer(spec.resolved(&RunContainerSpec::default()).unwrap())
}

/// Results, each with the name of its record.
pub(crate) fn results(disk: DiskId) -> [(&'static str, ActionResult); 3] {
    let root_device = || "/dev/nvme0n1p2".to_owned();
    let written = "hostname node-17, accounts anna, new SSH host keys, network files of netplan".into();
    let named = SystemIdentityResult { root_device: root_device(), written };
    let grown = GrowRootResult { root_device: root_device(), size_bytes: 479 << 30, grown: true };
    let ran = RunContainerResult { disks: vec![disk] };
    [
        ("finished-identity", ActionResult::Identity(named)),
        ("finished-grow-root", ActionResult::GrowRoot(grown)),
        ("finished-run-container", ActionResult::RunContainer(ran)),
    ]
}

/// Those that were recorded later: the others keep their numbers.
pub(crate) fn later_results(disk: DiskId) -> [(&'static str, ActionResult); 3] {
    let root_device = || "/dev/nvme0n1p2".to_owned();
    [
        ("finished-exec", ActionResult::Exec(ExecResult { root_device: root_device() })),
        ("finished-write-file", ActionResult::WriteFile(WriteFileResult { root_device: root_device() })),
        ("finished-storage", ActionResult::Storage(StorageResult { disks: vec![disk], written: true })),
    ]
}
