//! A machine whose document says nothing of a BMC: its agent sets an account there, and the coordinator then comes with it.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use landfall_lab::{BMC_ADDRESS, Extra, Firmware};
use serde_json::json;

use super::Context;
use super::documents::is;
use crate::e2e::scene::{BOOT, Scene};

/// Over the KCS port that QEMU gives the machine, into OpenIPMI's simulator, and then over that one's LAN port.
pub(in crate::e2e) async fn sets_the_account(mut context: Context) -> anyhow::Result<()> {
    let mut artefacts = (*context.artefacts).clone();
    (artefacts.kernel, artefacts.initramfs) = artefacts.boot_image(true)?;
    context.artefacts = Arc::new(artefacts);
    let scene = Scene::start(context).await?;
    // The simulator ends with its machine.
    let hold = json!({ "name": "wait", "hold": { "message": "until its BMC has been asked" } });
    scene.actions("account", json!([{ "name": "bmc", "bmcAccount": {} }, hold])).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios).memory_mib(1024).with(Extra::TpmAndBmc);
    let mut machine = scene.described(builder).await?;
    scene.run(&machine, "account").await?;
    machine.power_on().await?;

    let api = scene.coordinator.api();
    let logged_in = |known: &landfall_api::Machine| is(known, "BMCAuthenticated", "AccountAccepted");
    let known = api.wait_machine("m1", "a login at its BMC", scene.limit(BOOT), logged_in).await?;
    let bmc = known.spec.bmc.clone().context("spec.bmc is not there")?;
    let found = (bmc.address.to_string(), bmc.credentials.as_str());
    ensure!(found == (format!("ipmi://{BMC_ADDRESS}"), "bmc-m1"), "it came in another way: {found:?}");
    let said = scene.landfall(&["get", "secret", "bmc-m1", "-o", "yaml"]).await?;
    ensure!(
        said.contains(&BMC_ADDRESS.to_string()) && said.contains("password"),
        "not the Secret that was made: {said}"
    );
    Ok(())
}
