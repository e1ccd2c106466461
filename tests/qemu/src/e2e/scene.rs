//! What most tests begin with: a network, a coordinator, a described machine, a template.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use landfall_api::{Workflow, WorkflowPhase};
use landfall_lab::artefacts::OsImage;
use landfall_lab::{
    CoordinatorOptions, CoordinatorProcess, DhcpMode, DiskBus, FaultyHttp, Log, Machine, MachineBuilder, Mark, Network,
    Process,
};
use serde_json::{Value, json};

use super::Context;

/// Capacity of a machine's disk; sparse, so only what is written takes room.
pub(super) const DISK_BYTES: u64 = 4 << 30;
/// What the e2e image prints when it is up.
pub(super) const BOOTED: &str = "mini: booted";
/// A whole install under KVM; multiplied by the accelerator's patience.
pub(super) const INSTALL: Duration = Duration::from_secs(240);
/// From power-on to anything short of an install, under KVM.
pub(super) const BOOT: Duration = Duration::from_secs(120);
/// A command of the operator's, on any host.
const COMMAND: Duration = Duration::from_secs(120);

/// Where a receipt lies: the 4096 bytes that end at 1 MiB.
pub(super) const RECEIPT_AT: u64 = (1 << 20) - 4096;

/// A network with a coordinator on it.
pub(super) struct Scene {
    pub(super) context: Context,
    // Dropped in this order: programs before the network they are on.
    pub(super) coordinator: CoordinatorProcess,
    pub(super) network: Network,
}

impl Scene {
    /// A coordinator that is the network's DHCP server.
    pub(super) async fn start(context: Context) -> anyhow::Result<Self> {
        Self::start_on(context, Network::create()?, DhcpMode::Full).await
    }

    /// A coordinator on a network that exists.
    pub(super) async fn start_on(context: Context, network: Network, dhcp: DhcpMode) -> anyhow::Result<Self> {
        let images = context.artefacts.image.path.parent().context("the image is in no directory")?.to_owned();
        Self::start_with(context, network, dhcp, images).await
    }

    /// A coordinator that serves the images in a directory of the test's own.
    pub(super) async fn start_with(
        context: Context, network: Network, dhcp: DhcpMode, images: PathBuf,
    ) -> anyhow::Result<Self> {
        let options = CoordinatorOptions { images, dhcp, ..Self::options(&context)? };
        Self::start_from(context, network, options).await
    }

    /// What most coordinators are started with: the network's DHCP server, with the directory of the ordinary image.
    pub(super) fn options(context: &Context) -> anyhow::Result<CoordinatorOptions> {
        let artefacts = &context.artefacts;
        Ok(CoordinatorOptions {
            program: artefacts.coordinator.clone(),
            kernel: artefacts.kernel.clone(),
            initramfs: artefacts.initramfs.clone(),
            uki: None,
            tools: None,
            bootloaders: artefacts.bootloaders.clone(),
            images: artefacts.image.path.parent().context("the image is in no directory")?.to_owned(),
            dhcp: DhcpMode::Full,
            kernel_args: landfall_lab::KERNEL_ARGS.to_owned(),
            others: Vec::new(),
            more: String::new(),
        })
    }

    /// A coordinator that is started with these options.
    pub(super) async fn start_from(
        context: Context, network: Network, options: CoordinatorOptions,
    ) -> anyhow::Result<Self> {
        let coordinator = CoordinatorProcess::start(&options, &network, &context.dir).await?;
        Ok(Self { context, coordinator, network })
    }

    /// A server for the image with commanded faults.
    pub(super) async fn faulty(&self) -> anyhow::Result<FaultyHttp> {
        let files = self.image().path.parent().context("the image is in no directory")?;
        Ok(FaultyHttp::start(&self.context.program, &self.network, files, &self.context.dir).await?)
    }

    /// The image that is installed.
    pub(super) fn image(&self) -> &OsImage {
        &self.context.artefacts.image
    }

    /// The image's URL at the coordinator.
    pub(super) fn image_url(&self) -> String {
        self.url(&self.image().file_name())
    }

    /// The URL of a file in the coordinator's directory of images.
    pub(super) fn url(&self, file: &str) -> String {
        format!("http://{}:{}/images/{file}", Network::ADDRESS, CoordinatorProcess::HTTP_PORT)
    }

    /// A machine with one empty virtio disk.
    pub(super) fn ordinary(&self, name: &str) -> MachineBuilder {
        Machine::builder(name).disk(DISK_BYTES, DiskBus::Virtio)
    }

