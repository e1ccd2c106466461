//! What the coordinator is given of a machine behind a BMC, and what it shows.

use anyhow::Context as _;
use landfall_api::{BootAttempt, Machine};
use landfall_bmcsim::Quirks;
use landfall_lab::{Firmware, Log, MachineSpec, Network, Simulated};
use serde_json::{Value, json};

use crate::e2e::scene::Scene;

/// What is known of a machine once it is behind its BMC.
pub(super) struct Behind {
    pub(super) spec: MachineSpec,
    pub(super) serial: Log,
}

/// Puts the machine `m1` together.
pub(super) fn build(scene: &Scene, firmware: Firmware) -> anyhow::Result<(landfall_lab::Machine, Behind)> {
    let builder = scene.ordinary("m1").firmware(firmware);
    let machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let behind = Behind { spec: machine.spec().clone(), serial: machine.serial().clone() };
    Ok((machine, behind))
}

/// The same behind a simulator, described.
pub(super) async fn behind_a_simulator(
    scene: &Scene, quirks: Quirks, firmware: Firmware,
) -> anyhow::Result<(Simulated, Behind)> {
    let (machine, m1) = build(scene, firmware)?;
    let simulated = Simulated::start(quirks, machine, &scene.network, &scene.context.dir)?;
    account(scene, &Network::ADDRESS.to_string(), (landfall_bmcsim::USERNAME, landfall_bmcsim::PASSWORD)).await?;
    let bmc = simulated.bmc();
    let certificate = format!("sha256:{}", hex::encode(bmc.fingerprint().context("a BMC without a certificate")?));
    describe(scene, &m1, json!({ "address": bmc.address(), "certificate": certificate })).await?;
    Ok((simulated, m1))
}

/// Describes a machine, with its `spec.bmc` but for the account: that is in the Secret `bmc`.
pub(super) async fn describe(scene: &Scene, machine: &Behind, mut bmc: Value) -> anyhow::Result<()> {
    let MachineSpec { name, uuid, serial, nics, .. } = &machine.spec;
    bmc["credentials"] = json!("bmc");
    let identity = json!({ "macs": [nics[0].mac], "smbiosUuid": uuid, "serial": serial });
    scene.apply("Machine", name, json!({ "identity": identity, "bmc": bmc })).await
}

/// Applies the Secret of an account, for this BMC.
pub(super) async fn account(scene: &Scene, bmc: &str, (name, password): (&str, &str)) -> anyhow::Result<()> {
    let data = json!({ "username": name, "password": password });
    scene.apply("Secret", "bmc", json!({ "data": data, "bmcs": [bmc] })).await
}

/// What was done to have a machine netboot for its newest workflow.
pub(super) fn attempts(machine: &Machine) -> Vec<BootAttempt> {
    let bmc = machine.status.as_ref().and_then(|status| status.bmc.clone());
    bmc.map(|bmc| bmc.attempts).unwrap_or_default()
}

/// Whether the newest attempt has ended.
pub(super) fn ended(machine: &Machine) -> bool {
    attempts(machine).last().is_some_and(|attempt| attempt.ended.is_some())
}

/// Whether a condition of a machine has this reason.
pub(super) fn is(machine: &Machine, kind: &str, reason: &str) -> bool {
    let conditions = machine.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|c| c.kind == kind && c.reason == reason)
}
