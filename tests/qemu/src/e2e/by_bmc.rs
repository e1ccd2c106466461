//! o: a machine that only its BMC switches, over Redfish.
//!
//! Its firmware has no way to the network but by the BMC's override of the boot device.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{BootWay, WorkflowPhase};
use landfall_lab::{Firmware, Machine, Mark, Network, Redfish, wait_event};
use reqwest::Method;
use serde_json::{Value, json};

use super::Context;
use super::inside::in_network;
use super::scene::{BOOT, BOOTED, INSTALL, Scene, require_installed};
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
    ensure!(bmc.is("Off", "Hdd").await? && !redfish.machine(0).await.is_on(), "it is on from the start");

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

    let pid = redfish.machine(0).await.pid().context("a machine that is on has no QEMU")?;
    bmc.reset("ForceOff", false).await?;
    ensure!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "QEMU outlived the end of its power");

    // The network has work for it, which it does not learn.
    let (asked, console) = (scene.coordinator.log().mark(), serial.mark());
    bmc.reset("On", true).await?;
    serial.wait_for(console, BOOTED, scene.limit(INSTALL)).await?;
    ensure!(!scene.has_logged(asked, &["service=tftp"]), "the firmware asked the network");
    ensure!(!scene.has_logged(asked, &["service=http", "/boot/"]), "the firmware asked the network");

    // The installed system does not listen to the power button.
    let mut events = redfish.machine(0).await.qmp().context("it is off")?.events();
    bmc.post("GracefulShutdown").await?;
    wait_event(&mut events, "POWERDOWN", SWITCHED).await?;
    ensure!(bmc.is("On", "Hdd").await?, "a machine that runs reads Off");
    // A restart by the system itself is a start: it consumes the override too.
    bmc.boot("Pxe", "Once").await?;
    redfish.machine(0).await.type_line("reboot -f").await?;
    bmc.session_after(first).await?;
    ensure!(bmc.is("On", "Hdd").await?, "the override is still there");

    // The restart after that is the disk's.
    let (asked, console) = (scene.coordinator.log().mark(), serial.mark());
    bmc.post("ForceRestart").await?;
    serial.wait_for(console, BOOTED, scene.limit(INSTALL)).await?;
    ensure!(!scene.has_logged(asked, &["service=http", "/boot/"]), "the override counted for two starts");

    redfish.machine(0).await.type_line("poweroff -f").await?;
    redfish.wait_power(0, false, scene.limit(BOOT)).await?;
    ensure!(bmc.is("Off", "Hdd").await?, "a machine that turned itself off reads On");
    Ok(())
}

/// All that a person does is to request the workflow: the coordinator switches the machine on, and later off and on again.
pub(super) async fn provisions(context: Context, firmware: Firmware) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    scene.template(&scene.image_url()).await?;
    let machine = scene.ordinary("m1").firmware(firmware);
    let machine = machine.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let (spec, serial) = (machine.spec().clone(), machine.serial().clone());
    let redfish = Redfish::start(vec![machine], &scene.network, &scene.context.dir).await?;

    // A password that is wrong at first.
    let secret = |password: &str| json!({ "data": { "username": Redfish::USERNAME, "password": password }, "bmcs": [format!("http://{}", Network::ADDRESS)] });
    scene.apply("Secret", "bmc", secret("wrong")).await?;
    let bmc = json!({ "address": format!("redfish+{}", redfish.url(0)), "credentials": "bmc" });
    let identity = json!({ "macs": [spec.nics[0].mac], "smbiosUuid": spec.uuid, "serial": spec.serial });
    scene.apply("Machine", "m1", json!({ "identity": identity, "bmc": bmc })).await?;
    let workflow = scene.coordinator.api().provision("m1", "install", false).await?;
    let of = |kind: &str, machine: &landfall_api::Machine| {
        let conditions = machine.status.as_ref().map(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|c| c.kind == kind).map(|c| c.reason.to_string())
    };
    let refused =
        |machine: &landfall_api::Machine| of("BMCAuthenticated", machine).is_some_and(|r| r == "AccountRefused");
    let api = scene.coordinator.api();
    api.wait_machine("m1", "the refusal of the account", SWITCHED, refused).await?;
    scene.apply("Secret", "bmc", secret(Redfish::PASSWORD)).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    serial.wait_for(Mark::default(), BOOTED, scene.limit(INSTALL)).await?;
    require_installed(&*redfish.machine(0).await, &workflow)?;
    let of_m1 = |machine: &landfall_api::Machine| machine.status.as_ref().and_then(|status| status.bmc.clone());
    let attempts = |machine: &landfall_api::Machine| of_m1(machine).map(|bmc| bmc.attempts).unwrap_or_default();
    let ended =
        |machine: &landfall_api::Machine| attempts(machine).last().is_some_and(|attempt| attempt.ended.is_some());
    let machine = api.wait_machine("m1", "the end of the attempt", SWITCHED, ended).await?;
    let found = attempts(&machine);
    let one = found.len() == 1 && found[0].way == BootWay::PxeOnce && found[0].failure.is_none();
    ensure!(one, "it was started in another way: {found:?}");
    ensure!(of("PowerKnown", &machine).is_some_and(|reason| reason == "Reported"), "its power is not known");

    // It runs, and its system does not listen to the power button: its power is cut after a while.
    let pid = redfish.machine(0).await.pid().context("a machine that is on has no QEMU")?;
    let again = api.provision("m1", "install", true).await?;
    let again = scene.wait_end(&again, WorkflowPhase::Succeeded).await?;
    require_installed(&*redfish.machine(0).await, &again)?;
    ensure!(redfish.machine(0).await.pid() != Some(pid), "it was not restarted");
    let found = attempts(&api.wait_machine("m1", "the end of the attempt", SWITCHED, ended).await?);
    let cut = found.len() == 1 && found[0].shutdown_at.is_some() && found[0].off_at.is_some();
    ensure!(cut, "its system was not asked before its power was cut: {found:?}");
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
        Ok(self.redfish.wait_power(self.index, on, SWITCHED).await?)
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