    /// Puts a machine together and describes it to the coordinator.
    pub(super) async fn described(&self, builder: MachineBuilder) -> anyhow::Result<Machine> {
        let machine = builder.build(&self.network, &self.context.dir, self.context.accel)?;
        self.describe(&machine, &[machine.mac()]).await?;
        Ok(machine)
    }

    /// Describes a machine to the coordinator, with these addresses.
    pub(super) async fn describe(&self, machine: &Machine, macs: &[&str]) -> anyhow::Result<()> {
        let spec = machine.spec();
        let identity = json!({ "macs": macs, "smbiosUuid": spec.uuid, "serial": spec.serial });
        self.apply("Machine", &spec.name, json!({ "identity": identity })).await
    }

    /// Applies a template called `install`: write this URL's image to the one disk, seed, reboot.
    pub(super) async fn template(&self, url: &str) -> anyhow::Result<()> {
        let image = json!({ "url": url, "digest": self.image().digest });
        let actions = json!([
            { "name": "write", "writeImage": { "image": image }, "retry": { "maxAttempts": 2, "initialBackoff": "1s" } },
            { "name": "seed", "cloudInit": {} },
            { "name": "reboot", "reboot": {} },
        ]);
        self.actions("install", actions).await
    }

    /// Applies a template of these actions.
    pub(super) async fn actions(&self, template: &str, actions: Value) -> anyhow::Result<()> {
        self.apply("Template", template, json!({ "actions": actions })).await
    }

    /// Applies a document.
    pub(super) async fn apply(&self, kind: &str, name: &str, spec: Value) -> anyhow::Result<()> {
        let document = json!({
            "apiVersion": "landfall.dev/v1alpha1", "kind": kind, "metadata": { "name": name }, "spec": spec,
        });
        self.coordinator.api().apply(&document).await.with_context(|| format!("{kind} {name}"))?;
        Ok(())
    }

    /// Starts the template `install` on a machine, as a person would.
    pub(super) async fn provision(&self, machine: &Machine) -> anyhow::Result<String> {
        self.run(machine, "install").await
    }

    /// Starts the template `install` on a machine, and turns it on; the workflow's name, and where the console was.
    pub(super) async fn begin(&self, machine: &mut Machine) -> anyhow::Result<(String, Mark)> {
        let workflow = self.provision(machine).await?;
        Ok((workflow, machine.power_on().await?))
    }

    /// The same until it has succeeded.
    pub(super) async fn install(&self, machine: &mut Machine) -> anyhow::Result<(Workflow, Mark)> {
        let (workflow, power_on) = self.begin(machine).await?;
        Ok((self.wait_end(&workflow, WorkflowPhase::Succeeded).await?, power_on))
    }

    /// Starts a template on a machine, as a person would.
    pub(super) async fn run(&self, machine: &Machine, template: &str) -> anyhow::Result<String> {
        Ok(self.coordinator.api().provision(machine.name(), template, false).await?)
    }

    /// Waits until a workflow has ended, and fails unless it ended as wanted.
    pub(super) async fn wait_end(&self, workflow: &str, wanted: WorkflowPhase) -> anyhow::Result<Workflow> {
        let ended = |w: &Workflow| w.status.as_ref().is_some_and(|s| s.phase.is_terminal());
        let what = format!("{wanted:?}");
        let limit = self.limit(INSTALL);
        let workflow = self.coordinator.api().wait_workflow(workflow, &what, limit, ended).await?;
        let status = workflow.status.as_ref().context("a workflow without a status")?;
        if status.phase != wanted {
            let problem = status.problem.as_ref().map_or_else(String::new, ToString::to_string);
            bail!("the workflow ended {:?}, not {wanted:?}: {problem}", status.phase);
        }
        Ok(workflow)
    }

    /// Waits until the coordinator has stored that a workflow's install began on a machine's disk. The image's server knows
    /// it earlier, and so does a reader of the progress, which takes another way than events.
    pub(super) async fn wait_began(&self, machine: &Machine, workflow: &str) -> anyhow::Result<()> {
        let began = |m: &landfall_api::Machine| {
            m.status.as_ref().is_some_and(|s| s.receipts.iter().any(|on| on.receipt.workflow_name == workflow))
        };
        let what = format!("the receipt of {workflow}");
        self.coordinator.api().wait_machine(machine.name(), &what, self.limit(INSTALL), began).await?;
        Ok(())
    }

    /// What `landfall describe workflow` shows a person.
    pub(super) async fn describe_workflow(&self, workflow: &str) -> anyhow::Result<String> {
        self.landfall(&["describe", "workflow", workflow]).await
    }

    /// What a command of the operator's prints; it must succeed.
    pub(super) async fn landfall(&self, words: &[&str]) -> anyhow::Result<String> {
        Ok(self.landfall_prints(words).await?.0)
    }

