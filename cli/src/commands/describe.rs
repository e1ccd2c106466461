//! `landfall describe`: everything there is to say about a document, for a person who asks why.

use jiff::Timestamp;
use landfall_api::{
    ActionState, ActionStatus, Condition, ConditionStatus, Document, Kind, Machine, MachineFacts, Metadata, Problem,
    Progress, ReceiptState, Template, Workflow,
};

use super::events;
use crate::{
    args::Describe,
    client::Client,
    failure::Failure,
    human,
    output::{self, Out},
    table::{self, Columns, or_dash},
};

/// Events shown of a document.
const RECENT: usize = 15;

pub(crate) async fn run(args: &Describe, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let kind = args.which.target.kind;
    let mut names = args.which.names();
    if names.is_empty() {
        names = client.list(kind).await?.0.iter().map(|d| d.metadata().name.clone()).collect();
        if names.is_empty() {
            output::to_stderr(&format!("There are no {}.", kind.plural()));
        }
    }
    for (i, name) in names.iter().enumerate() {
        if i > 0 {
            out.line("\n")?;
        }
        let document = client.get(kind, name).await?;
        let mut page = Page { out, now: Timestamp::now() };
        match &document {
            Document::Machine(machine) => page.machine(machine, client).await?,
            Document::Template(template) => page.template(template)?,
            Document::Workflow(run) => page.workflow(run)?,
        }
        if kind != Kind::Template {
            page.events(client, kind, name).await?;
        }
    }
    Ok(())
}

struct Page<'a> {
    out: &'a mut Out,
    now: Timestamp,
}

