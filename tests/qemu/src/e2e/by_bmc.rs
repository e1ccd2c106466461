//! o: a machine that only its BMC switches.
//!
//! Its firmware has no way to the network but by the BMC's override of the boot device.

mod documents;
mod in_band;
mod ipmi;
mod lies;
mod media;
mod outages;
mod provisions;

pub(super) use in_band::sets_the_account as in_band;
pub(super) use ipmi::installs as over_ipmi;
pub(super) use lies::{Lie, is_found_out};
pub(super) use media::starts_a_machine as from_virtual_media;
pub(super) use outages::end_well as outages_end_well;
pub(super) use provisions::provisions;

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_lab::{Firmware, Machine, Mark, Redfish, wait_event};
use reqwest::Method;
use serde_json::{Value, json};

use super::Context;
use super::inside::in_network;
use super::scene::{BOOT, BOOTED, INSTALL, Scene};
use super::tools::{run, text};

/// One request, on any host.
const REQUEST: Duration = Duration::from_secs(60);
/// From a wish to its deed, on any host: a start of QEMU.
const SWITCHED: Duration = Duration::from_secs(120);

/// Without the coordinator's own hand on the switch.
pub(super) async fn switches(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let machine = scene.described(scene.ordinary("m1").firmware(firmware)).await?;
    write_image(&scene, &machine).await?;
    let serial = machine.serial().clone();
    let hold = json!([{ "name": "wait", "hold": { "message": "until its power was cut" } }]);
    scene.actions("look", hold).await?;
    scene.run(&machine, "look").await?;
    let empty = scene.described(scene.ordinary("empty").firmware(firmware)).await?;
    let (of_empty, its_mac) = (empty.serial().clone(), empty.mac().to_owned());
    let redfish = Redfish::start(vec![machine, empty], &scene.network, &scene.context.dir).await?;
    let [bmc, other] = [0, 1].map(|index| Bmc { scene: &scene, redfish: &redfish, index });
    ensure!(bmc.is("Off", "Hdd").await? && !redfish.systems().machine(0).await.is_on(), "it is on from the start");

    // Not even an empty disk leads to the network.
    other.reset("On", true).await?;
    let without = if firmware == Firmware::Bios { "No bootable device" } else { "UEFI Interactive Shell" };
    of_empty.wait_for(Mark::default(), without, scene.limit(BOOT)).await?;
    other.reset("ForceOff", false).await?;
    ensure!(!scene.has_logged(Mark::default(), &["service=dhcp", &its_mac]), "a disk that is empty led to the network");
    ensure!(bmc.is("Off", "Hdd").await?, "the BMC of one machine switched the other");

    // The override counts for one start, from power-off.
    bmc.boot("Pxe", "Once").await?;
    ensure!(bmc.is("Off", "Pxe").await?, "the override is not read back");
    bmc.reset("On", true).await?;
    let first = bmc.session_after(0).await?;
    ensure!(bmc.is("On", "Hdd").await?, "the override is still there");

    let pid = redfish.systems().machine(0).await.pid().context("a machine that is on has no QEMU")?;
    bmc.reset("ForceOff", false).await?;
    ensure!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "QEMU outlived the end of its power");

    // The network has work for it, which it does not learn.
    let (asked, console) = (scene.coordinator.log().mark(), serial.mark());
    bmc.reset("On", true).await?;
    serial.wait_for(console, BOOTED, scene.limit(INSTALL)).await?;
    ensure!(!scene.has_logged(asked, &["service=tftp"]), "the firmware asked the network");
    ensure!(!scene.has_logged(asked, &["service=http", "/boot/"]), "the firmware asked the network");

    // The installed system does not listen to the power button.
    let mut events = redfish.systems().machine(0).await.qmp().context("it is off")?.events();
    bmc.post("GracefulShutdown").await?;
    wait_event(&mut events, "POWERDOWN", SWITCHED).await?;
    ensure!(bmc.is("On", "Hdd").await?, "a machine that runs reads Off");
    // A restart by the system itself is a start: it consumes the override too.
    bmc.boot("Pxe", "Once").await?;
    redfish.systems().machine(0).await.type_line("reboot -f").await?;
    bmc.session_after(first).await?;
    ensure!(bmc.is("On", "Hdd").await?, "the override is still there");

    // The restart after that is the disk's.
    let (asked, console) = (scene.coordinator.log().mark(), serial.mark());
    bmc.post("ForceRestart").await?;
    serial.wait_for(console, BOOTED, scene.limit(INSTALL)).await?;
    ensure!(!scene.has_logged(asked, &["service=http", "/boot/"]), "the override counted for two starts");

    redfish.systems().machine(0).await.type_line("poweroff -f").await?;
    redfish.systems().wait_power(0, false, scene.limit(BOOT)).await?;
    ensure!(bmc.is("Off", "Hdd").await?, "a machine that turned itself off reads On");
    Ok(())
}