    /// The same: what it prints, and what it says beside that on standard error. No terminal is there to answer a question.
    pub(super) async fn landfall_prints(&self, words: &[&str]) -> anyhow::Result<(String, String)> {
        let output = self.command(words).stdin(Stdio::null()).kill_on_drop(true).output();
        let command = words.join(" ");
        let output = tokio::time::timeout(COMMAND, output).await;
        let output = output.with_context(|| format!("landfall {command} does not end"))?;
        let output = output.with_context(|| format!("cannot run {}", self.context.cli.display()))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "landfall {command} failed: {errors}");
        Ok((String::from_utf8_lossy(&output.stdout).into_owned(), errors.into_owned()))
    }

    /// Whether a dry run of a template passes, and all that it prints.
    pub(super) async fn dry_run(&self, machine: &Machine, template: &str) -> anyhow::Result<(bool, String)> {
        let words = ["provision", machine.name(), "-t", template, "--dry-run"];
        let output = tokio::time::timeout(COMMAND, self.command(&words).kill_on_drop(true).output()).await;
        let output = output.context("landfall provision --dry-run does not end")??;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.success(), text(&output.stdout) + &text(&output.stderr)))
    }

    /// A long-running command of the operator, with its output in a log of that name.
    pub(super) fn landfall_follows(&self, words: &[&str], name: &str) -> anyhow::Result<(Process, Log)> {
        let log = Log::open(&self.context.dir.join(format!("{name}.log")))?;
        Ok((Process::spawn(&format!("landfall {}", words.join(" ")), self.command(words), log.clone())?, log))
    }

    fn command(&self, words: &[&str]) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.context.cli);
        command.arg("--server").arg(format!("unix://{}", self.coordinator.socket().display())).args(words);
        command
    }

    /// What a wait may take here.
    pub(super) fn limit(&self, under_kvm: Duration) -> Duration {
        under_kvm * self.context.accel.patience()
    }

    /// Requires that the coordinator logged a line since `mark` with all these words.
    pub(super) fn logged(&self, mark: Mark, words: &[&str]) -> anyhow::Result<()> {
        ensure!(self.has_logged(mark, words), "the coordinator's log has no line with {}", words.join(" … "));
        Ok(())
    }

    /// Whether the coordinator logged a line since `mark` with all these words; quotes around values do not count.
    pub(super) fn has_logged(&self, mark: Mark, words: &[&str]) -> bool {
        let has_all = |text: &str| {
            let text = landfall_lab::printable(text).replace('"', "");
            words.iter().all(|word| text.contains(word))
        };
        self.coordinator.log().lines_since(mark).iter().any(|line| has_all(&line.text))
    }
}

/// What a boot medium and a signed kernel image have as the kernel's command line.
pub(super) async fn command_line(scene: &Scene) -> anyhow::Result<String> {
    let (config, program) = (scene.coordinator.config(), &scene.context.artefacts.coordinator);
    let line = tokio::process::Command::new(program).arg("--config").arg(config).arg("command-line").output().await?;
    ensure!(line.status.success(), "landfall-coordinator command-line: {}", String::from_utf8_lossy(&line.stderr));
    Ok(String::from_utf8(line.stdout)?.trim().to_owned())
}

/// Requires that the disk looks installed: bootable, both tables, and a receipt of this workflow that says so.
pub(super) fn require_installed(machine: &Machine, workflow: &Workflow) -> anyhow::Result<()> {
    require_installed_on(machine, 0, workflow)
}

/// The same of another disk than the first.
pub(super) fn require_installed_on(machine: &Machine, disk: usize, workflow: &Workflow) -> anyhow::Result<()> {
    let disk = machine.disk(disk);
    ensure!(disk.has_boot_signature()?, "the disk has no boot signature");
    ensure!(disk.has_primary_gpt()?, "the disk has no primary GPT");
    ensure!(disk.has_backup_gpt()?, "the disk has no GPT at its true end");
    let receipt = disk.read(RECEIPT_AT, 4096)?;
    let uid = workflow.metadata.uid.context("a workflow without a uid")?.to_string();
    let text = String::from_utf8_lossy(&receipt);
    ensure!(
        text.contains(&uid),
        "the receipt on the disk does not name workflow {uid}: {}",
        landfall_lab::printable(&text)
    );
    ensure!(text.contains("Done"), "the receipt on the disk is not in state Done: {}", landfall_lab::printable(&text));
    Ok(())
}

/// The bytes where a receipt lies.
pub(super) fn receipt(machine: &Machine) -> anyhow::Result<Vec<u8>> {
    Ok(machine.disk(0).read(RECEIPT_AT, 4096)?)
}
