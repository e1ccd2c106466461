//! f, g, o: the coordinator, or the machine, dies in mid-write; the install completes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use landfall_api::{ErrorCode, Workflow, WorkflowPhase};
use landfall_image::cpio::{Archive, Content};
use landfall_lab::{
    CoordinatorOptions, DhcpMode, DiskBus, Extra, FaultyHttp, Firmware, Machine, MachineBuilder, Mark, Network, Qmp,
    efi_order, put_first, wait_event,
};
use serde_json::json;

use super::Context;
use super::own_initramfs::put_behind_boot_image;
use super::pair::Pair;
use super::paused::Paused;
use super::scene::{BOOT, BOOTED, DISK_BYTES, INSTALL, Scene, require_installed};

/// A machine in the middle of its write: the image's server has sent half and waits.
struct Midway {
    scene: Scene,
    server: FaultyHttp,
    machine: Machine,
    workflow: String,
}

async fn midway(context: Context, firmware: Firmware) -> anyhow::Result<Midway> {
    let scene = Scene::start(context).await?;
    let builder = scene.ordinary("m1").firmware(firmware);
    midway_of(scene, builder).await
}

async fn midway_of(scene: Scene, builder: MachineBuilder) -> anyhow::Result<Midway> {
    let Paused { mut server, url, waits } = Paused::midway(&scene).await?;
    let mut machine = scene.described(builder).await?;
    scene.template(&url).await?;
    let workflow = scene.provision(&machine).await?;
    let mark = server.mark();
    machine.power_on().await?;
    server.wait(mark, &waits, scene.limit(INSTALL)).await?;
    scene.wait_began(&machine, &workflow).await?;
    ensure!(!machine.disk(0).has_boot_signature()?, "the disk carries a boot signature in mid-write");
    Ok(Midway { scene, server, machine, workflow })
}

pub(super) async fn coordinator_killed(context: Context) -> anyhow::Result<()> {
    let Midway { mut scene, mut server, machine, workflow } = midway(context, Firmware::Uefi).await?;
    scene.coordinator.sigkill().await;
    server.set([]).await?;
    scene.coordinator.restart().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)?;
    ensure!(attempts(&workflow)? == 1, "the coordinator's restart cost the write an attempt");
    Ok(())
}

/// The coordinator that holds the session dies in mid-write, and another one over the same database takes its place.
pub(super) async fn coordinator_taken_over(context: Context) -> anyhow::Result<()> {
    let Pair { scene, other, _neighbour, _database } = Pair::start(context, Network::create()?, DhcpMode::Full).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Uefi);
    let Midway { mut scene, mut server, mut machine, workflow } = midway_of(scene, builder).await?;
    ensure!(other.log().lines_since(Mark::default()).iter().all(|line| !line.text.contains("dhcp")), "it answered");
    scene.coordinator.sigkill().await;
    scene.coordinator = other;
    let limit = scene.limit(BOOT);
    scene.coordinator.wait_log(Mark::default(), &["session opened", "machine=m1"], limit).await?;
    server.set([]).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)?;
    ensure!(attempts(&workflow)? == 1, "the change of coordinators cost the write an attempt");
    machine.wait_serial(Mark::default(), BOOTED, limit).await?;
    Ok(())
}

pub(super) async fn kernel_hung(context: Context) -> anyhow::Result<()> {
    let kernel_args = format!("{} sysrq_always_enabled sysctl.kernel.panic=0", landfall_lab::KERNEL_ARGS);
    let options = CoordinatorOptions { kernel_args, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Uefi).with(Extra::Watchdog);
    let Midway { scene, mut server, mut machine, workflow } = midway_of(scene, builder).await?;
    server.set([]).await?;
    let limit = scene.limit(BOOT);
    machine.wait_serial(Mark::default(), "watchdog i6300ESB timer: it restarts this machine", limit).await?;
    let qmp = machine.qmp().context("the machine is off")?;
    let mut events = qmp.events();
    // A crash, after which the kernel stands still: the setting counts after `panic=30` of the command line.
    qmp.press(&["alt", "sysrq", "c"]).await?;
    let event = wait_event(&mut events, "WATCHDOG", limit).await?;
    ensure!(event["data"]["action"] == json!("reset"), "{event}");
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)?;
    let machine = scene.coordinator.api().machine("m1").await?;
    let facts = machine.status.and_then(|status| status.facts).context("a machine without facts")?;
    let watchdog = facts.watchdog.as_ref().context("facts without a watchdog")?;
    ensure!(watchdog.identity.contains("i6300ESB") && watchdog.timeout_seconds == 30, "{watchdog:?}");
    Ok(())
}