/// Puts the system of the tests on a machine's disk.
async fn write_image(scene: &Scene, machine: &Machine) -> anyhow::Result<()> {
    let (image, disk) = (scene.image().path.clone(), machine.disk(0).path().to_owned());
    let plain = scene.context.dir.join("plain.raw");
    let work = move || {
        run("zstd", &["--quiet", "--decompress", "--sparse", &text(&image), "-o", &text(&plain)])?;
        let files = [format!("if={}", plain.display()), format!("of={}", disk.display())];
        run("dd", &["status=none", "conv=notrunc,sparse", "bs=1M", &files[0], &files[1]])
    };
    tokio::task::spawn_blocking(work).await?
}

/// A machine's BMC, as a client in the network sees it.
struct Bmc<'a> {
    scene: &'a Scene,
    redfish: &'a Redfish,
    index: usize,
}

impl Bmc<'_> {
    /// Whether it reads this power state, and this boot device for the next start.
    async fn is(&self, power: &str, boot: &str) -> anyhow::Result<bool> {
        let system = self.ask(Method::GET, "", Value::Null).await?;
        Ok(system["PowerState"] == power && system["Boot"]["BootSourceOverrideTarget"] == boot)
    }

    /// Overrides the boot device.
    async fn boot(&self, target: &str, enabled: &str) -> anyhow::Result<()> {
        let boot = json!({ "BootSourceOverrideTarget": target, "BootSourceOverrideEnabled": enabled });
        self.ask(Method::PATCH, "", json!({ "Boot": boot })).await.map(drop)
    }

    /// Asks for a reset of this kind.
    async fn post(&self, kind: &str) -> anyhow::Result<()> {
        self.ask(Method::POST, "/Actions/ComputerSystem.Reset", json!({ "ResetType": kind })).await.map(drop)
    }

    /// The same, until the machine is on or off.
    async fn reset(&self, kind: &str, on: bool) -> anyhow::Result<()> {
        self.post(kind).await?;
        Ok(self.redfish.systems().wait_power(self.index, on, SWITCHED).await?)
    }

    /// Waits until the agent has enrolled anew, in a session later than this; the session's number.
    async fn session_after(&self, before: u64) -> anyhow::Result<u64> {
        let epoch = |m: &landfall_api::Machine| m.status.as_ref().map_or(0, |status| status.epoch);
        let limit = self.scene.limit(INSTALL);
        let api = self.scene.coordinator.api();
        Ok(epoch(&api.wait_machine("m1", "a session", limit, |m| epoch(m) > before).await?))
    }

    async fn ask(&self, method: Method, path: &str, body: Value) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.redfish.url(self.index));
        let request = async move {
            let client = reqwest::Client::builder().no_proxy().timeout(REQUEST).build()?;
            let request = client.request(method, &url).basic_auth(Redfish::USERNAME, Some(Redfish::PASSWORD));
            let request = if body.is_null() { request } else { request.json(&body) };
            let answer = request.send().await.with_context(|| url.clone())?;
            let (status, said) = (answer.status(), answer.text().await?);
            ensure!(status.is_success(), "{url}: {status}: {said}");
            Ok(if said.is_empty() { Value::Null } else { serde_json::from_str(&said)? })
        };
        in_network(&self.scene.network, request).await
    }
}
