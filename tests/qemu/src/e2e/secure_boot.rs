//! c: Secure Boot, with keys of one's own: the firmware refuses an unsigned and an altered kernel image, and a signed one whose digest it
//! has in dbx, and starts the signed one, from a USB stick and over HTTP. The agent enrols keys in a firmware without any. A firmware
//! with Microsoft's keys starts it by way of shim.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use landfall_api::{ErrorCode, WorkflowPhase};
use landfall_image::sign::{SigningKey, digest, sign};
use landfall_image::uki;
use landfall_lab::{
    CoordinatorOptions, CoordinatorProcess, DhcpMode, Dnsmasq, Keys, Medium, Network, SECURE_BOOT_KEY, efi_keys,
    efi_order,
};
use serde_json::{Value, json};

use super::Context;
use super::scene::{BOOT, Scene, command_line};

const FOUND: &str = "found";
/// What OVMF writes of a program that it does not start.
const REFUSED: &str = "BdsDxe: failed to load";
/// What shim shows of one.
const SHIM_REFUSED: &str = "Verification failed";
const HTTP_BOOT: &str = ">>Start HTTP Boot";

/// A rule approves the machine, which no document describes.
pub(super) async fn from_a_usb_stick(context: Context) -> anyhow::Result<()> {
    let more = "discovery = true\n[discovery]\nsubnets = [\"10.77.0.0/24\"]\n".to_owned();
    let options = CoordinatorOptions { more, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    rule(&scene).await?;
    let (unsigned, signed) = programs(&scene, &signing_key()?).await?;
    let mut altered = signed.clone();
    // In the middle of the kernel image: its initramfs.
    let middle = altered.len() / 2;
    altered[middle] ^= 1;
    let stick = scene.context.dir.join("stick.img");
    write_stick(&stick, &unsigned)?;
    let builder = scene.ordinary("m1").secure_boot(Keys::Debians).medium(&stick, Medium::Usb);
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    let mut older = unsigned.clone();
    // In its initramfs, which differs from one version to the next.
    older[middle] ^= 1;
    let older = sign(&older, &signing_key()?)?;
    for (what, program) in [("unsigned", &unsigned), ("altered", &altered), ("older", &older)] {
        write_stick(&stick, program)?;
        if what == "older" {
            efi_keys::forbid(&machine.efi_variables()?, &digest(program)?)?;
        }
        let power_on = machine.power_on().await?;
        let line = machine.wait_serial_line(power_on, REFUSED, scene.limit(BOOT)).await?;
        let denied = ["Access Denied", "Security Violation"].iter().any(|why| line.text.contains(why));
        ensure!(denied && line.text.contains("USB"), "the {what} program: {}", line.text);
        machine.power_cut().await;
    }
    write_stick(&stick, &signed)?;
    machine.power_on().await?;
    found_and_installed(&scene).await
}

/// The firmware trusts Microsoft alone, who signed Debian's shim; shim trusts the machine owner's key.
pub(super) async fn by_way_of_shim(context: Context) -> anyhow::Result<()> {
    let shim = context.artefacts.shim.clone().context("no --shim was given; scripts/test fetches it")?;
    let shim = std::fs::read(shim.join("usr/lib/shim/shimx64.efi.signed"))?;
    let keys = OwnKeys::make(&context.dir.join("own"))?;
    let more = "discovery = true\n[discovery]\nsubnets = [\"10.77.0.0/24\"]\n".to_owned();
    let options = CoordinatorOptions { more, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    rule(&scene).await?;
    let (unsigned, signed) = programs(&scene, &keys.signing()?).await?;
    let stick = scene.context.dir.join("stick.img");
    // What shim starts has this name.
    let with_shim = |program: &[u8]| write_programs(&stick, &[("BOOTX64.EFI", &shim), ("grubx64.efi", program)]);
    with_shim(&signed)?;
    let builder = scene.ordinary("m1").secure_boot(Keys::Microsofts).medium(&stick, Medium::Usb);
    let mut machine = builder.build(&scene.network, &scene.context.dir, scene.context.accel)?;
    for (what, program) in [("key that is not enrolled", &signed), ("unsigned program", &unsigned)] {
        with_shim(program)?;
        let power_on = machine.power_on().await?;
        machine.wait_serial(power_on, SHIM_REFUSED, BOOT).await.with_context(|| what.to_owned())?;
        let lines = machine.serial().lines_since(power_on);
        ensure!(!lines.iter().any(|line| line.text.contains(REFUSED)), "the firmware refused shim itself");
        machine.power_cut().await;
        if what == "key that is not enrolled" {
            efi_keys::enrol_in_shim(&machine.efi_variables()?, &std::fs::read(keys.at("cert.der"))?)?;
        }
    }
    with_shim(&signed)?;
    machine.power_on().await?;
    found_and_installed(&scene).await
}

/// A rule approves any machine, and installs it.
async fn rule(scene: &Scene) -> anyhow::Result<()> {
    template(scene).await?;
    scene.apply("EnrolmentRule", "all", json!({ "name": FOUND, "approve": true, "template": "install" })).await
}

/// The machine of [`rule`] started with Secure Boot on, and is installed.
async fn found_and_installed(scene: &Scene) -> anyhow::Result<()> {
    let begun = |m: &landfall_api::Machine| m.status.as_ref().is_some_and(|status| status.workflow.is_some());
    let api = scene.coordinator.api();
    let found = api.wait_machine(FOUND, "the rule's workflow", scene.limit(BOOT), begun).await?;
    require_secure(&found)?;
    let workflow = found.status.and_then(|status| status.workflow).context("a machine without a workflow")?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await.map(drop)
}

/// Described, it needs no rule: the agent asks for its token, since the signed command line has none. It has no coordinator's address either, and
/// the network's DHCP server names none: the agent takes it from the URL of the firmware's entry.
pub(super) async fn over_http(context: Context) -> anyhow::Result<()> {
    let served = context.dir.join("signed.efi");
    std::fs::copy(context.artefacts.kernel.with_file_name("landfall.efi"), &served)?;
    let options = CoordinatorOptions { uki: Some(served.clone()), dhcp: DhcpMode::Proxy, ..Scene::options(&context)? };
    let network = Network::create()?;
    let neighbour = network.neighbour()?;
    let _dnsmasq = Dnsmasq::start(&neighbour, &context.dir).await?;
    let scene = Scene::start_from(context, network, options).await?;
    template(&scene).await?;
    let line = command_line(&scene).await?;
    let keys: Vec<&str> = line.split(' ').filter(|word| !word.starts_with("landfall.coordinator=")).collect();
    ensure!(keys.len() + 1 == line.split(' ').count(), "not one coordinator on the command line: {line}");
    let unsigned = program(&scene, &keys.join(" "))?;
    std::fs::write(&served, sign(&unsigned, &signing_key()?)?)?;
    let builder = scene.ordinary("m1").secure_boot(Keys::Debians).http_boot().firmware_orders();
    let mut machine = scene.described(builder).await?;
    let first = machine.power_on().await?;
    machine.wait_serial(first, HTTP_BOOT, BOOT).await?;
    machine.power_cut().await;
    let mac = machine.mac().replace(':', "-");
    let url = format!("http://{}:{}/boot/uki/{mac}.efi", Network::ADDRESS, CoordinatorProcess::HTTP_PORT);
    efi_order::next_from_url(&machine.efi_variables()?, &url)?;
    let begin = scene.coordinator.log().mark();
    let workflow = scene.provision(&machine).await?;
    machine.power_on().await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    let described = scene.coordinator.api().machine("m1").await?;
    require_secure(&described)?;
    scene.logged(begin, &["service=http", &format!("/boot/uki/{mac}.efi")])?;
    ensure!(!scene.has_logged(begin, &["service=tftp"]), "a file was fetched by TFTP");
    Ok(())
}

/// The firmware takes one's own keys, refuses from then on what they did not sign, and takes no others.
pub(super) async fn enrolled_by_the_agent(context: Context) -> anyhow::Result<()> {
    let served = context.dir.join("served.efi");
    std::fs::copy(context.artefacts.kernel.with_file_name("landfall.efi"), &served)?;
    let (own, others) = (OwnKeys::make(&context.dir.join("own"))?, OwnKeys::make(&context.dir.join("others"))?);
    let options = CoordinatorOptions { uki: Some(served.clone()), ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    for (name, keys) in [("own", &own), ("others", &others)] {
        let actions = json!([{ "name": "keys", "secureBoot": keys.action()? }, { "name": "off", "powerOff": {} }]);
        scene.apply("Template", name, json!({ "actions": actions, "successOn": "reboot" })).await?;
    }
    let (unsigned, signed) = programs(&scene, &own.signing()?).await?;
    std::fs::write(&served, unsigned)?;
    let builder = scene.ordinary("m1").secure_boot(Keys::None).http_boot().firmware_orders();
    let mut machine = scene.described(builder).await?;
    let first = machine.power_on().await?;
    machine.wait_serial(first, HTTP_BOOT, BOOT).await?;
    machine.power_cut().await;
    efi_order::network_first(&machine.efi_variables()?)?;
    let workflow = scene.run(&machine, "own").await?;
    machine.power_on().await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    let known = scene.coordinator.api().machine("m1").await?;
    let facts = known.status.and_then(|status| status.facts).context("a machine without facts")?;
    ensure!(
        (facts.firmware.secure_boot, facts.firmware.setup_mode) == (Some(false), Some(true)),
        "{:?}",
        facts.firmware
    );

    let workflow = scene.run(&machine, "own").await?;
    let power_on = machine.power_on().await?;
    let line = machine.wait_serial_line(power_on, REFUSED, scene.limit(BOOT)).await?;
    ensure!(line.text.contains("HTTP"), "the unsigned program: {}", line.text);
    machine.power_cut().await;
    std::fs::write(&served, signed)?;
    let power_on = machine.power_on().await?;
    scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    machine.wait_off(BOOT).await?;
    let lines = machine.serial().lines_since(power_on);
    let had_them = lines.iter().any(|line| line.text.contains("the firmware has the keys of Secure Boot already"));
    ensure!(had_them, "the keys were written again");
    require_secure(&scene.coordinator.api().machine("m1").await?)?;

    let workflow = scene.run(&machine, "others").await?;
    machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = workflow.status.and_then(|status| status.problem).context("no reason")?;
    ensure!(problem.code == ErrorCode::KeysRefused, "{problem}");
    ensure!(problem.to_string().contains("not in Setup Mode"), "{problem}");
    Ok(())
}

/// A key with its certificate, and what enrols it, as sbsigntool makes it.
struct OwnKeys(PathBuf);

impl OwnKeys {
    fn make(dir: &Path) -> anyhow::Result<Self> {
        std::fs::create_dir_all(dir)?;
        let keys = Self(dir.to_owned());
        let at = |name: &str| keys.at(name);
        let subject = format!("/CN={}", dir.file_name().unwrap_or_default().display());
        run(
            "openssl",
            &[
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-nodes",
                "-days",
                "3650",
                "-subj",
                &subject,
                "-keyout",
                &at("key.pem"),
                "-out",
                &at("cert.pem"),
            ],
        )?;
        run("openssl", &["x509", "-in", &at("cert.pem"), "-outform", "DER", "-out", &at("cert.der")])?;
        let owner = "5b1a3d7e-3d0f-4c5b-9d52-6e2f2a1c7f10";
        run("sbsiglist", &["--owner", owner, "--type", "x509", "--output", &at("cert.esl"), &at("cert.der")])?;
        for name in ["PK", "KEK", "db"] {
            let (key, cert, output) = (at("key.pem"), at("cert.pem"), at(name));
            let replaces = "NON_VOLATILE,BOOTSERVICE_ACCESS,RUNTIME_ACCESS,TIME_BASED_AUTHENTICATED_WRITE_ACCESS";
            run(
                "sbvarsign",
                &["--attr", replaces, "--key", &key, "--cert", &cert, "--output", &output, name, &at("cert.esl")],
            )?;
        }
        Ok(keys)
    }

    fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn action(&self) -> anyhow::Result<Value> {
        let text = |name: &str| std::fs::read(self.at(name)).map(|bytes| BASE64_STANDARD.encode(bytes));
        Ok(json!({ "pk": text("PK")?, "kek": text("KEK")?, "db": text("db")? }))
    }

    fn signing(&self) -> anyhow::Result<SigningKey> {
        Ok(SigningKey::new(&std::fs::read(self.at("key.pem"))?, &std::fs::read(self.at("cert.pem"))?)?)
    }
}

fn run(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let done = Command::new(program).args(arguments).output().with_context(|| program.to_owned())?;
    ensure!(done.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}

/// A list that ends with the machine off, since the image's own boot loader is not signed.
async fn template(scene: &Scene) -> anyhow::Result<()> {
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([{ "name": "write", "writeImage": { "image": image } }, { "name": "off", "powerOff": {} }]);
    scene.apply("Template", "install", json!({ "actions": actions, "successOn": "reboot" })).await
}

/// A kernel image for this coordinator, and the same signed with this key.
async fn programs(scene: &Scene, key: &SigningKey) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
    let unsigned = program(scene, &command_line(scene).await?)?;
    let signed = sign(&unsigned, key)?;
    Ok((unsigned, signed))
}

fn program(scene: &Scene, command_line: &str) -> anyhow::Result<Vec<u8>> {
    let artefacts = &scene.context.artefacts;
    let stub = std::fs::read("/usr/lib/systemd/boot/efi/linuxx64.efi.stub").context("the stub")?;
    let parts = uki::Parts {
        stub: &stub,
        kernel: &std::fs::read(&artefacts.kernel)?,
        initramfs: &std::fs::read(&artefacts.initramfs)?,
        command_line,
        os_release: "ID=landfall\nNAME=Landfall\n",
    };
    Ok(uki::build(&parts)?)
}

/// The key that this OVMF trusts.
fn signing_key() -> anyhow::Result<SigningKey> {
    let (key, certificate) = SECURE_BOOT_KEY;
    let opened = Command::new("openssl").args(["pkey", "-passin", "pass:snakeoil", "-in", key]).output()?;
    ensure!(opened.status.success(), "{key}: {}", String::from_utf8_lossy(&opened.stderr));
    Ok(SigningKey::new(&opened.stdout, &std::fs::read(certificate)?)?)
}

/// A stick with one FAT file system, on which firmware looks for this program.
fn write_stick(stick: &Path, program: &[u8]) -> anyhow::Result<()> {
    write_programs(stick, &[("BOOTX64.EFI", program)])
}

/// The same with several programs in one directory.
fn write_programs(stick: &Path, programs: &[(&str, &[u8])]) -> anyhow::Result<()> {
    std::fs::File::create(stick)?.set_len(64 << 20)?;
    let image = stick.display().to_string();
    run("mformat", &["-i", &image, "-F", "::"])?;
    run("mmd", &["-i", &image, "::EFI", "::EFI/BOOT"])?;
    for (name, program) in programs {
        let file = stick.with_file_name(name);
        std::fs::write(&file, program)?;
        run("mcopy", &["-i", &image, &file.display().to_string(), &format!("::EFI/BOOT/{name}")])?;
    }
    Ok(())
}

/// Requires that the agent saw Secure Boot on.
fn require_secure(machine: &landfall_api::Machine) -> anyhow::Result<()> {
    let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
    let secure = facts.and_then(|facts| facts.firmware.secure_boot);
    ensure!(secure == Some(true), "the facts say of Secure Boot: {secure:?}");
    Ok(())
}
