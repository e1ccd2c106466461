//! Actions of the worker that change an installed system, as they are sent and as they end.

use landfall_api::{
    GrowRootResult, GrowRootSpec, SizeSpec, SystemIdentityResult, SystemIdentitySpec,
    message::{ActionKind, ActionResult},
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

pub(crate) fn named() -> ActionResult {
    let written = "hostname node-17, accounts anna, new SSH host keys, network files of netplan".into();
    ActionResult::Identity(SystemIdentityResult { root_device: "/dev/nvme0n1p2".into(), written })
}

pub(crate) fn grown() -> ActionResult {
    ActionResult::GrowRoot(GrowRootResult { root_device: "/dev/nvme0n1p2".into(), size_bytes: 479 << 30, grown: true })
}
