//! y: what configures the installed system at its first start: user-data of several kinds, vendor-data and the network of the
//! machine's document (a bond of two ports with a fixed address), read by Debian's cloud-init; and a config that Debian's Ignition reads.

use anyhow::{Context as _, ensure};
use landfall_image::disk;
use landfall_lab::artefacts::OsImage;
use landfall_lab::{DhcpMode, DiskBus, Firmware, Machine, Network};
use serde_json::json;

use super::Context;
use super::debian_roots::{Layout, laid_out};
use super::says::at_start;
use super::scene::{BOOT, DISK_BYTES, Scene, require_installed};

/// Outside of what the lab's DHCP gives away.
const ADDRESS: &str = "10.77.0.219";
const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFubmE anna@desk";
/// A cloud-config and a script, which says on the console what it finds. The command of the cloud-config runs after it.
const PARTS: &str = r#"Content-Type: multipart/mixed; boundary="==landfall=="
MIME-Version: 1.0

--==landfall==
Content-Type: text/cloud-config; charset="us-ascii"

#cloud-config
timezone: Europe/Helsinki
write_files:
  - { path: /etc/site/part, content: "the cloud-config\n", permissions: "0600" }
runcmd:
  - [sh, -c, "echo 'said: all, by a command' > /dev/kmsg"]

--==landfall==
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/sh
exec > /run/said
echo "said: part $(cat /etc/site/part), $(stat -c '%a %U' /etc/site/part)"
echo "said: vendor $(cat /etc/site/vendor)"
echo "said: zone $(cat /etc/timezone)"
echo "said: host $(hostname)"
echo "said: account $(id anna)"
echo "said: key $(runuser -u anna -- cat /home/anna/.ssh/authorized_keys)"
echo "said: sudo $(runuser -u anna -- sudo -n id -un)"
echo "said: address $(ip -4 -br addr show scope global | tr -s ' ')"
echo "said: route $(ip -4 route show default)"
echo "said: way $(ip -4 route show 10.99.0.0/16)"
echo "said: bond $(cat /sys/class/net/bond0/bonding/mode) $(tr ' ' '\n' < /sys/class/net/bond0/bonding/slaves | sort | tr '\n' ' ')"
echo "said: dns $(resolvectl dns | tr '\n' ' ')"
while read -r line; do echo "$line" > /dev/kmsg; done < /run/said

--==landfall==--
"#;
const VENDOR: &str = "#cloud-config
timezone: Europe/Oslo
bootcmd:
  - mkdir -p /etc/site && echo of-the-site > /etc/site/vendor
";

pub(super) async fn by_cloud_init(context: Context) -> anyhow::Result<()> {
    let debian = context.artefacts.debian.clone().context("there is no Debian image; give --debian DIR")?;
    let images = debian.path.parent().context("the image is in no directory")?.to_owned();
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Uefi).memory_mib(1024).nic();
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let image = json!({ "url": scene.url(&debian.file_name()), "digest": debian.digest });
    // The agent has the same network.
    let macs: Vec<_> = machine.spec().nics.iter().map(|nic| nic.mac.clone()).collect();
    let bond = json!({ "ports": macs, "bond": "active-backup", "addresses": [format!("{ADDRESS}/24")],
        "gateways": [Network::ADDRESS], "nameservers": [Network::ADDRESS, Network::NEIGHBOUR],
        "routes": [{ "to": "10.99.0.0/16", "via": Network::NEIGHBOUR }] });
    let spec = json!({ "identity": { "macs": macs }, "network": [bond] });
    scene.apply("Machine", "m1", spec).await?;
    let seed = json!({
        "hostname": "node-19.example.net",
        "users": [{ "name": "anna", "sshKeys": [KEY], "sudo": true, "groups": ["adm"] }],
        "userData": PARTS,
        "vendorData": VENDOR,
    });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "seed", "cloudInit": seed },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, "is reached over bond0", BOOT).await?;
    machine.wait_serial(power_on, "said: all", BOOT).await?;
    ensure!(workflow.status.as_ref().is_some_and(|s| s.phoned_home_at.is_some()), "it succeeded without a phone-home");
    says(
        &machine,
        &[
            "said: part the cloud-config, 600 root",
            "said: vendor of-the-site",
            "said: zone Europe/Helsinki",
            "said: host node-19",
            "anna) groups=",
            "4(adm)",
            &format!("said: key {KEY}"),
            "said: sudo root",
            &format!(" {ADDRESS}/24"),
            &format!("said: route default via {} ", Network::ADDRESS),
            &format!("said: way 10.99.0.0/16 via {} dev bond0", Network::NEIGHBOUR),
            "said: bond active-backup 1 port0 port1",
            &format!(": {} {}", Network::ADDRESS, Network::NEIGHBOUR),
        ],
    )?;
    require_installed(&machine, &workflow)
}

