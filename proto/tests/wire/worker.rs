//! Actions of the worker that change an installed system, as they are sent and as they end.

use landfall_api::message::{ActionKind, ActionResult};
use landfall_api::{
    DiskId, GrowRootResult, GrowRootSpec, RunContainerResult, RunContainerSpec, SizeSpec, SystemIdentityResult,
    SystemIdentitySpec,
};

/// With every field.
pub(crate) fn identity() -> ActionKind {
    let spec = serde_json::json!({"hostname": "node-17.example.net",
        "users": [{"name": "anna", "sshKeys": ["ssh-ed25519 AAAA anna@desk"], "passwordHash": "$6$salt$hash", "sudo": true,
            "groups": ["adm"], "shell": "/bin/zsh"}],
        "network": {"format": "netplan", "interfaces": [{"mac": "52:54:00:12:34:56", "addresses": ["192.0.2.17/24"],
            "gateways": ["192.0.2.1"], "nameservers": ["192.0.2.53"], "searchDomains": ["example.net"], "mtu": 9000},
            {"name": "eth1", "dhcp": true}]}});
    let spec = serde_json::from_value::<SystemIdentitySpec>(spec).unwrap();
    ActionKind::Identity(spec.resolved("node-17").unwrap())
}

pub(crate) fn grow_root() -> ActionKind {
    ActionKind::GrowRoot(GrowRootSpec { size: Some(SizeSpec::Bytes(20 << 30)), disk: None })
}

/// With every field.
pub(crate) fn container() -> ActionKind {
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