/// A person stops the agent by the kernel's freezer, in the rescue shell: nothing feeds the watchdog then.
pub(super) async fn agent_hung(context: Context) -> anyhow::Result<()> {
    let options = CoordinatorOptions { initramfs: with_rescue_shell(&context)?, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios).with(Extra::Watchdog).with(Extra::Screen);
    let Midway { scene, mut server, mut machine, workflow } = midway_of(scene, builder).await?;
    let (qmp, copy) = (machine.qmp().context("the machine is off")?, scene.context.dir.join("screen.raw"));
    let mut events = qmp.events();
    open_rescue_shell((qmp, &copy), scene.limit(BOOT)).await?;
    let freeze =
        ["mount -t cgroup2 c /mnt", "mkdir /mnt/f", "echo 1 >/mnt/f/cgroup.procs", "echo 1 >/mnt/f/cgroup.freeze"];
    for line in freeze {
        qmp.type_line(line).await?;
    }
    let event = wait_event(&mut events, "WATCHDOG", scene.limit(BOOT)).await?;
    ensure!(event["data"]["action"] == json!("reset"), "{event}");
    server.set([]).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}

/// The screen says what the machine does, while the kernel's log scrolls below; a key shows the log from its first line on, another
/// terminal gives a shell, and Ctrl-Alt-Del restarts the machine in order.
pub(super) async fn restarted_at_the_keyboard(context: Context) -> anyhow::Result<()> {
    // What the serial port shows is there because the firmware names it.
    let initramfs = with_rescue_shell(&context)?;
    let options = CoordinatorOptions { kernel_args: "console=tty0".into(), initramfs, ..Scene::options(&context)? };
    let scene = Scene::start_from(context, Network::create()?, options).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Bios).with(Extra::Screen).with(Extra::NamedConsole);
    let Midway { scene, mut server, mut machine, workflow } = midway_of(scene, builder).await?;
    let shows = |rows: &[String]| {
        let begins = |at: usize, text: &str| rows.get(at).is_some_and(|row| row.starts_with(text));
        begins(0, " Landfall ")
            && rows[0].ends_with("m1")
            && begins(1, "coordinator  https://10.77.0.1:7443, connected")
            && begins(2, "address      eth0 10.77.0.")
            && begins(3, &format!("now          workflow {workflow}, 3 actions"))
            && begins(4, "             action 1 of 3: write, ")
            && begins(8, "--------")
    };
    let has_log = |rows: &[String]| rows.iter().any(|row| row.contains("action 1 (write), attempt 1"));
    let (qmp, copy) = (machine.qmp().context("the machine is off")?, scene.context.dir.join("screen.raw"));
    let limit = scene.limit(BOOT);
    let status = |rows: &[String]| (0..rows.len()).any(|at| shows(&rows[at..]));
    wait_screen((qmp, &copy), limit, |rows| (0..rows.len()).any(|at| shows(&rows[at..]) && has_log(&rows[at + 9..])))
        .await?;
    // The card's own memory has not so many lines any more: they come from the kernel's log.
    let first = |rows: &[String]| rows.iter().any(|row| row.starts_with("[    0.000000] Linux version "));
    ensure!(!first(&qmp.screen(&copy).await?), "the first line of the log is on the screen before the key");
    qmp.press(&["l"]).await?;
    for _ in 0..100 {
        qmp.press(&["b"]).await?;
    }
    wait_screen((qmp, &copy), limit, first).await?;
    qmp.press(&["l"]).await?;
    wait_screen((qmp, &copy), limit, status).await?;
    open_rescue_shell((qmp, &copy), limit).await?;
    let mut events = qmp.events();
    qmp.press(&["ctrl", "alt", "delete"]).await?;
    let event = wait_event(&mut events, "RESET", scene.limit(BOOT)).await?;
    ensure!(event["data"]["guest"] == json!(true), "{event}");
    machine.wait_serial(Mark::default(), "Ctrl-Alt-Del: restarting", scene.limit(BOOT)).await?;
    server.set([]).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}