impl Page<'_> {
    fn field(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.out.line(&format!("{:<16}{value}", format!("{name}:")))?;
        Ok(())
    }

    fn heading(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.out.paint(text, output::BOLD);
        self.out.line(&format!("\n{text}"))?;
        Ok(())
    }

    fn columns(&mut self, columns: &Columns) -> Result<(), Failure> {
        for line in columns.lines(self.out, true) {
            self.out.line(&format!("  {line}"))?;
        }
        Ok(())
    }

    fn moment(&self, at: Option<Timestamp>) -> String {
        at.map_or("-".into(), |at| format!("{} ({} ago)", human::moment(at), human::age(Some(at), self.now)))
    }

    fn metadata(&mut self, metadata: &Metadata) -> Result<(), Failure> {
        self.field("Name", &metadata.name)?;
        if !metadata.labels.is_empty() {
            let labels: Vec<String> = metadata.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            self.field("Labels", &labels.join(", "))?;
        }
        if let Some(uid) = metadata.uid {
            self.field("UID", &uid.to_string())?;
        }
        let created = self.moment(metadata.creation_timestamp);
        self.field("Created", &created)?;
        self.field("Generation", &metadata.generation.to_string())
    }

    fn phase(&mut self, phase: &str) -> Result<(), Failure> {
        let painted = self.out.paint(phase, table::colour(phase));
        self.field("Phase", &painted)
    }

    async fn machine(&mut self, machine: &Machine, client: &Client) -> Result<(), Failure> {
        self.metadata(&machine.metadata)?;
        self.phase(&table::machine_phase(machine))?;
        let identity = &machine.spec.identity;
        let macs: Vec<String> = identity.macs.iter().map(ToString::to_string).collect();
        self.field("MACs", &macs.join(", "))?;
        if let Some(uuid) = identity.smbios_uuid {
            self.field("SMBIOS UUID", &uuid.to_string())?;
        }
        if let Some(serial) = &identity.serial {
            self.field("Serial", serial)?;
        }
        let Some(status) = &machine.status else { return Ok(()) };
        let heard = self.moment(status.last_heard);
        self.field("Last heard", &heard)?;
        if let Some(agent) = &status.agent {
            self.field("Agent", agent)?;
        }
        if let Some(peak) = status.agent_peak_rss_bytes {
            self.field("Agent memory", &format!("{} at most", human::bytes(peak)))?;
        }
        self.field("Workflow", &or_dash(status.workflow.clone().unwrap_or_default()))?;
        self.conditions(&status.conditions)?;
        if let Some(facts) = &status.facts {
            self.facts(facts)?;
        }
        self.receipts(machine)?;
        if let Some(name) = &status.workflow {
            // It may have been deleted since; the machine's page is whole without it.
            if let Ok(Document::Workflow(run)) = client.get(Kind::Workflow, name).await {
                self.heading(&format!("Workflow {name}"))?;
                self.phase(&table::workflow_phase(&run))?;
                self.actions(&run)?;
                self.problem(run.status.as_ref().and_then(|s| s.problem.as_ref()))?;
            }
        }
        Ok(())
    }

    fn facts(&mut self, facts: &MachineFacts) -> Result<(), Failure> {
        self.heading("Facts")?;
        let smbios = &facts.smbios;
        let product = format!("{} {}", smbios.manufacturer, smbios.product);
        self.field("  Product", &or_dash(product.trim()))?;
        self.field("  Serial", &or_dash(smbios.serial.clone()))?;
        self.field("  UUID", &or_dash(smbios.uuid.clone()))?;
        let mode = format!("{:?}", facts.firmware.mode).to_uppercase();
        let secure = match facts.firmware.secure_boot {
            Some(true) => ", Secure Boot on",
            Some(false) => ", Secure Boot off",
            None => "",
        };
        self.field("  Firmware", &format!("{mode} {}{secure}", facts.firmware.version))?;
        self.field("  CPU", &format!("{} x {} ({})", facts.cpu.logical, facts.cpu.model, facts.cpu.architecture))?;
        self.field("  Memory", &human::bytes(facts.memory_bytes))?;
        let mut disks = Columns::new(&["DISK", "SIZE", "TRANSPORT", "MODEL", "SERIAL", "WWN", "PATH"]);
        for disk in &facts.disks {
            let id = &disk.id;
            let cells =
                [&id.name, &human::bytes(id.size_bytes), &disk.transport, &id.model, &id.serial, &id.wwn, &id.path];
            disks.row(cells.into_iter().map(or_dash).collect());
        }
        self.columns(&disks)?;
        let mut nics = Columns::new(&["NIC", "MAC", "DRIVER", "LINK"]);
        for nic in &facts.nics {
            let link = match (nic.carrier, nic.speed_mbit) {
                (false, _) => "none".into(),
                (true, Some(speed)) => format!("{speed} Mbit/s"),
                (true, None) => "up".to_owned(),
            };
            nics.row(vec![nic.name.clone(), nic.mac.to_string(), or_dash(nic.driver.clone()), link]);
        }
        self.columns(&nics)
    }

    fn receipts(&mut self, machine: &Machine) -> Result<(), Failure> {
        let Some(status) = machine.status.as_ref().filter(|s| !s.receipts.is_empty()) else { return Ok(()) };
        self.heading("Receipts")?;
        let mut columns = Columns::new(&["DISK", "SAYS", "WORKFLOW", "IMAGE", "WRITTEN"]);
        for on in &status.receipts {
            let says = match on.receipt.state {
                ReceiptState::Intent => "begun",
                ReceiptState::Done => "installed",
            };
            let image =
                on.receipt.image_digest.map_or("no digest".into(), |d| d.to_string().chars().take(19).collect());
            let disk = [&on.disk.name, &on.disk.serial, &on.disk.path].into_iter().find(|s| !s.is_empty());
            let disk = disk.cloned().unwrap_or_default();
            let written = human::moment(on.receipt.written_at);
            columns.row(vec![or_dash(disk), says.into(), on.receipt.workflow_name.clone(), image, written]);
        }
        self.columns(&columns)
    }

    fn conditions(&mut self, conditions: &[Condition]) -> Result<(), Failure> {
        if conditions.is_empty() {
            return Ok(());
        }
        self.heading("Conditions")?;
        let mut columns = Columns::new(&["TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"]);
        for condition in conditions {
            let status = match condition.status {
                ConditionStatus::True => "True",
                ConditionStatus::False => "False",
                ConditionStatus::Unknown => "Unknown",
            };
            let since = human::age(Some(condition.since), self.now);
            let (kind, reason) = (condition.kind.clone(), condition.reason.clone());
            columns.row(vec![kind, status.into(), or_dash(reason), since, condition.message.clone()]);
        }
        self.columns(&columns)
    }

    fn workflow(&mut self, run: &Workflow) -> Result<(), Failure> {
        self.metadata(&run.metadata)?;
        self.phase(&table::workflow_phase(run))?;
        self.field("Machine", &run.spec.machine)?;
        self.field("Template", &run.spec.template)?;
        for (name, value) in &run.spec.parameters {
            self.field("Parameter", &format!("{name} = {value}"))?;
        }
        if let Some(asked) = &run.spec.authority {
            let force = if asked.force { ", with --force" } else { "" };
            self.field("Asked by", &format!("{} at {}{force}", asked.person, human::moment(asked.at)))?;
        }
        if let Some(cancel) = &run.spec.cancel {
            self.field("Cancelled by", &format!("{} at {}", cancel.person, human::moment(cancel.at)))?;
        }
        let Some(status) = &run.status else { return Ok(()) };
        for (name, at) in [
            ("Started", status.started_at),
            ("Rebooted", status.rebooted_at),
            ("Phoned home", status.phoned_home_at),
            ("Ended", status.ended_at),
        ] {
            if at.is_some() {
                let text = self.moment(at);
                self.field(name, &text)?;
            }
        }
        if let Some(took) = human::between(status.started_at, status.ended_at, self.now) {
            self.field("Took", &took)?;
        }
        if let Some(deadline) = status.deadline.filter(|_| !status.phase.is_terminal()) {
            let left = human::span(deadline.as_second() - self.now.as_second());
            self.field("Deadline", &format!("{} (in {left})", human::moment(deadline)))?;
        }
        self.conditions(&status.conditions)?;
        self.actions(run)?;
        self.problem(status.problem.as_ref())
    }

    fn actions(&mut self, run: &Workflow) -> Result<(), Failure> {
        let Some(status) = &run.status else { return Ok(()) };
        self.heading("Actions")?;
        let mut columns =
            Columns::new(&["NAME", "DOES", "STATE", "ATTEMPT", "TOOK", "READ", "IMAGE", "WRITTEN", "RATE"]);
        for action in &status.actions {
            columns.row(self.action_cells(action));
        }
        self.columns(&columns)?;
        for action in &status.actions {
            // The run's own problem is shown below; this is what earlier attempts met.
            if let Some(problem) = &action.problem
                && status.problem.as_ref() != Some(problem)
            {
                let tried =
                    if action.state == ActionState::Succeeded { "an earlier attempt" } else { "the last attempt" };
                self.out.line(&format!("  {}: {tried} failed: {problem}", action.action.name))?;
            }
        }
        Ok(())
    }

    fn action_cells(&self, action: &ActionStatus) -> Vec<String> {
        let progress = action.progress.as_ref();
        let of = |done: u64, total: u64| match (done, total) {
            (0, 0) => "-".into(),
            (done, 0) => human::bytes(done),
            (done, total) if done == total => human::bytes(done),
            (done, total) => format!("{}/{}", human::bytes(done), human::bytes(total)),
        };
        vec![
            action.action.name.clone(),
            action.action.spec.key().into(),
            format!("{:?}", action.state),
            or_dash(if action.attempt == 0 { String::new() } else { action.attempt.to_string() }),
            or_dash(human::between(action.started_at, action.ended_at, self.now).unwrap_or_default()),
            progress.map_or("-".into(), |p| of(p.stored_bytes, p.stored_total)),
            progress.map_or("-".into(), |p| of(p.raw_bytes, p.raw_total)),
            progress.map_or("-".into(), |p| of(p.written_bytes, 0)),
            or_dash(progress.filter(|_| action.state == ActionState::Running).map(going).unwrap_or_default()),
        ]
    }

    fn problem(&mut self, problem: Option<&Problem>) -> Result<(), Failure> {
        let Some(problem) = problem else { return Ok(()) };
        self.heading("Problem")?;
        let code = self.out.paint(problem.code.as_str(), output::RED);
        self.field("  Code", &code)?;
        self.field("  What", &problem.message)?;
        if !problem.subject.is_empty() {
            self.field("  Where", &problem.subject)?;
        }
        for cause in &problem.causes {
            self.field("  Because", cause)?;
        }
        if !problem.hint.is_empty() {
            self.field("  What to do", &problem.hint)?;
        }
        if !problem.last_log_lines.is_empty() {
            self.out.line("  Last log lines:")?;
            for line in &problem.last_log_lines {
                self.out.line(&format!("    | {line}"))?;
            }
        }
        Ok(())
    }

    fn template(&mut self, template: &Template) -> Result<(), Failure> {
        self.metadata(&template.metadata)?;
        if !template.spec.parameters.is_empty() {
            self.heading("Parameters")?;
            let mut columns = Columns::new(&["NAME", "DEFAULT", "DESCRIPTION"]);
            for (name, parameter) in &template.spec.parameters {
                let default = parameter.default.as_ref().map_or("(required)".into(), ToString::to_string);
                columns.row(vec![name.clone(), default, parameter.description.clone()]);
            }
            self.columns(&columns)?;
        }
        self.heading("Actions")?;
        let text = serde_saphyr::to_string(&template.spec.actions)
            .map_err(|e| Failure::local("the actions cannot be shown", e, ""))?;
        for line in text.lines() {
            self.out.line(&format!("  {line}"))?;
        }
        Ok(())
    }

    async fn events(&mut self, client: &Client, kind: Kind, name: &str) -> Result<(), Failure> {
        let records = events::of(client, kind, name).await?;
        self.heading("Events")?;
        let skipped = records.len().saturating_sub(RECENT);
        if records.is_empty() {
            self.out.line("  none yet")?;
            return Ok(());
        }
        if skipped > 0 {
            self.out.line(&format!("  {skipped} earlier ones: landfall events {}/{name}", kind.singular()))?;
        }
        self.columns(&events::columns(&records[skipped..]))
    }
}

/// `85.0 MiB/s, write-bound, ETA 12s`.
fn going(progress: &Progress) -> String {
    let rate = (progress.bytes_per_second > 0).then(|| format!("{}/s", human::bytes(progress.bytes_per_second)));
    [rate, human::bound_by(progress), human::to_go(progress)].into_iter().flatten().collect::<Vec<_>>().join(", ")
}