/// Where Debian's package `ignition` has the program; it is for initramfs images of dracut.
const IGNITION: &str = "/usr/lib/dracut/modules.d/30ignition/ignition";
/// In the installed system.
const PROGRAM: &str = "/usr/local/sbin/ignition";
/// At the first start the stages of Ignition that need no initramfs, as its own units begin them; then what came of them.
/// The last thing that Debian's build does is to label files for SELinux, which this system has not: then its stage `files` fails.
const READS: &str = r#"
export IGNITION_CONFIG_FILE=/ignition/config.ign
mkdir -p /run/ignition
for stage in fetch-offline fetch files; do
    /usr/local/sbin/ignition --root=/ --platform=file --stage=$stage --log-to-stdout > /run/ignition/$stage.log 2>&1
    echo "said: stage $stage: $(grep -E 'CRITICAL|passed' /run/ignition/$stage.log | tail -1)"
done
echo "said: config $(stat -c '%a %U' /ignition/config.ign)"
echo "said: file $(cat /etc/site/file), $(stat -c '%a %U' /etc/site/file)"
echo "said: account $(id core)"
echo "said: key $(cat /home/core/.ssh/authorized_keys.d/ignition)"
echo "said: unit $(grep ExecStart /etc/systemd/system/site.service)"
echo "said: preset $(cat /etc/systemd/system-preset/*ignition.preset)"
echo "said: all""#;

pub(super) async fn by_ignition(context: Context) -> anyhow::Result<()> {
    let images = context.dir.join("images");
    let debian = context.artefacts.debian.clone().context("there is no Debian image; give --debian DIR")?;
    let (stored, directory) = (debian.path, images.clone());
    let digest = tokio::task::spawn_blocking(move || laid_out(&stored, &directory, Layout::Ignition)).await??;
    std::fs::copy(IGNITION, images.join("ignition")).with_context(|| format!("cannot copy {IGNITION}"))?;
    let program = OsImage::measure(&images.join("ignition"))?;
    let scene = Scene::start_with(context, Network::create()?, DhcpMode::Full, images).await?;
    let builder = Machine::builder("m1").firmware(Firmware::Bios).memory_mib(1024).disk(DISK_BYTES, DiskBus::Virtio);
    let mut machine = scene.described(builder).await?;
    scene.apply("Secret", "site", json!({ "data": { "token": "of-a-secret" }, "machines": ["m1"] })).await?;
    let image = json!({ "url": scene.url(disk::assemble::STORED), "digest": digest });
    let config = json!({
        "ignition": { "version": "3.3.0" },
        "passwd": { "users": [{ "name": "core", "sshAuthorizedKeys": [KEY], "groups": ["adm"] }] },
        "storage": { "files": [
            { "path": "/etc/site/file", "mode": 0o600, "contents": { "source": "data:,{{ secrets.site.token }}" } },
        ] },
        "systemd": { "units": [
            { "name": "site.service", "enabled": true, "contents": "[Service]\nExecStart=/bin/true\n[Install]\nWantedBy=multi-user.target\n" },
        ] },
    });
    let program = json!({ "path": PROGRAM, "mode": "0755", "url": scene.url("ignition"), "digest": program.digest });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "config", "ignition": { "config": config } },
        { "name": "program", "writeFile": program },
        { "name": "reads", "exec": { "script": at_start(READS, "local-fs.target") } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.install(&mut machine).await?;
    machine.wait_serial(power_on, "said: all", BOOT).await?;
    let key = format!("said: key {KEY}");
    let wanted = [
        "fetch-offline passed", "fetch passed", "said: config 600 root", "said: file of-a-secret, 600 root",
        "core) groups=", "4(adm)", &key, "said: unit ExecStart=/bin/true", "said: preset enable site.service",
    ];
    says(&machine, &wanted)?;
    require_installed(&machine, &workflow)
}

/// Requires that the installed system said each of these on its console.
fn says(machine: &Machine, wanted: &[&str]) -> anyhow::Result<()> {
    let lines = machine.serial().lines_since(Default::default());
    let said: Vec<_> =
        lines.iter().filter(|line| line.text.contains("said: ")).map(|line| line.text.as_str()).collect();
    for text in wanted {
        ensure!(
            said.iter().any(|line| line.contains(text)),
            "the installed system did not say \"{text}\", but:\n{}",
            said.join("\n")
        );
    }
    Ok(())
}