/// The boot image with what `landfall-image initramfs --rescue-shell` would pack.
fn with_rescue_shell(context: &Context) -> anyhow::Result<PathBuf> {
    let mut archive = Archive::new();
    archive.file("rescue/busybox", 0o755, Content::Path("/bin/busybox".into()))?;
    put_behind_boot_image(context, &archive)
}

/// Opens the shell as a person would, who is root then.
async fn open_rescue_shell((qmp, copy): (&mut Qmp, &Path), limit: Duration) -> anyhow::Result<()> {
    qmp.press(&["alt", "f2"]).await?;
    for (line, answer) in [("shell", "landfall rescue / #"), ("id", "uid=0")] {
        qmp.type_line(line).await?;
        wait_screen((qmp, copy), limit, |rows| rows.iter().any(|row| row.starts_with(answer))).await?;
    }
    Ok(())
}

/// Waits until the screen shows what is wanted, `copy` being a file for the copy of its memory.
async fn wait_screen(
    (qmp, copy): (&mut Qmp, &Path), limit: Duration, wanted: impl Fn(&[String]) -> bool,
) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    let shown = async {
        loop {
            rows = qmp.screen(copy).await?;
            if wanted(&rows) {
                return anyhow::Ok(());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    let shown = tokio::time::timeout(limit, shown).await;
    shown.with_context(|| format!("the screen shows:\n{}", rows.join("\n")))?
}

pub(super) async fn power_cut(context: Context) -> anyhow::Result<()> {
    let Midway { scene, mut server, mut machine, workflow } = midway(context, Firmware::Uefi).await?;
    machine.power_cut().await;
    ensure!(!machine.disk(0).has_boot_signature()?, "the disk carries a boot signature after a cut in mid-write");
    server.set([]).await?;
    machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    // What ended the first attempt is shown.
    let shown = scene.describe_workflow(&workflow.metadata.name).await?;
    for words in ["MachineRestarted", "during attempt 1 of action \"write\"", "restart 1 of at most 5"] {
        ensure!(shown.contains(words), "landfall describe does not say \"{words}\":\n{shown}");
    }
    require_installed(&machine, &workflow)
}

/// The program of `exec`: it hangs the first time.
const HANGS_ONCE: &str = "test -e /opt/tried || { touch /opt/tried; sync; echo hangs now; sleep 3600; }";

/// The power goes while a program runs in the new system, and the firmware starts the disk: the system phones home, which proves
/// nothing of what comes after its seed. Started from the network, the machine does the rest.
pub(super) async fn disk_starts_early(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let builder = scene.ordinary("m1").firmware(Firmware::Uefi).firmware_orders();
    let mut machine = scene.described(builder).await?;
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let actions = json!([
        { "name": "write", "writeImage": { "image": image } },
        { "name": "seed", "cloudInit": {} },
        { "name": "order", "efiBoot": { "policy": "diskFirst" } },
        { "name": "run", "exec": { "script": HANGS_ONCE } },
        { "name": "reboot", "reboot": {} },
    ]);
    scene.actions("install", actions).await?;
    let (workflow, power_on) = scene.begin(&mut machine).await?;
    machine.wait_serial(power_on, "hangs now", INSTALL).await?;
    machine.power_cut().await;

    let asked = scene.coordinator.log().mark();
    let power_on = machine.power_on().await?;
    machine.wait_serial(power_on, BOOTED, INSTALL).await?;
    scene.coordinator.log().wait_for(asked, "a phone-home was refused", scene.limit(BOOT)).await?;
    let phase = |status: Option<landfall_api::WorkflowStatus>| status.map(|status| status.phase);
    let early = scene.coordinator.api().workflow(&workflow).await?;
    ensure!(phase(early.status) == Some(WorkflowPhase::Running), "a phone-home ended an open action");
    machine.power_cut().await;

    efi_order::network_first(&machine.efi_variables()?)?;
    machine.power_on().await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)
}

/// The power goes in mid-write, and at the next start the other disk has the name that the selector asks for.
pub(super) async fn disk_names_change(context: Context) -> anyhow::Result<()> {
    let scene = Scene::start(context).await?;
    let Paused { mut server, url, waits } = Paused::midway(&scene).await?;
    let builder = scene.ordinary("m1").disk(DISK_BYTES, DiskBus::Virtio).firmware(Firmware::Bios);
    let mut machine = scene.described(builder).await?;
    let image = json!({ "url": url, "digest": scene.image().digest });
    let actions = json!([{ "name": "write", "writeImage": { "disk": { "name": "vda" }, "image": image } }]);
    scene.actions("install", actions).await?;
    let workflow = scene.provision(&machine).await?;
    let mark = server.mark();
    machine.power_on().await?;
    server.wait(mark, &waits, scene.limit(INSTALL)).await?;
    scene.wait_began(&machine, &workflow).await?;
    machine.power_cut().await;

    server.set([]).await?;
    put_first(&mut machine, 1);
    machine.power_on().await?;
    let failed = scene.wait_end(&workflow, WorkflowPhase::Failed).await?;
    let problem = failed.status.and_then(|status| status.problem).context("a failure without a problem")?;
    ensure!(problem.code == ErrorCode::AmbiguousDisk && problem.message.contains("has begun"), "{problem}");
    ensure!(machine.disk(1).is_untouched()?, "the other disk was touched");
    Ok(())
}

/// The machine restarts by itself while its old session still stands, as after a crash of its kernel: no message, no
/// end of the connection. The new agent waits until the old one was silent for long enough, fences it, and completes
/// the write.
pub(super) async fn older_self_fenced(context: Context) -> anyhow::Result<()> {
    let Midway { scene, mut server, mut machine, workflow } = midway(context, Firmware::Bios).await?;
    let api = scene.coordinator.api();
    let epoch = |m: &landfall_api::Machine| m.status.as_ref().map_or(0, |s| s.epoch);
    let before = epoch(&api.machine(machine.name()).await?);
    ensure!(before > 0, "no session had begun");
    let mark = scene.coordinator.log().mark();
    machine.qmp().context("the machine is off")?.command("system_reset", serde_json::json!({})).await?;
    api.wait_machine(machine.name(), "a newer session", scene.limit(INSTALL), |m| epoch(m) > before).await?;
    ensure!(!machine.disk(0).has_boot_signature()?, "the disk carries a boot signature after a reset in mid-write");
    server.set([]).await?;
    let workflow = scene.wait_end(&workflow, WorkflowPhase::Succeeded).await?;
    require_installed(&machine, &workflow)?;
    // There is one computer, and its identity was never ambiguous.
    let seen = api.machine(machine.name()).await?;
    let conditions = seen.status.map(|s| s.conditions).unwrap_or_default();
    let ambiguous =
        |c: &landfall_api::Condition| c.kind == "IdentityAmbiguous" && c.status == landfall_api::ConditionStatus::True;
    ensure!(!conditions.iter().any(ambiguous), "the machine was taken for two computers");
    scene.logged(mark, &["session opened", machine.name()])
}

/// How often the image was tried.
pub(super) fn attempts(workflow: &Workflow) -> anyhow::Result<u32> {
    let status = workflow.status.as_ref().context("a workflow without a status")?;
    Ok(status.actions.first().context("a workflow without actions")?.attempt)
}
