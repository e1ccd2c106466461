//! z: a root tar becomes a machine with `identity` alone: it starts with its own name, account, key, machine-id and fixed address.

use anyhow::ensure;
use landfall_lab::{DiskBus, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::layout::{MEMORY_MIB, NO_PSTORE, scene};
use super::says::at_start;
use super::scene::{BOOT, DISK_BYTES, require_installed};

/// Outside of what the lab's DHCP gives away.
const ADDRESS: &str = "10.77.0.217";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFubmE anna@desk";
/// What nothing may show is behind the salt.
const SALT: &str = "$6$landfall";
const HASHED: &str = "korrektpferdbatterie";
/// The installed system says what it is, once its own network service says that it has a network.
const SAYS: &str = r#"echo "said: host $(hostname) $(hostname -f)"
echo "said: account $(id anna) $(runuser -u anna -- id -un)"
echo "said: key $(stat -c '%a %U %s' /home/anna /home/anna/.ssh /home/anna/.ssh/authorized_keys | cut -d' ' -f1,2 | tr '\n' ' ')"
echo "said: line $(runuser -u anna -- cat /home/anna/.ssh/authorized_keys)"
echo "said: salt $(getent shadow anna | cut -d: -f2 | cut -d'$' -f1-3)"
echo "said: address $(ip -4 -br addr show scope global | tr -s ' ')"
echo "said: route $(ip -4 route show default)"
echo "said: dns $(grep nameserver /etc/resolv.conf | tr '\n' ' ')"
echo "said: machine-id $(grep -cE '^[0-9a-f]{32}$' /etc/machine-id)"
echo "said: all""#;

pub(super) async fn without_cloud_init(context: Context) -> anyhow::Result<()> {
    let (scene, unpack) = scene(context).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Uefi).memory_mib(MEMORY_MIB);
    let mut machine = scene.described(builder.disk(DISK_BYTES, DiskBus::Virtio)).await?;
    let hash = format!("{SALT}${HASHED}");
    scene.apply("Secret", "site", json!({ "data": { "hash": hash }, "machines": ["m1"] })).await?;
    let anna =
        json!({ "name": "anna", "sshKeys": [KEY], "passwordHash": "{{ secrets.site.hash }}", "groups": ["adm"] });
    let port = json!({ "mac": machine.mac(), "addresses": [format!("{ADDRESS}/24")], "gateways": [Network::ADDRESS],
        "nameservers": [Network::ADDRESS] });
    let identity = json!({ "hostname": "node-17.example.net", "users": [anna], "network": { "interfaces": [port] } });
    let storage = json!({ "disks": [{ "partitions": [{ "role": "esp", "size": "64MiB" }, { "role": "root" }] }] });
    let actions = json!([
        { "name": "disks", "storage": storage },
        { "name": "root", "unpack": unpack },
        { "name": "identity", "identity": identity },
        { "name": "says", "exec": { "script": at_start(SAYS, "network-online.target") } },
        { "name": "boot", "installBootloader": { "kernelArguments": ["console=ttyS0,115200", NO_PSTORE] } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.apply("Template", "install", json!({ "successOn": "reboot", "actions": actions })).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, "said: all", BOOT).await?;

    let lines = machine.serial().lines_since(power_on);
    let route = format!("said: route default via {} ", Network::ADDRESS);
    let line = format!("said: line {KEY}");
    let (address, dns) = (format!(" {ADDRESS}/24"), format!("said: dns nameserver {}", Network::ADDRESS));
    for said in [
        "said: host node-17 node-17.example.net",
        "said: account uid=1000(anna) gid=1000(anna) groups=1000(anna),4(adm) anna",
        "said: key 700 anna 700 anna 600 anna",
        &line,
        &format!("said: salt {SALT}"),
        &route,
        &dns,
        "said: machine-id 1",
    ] {
        ensure!(lines.iter().any(|line| line.text.contains(said)), "the installed system did not say \"{said}\"");
    }
    let has_address = |text: &str| text.contains("said: address ") && text.contains(&address);
    ensure!(lines.iter().any(|line| has_address(&line.text)), "the installed system has not the address {ADDRESS}");
    machine.wait_serial(power_on, "node-17 login:", BOOT).await?;

    let logs = scene.landfall(&["logs", &workflow.metadata.name]).await?;
    let console = machine.serial().lines_since(power_on).into_iter().map(|line| line.text);
    for text in [logs].into_iter().chain(console) {
        ensure!(!text.contains(HASHED), "the hash of the password is shown: {text}");
    }
    require_installed(&machine, &workflow)
}
