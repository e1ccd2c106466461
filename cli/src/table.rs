//! Tables in kubectl's style: a header, columns, no borders; one row per document.

use comfy_table::{ContentArrangement, Table, presets};
use jiff::Timestamp;
use landfall_api::{
    ActionState, ConditionStatus, ConditionType, Document, EnrolmentRule, Kind, Machine, MachinePhase, Pool, Secret,
    Template, Workflow, WorkflowPhase,
};

use crate::output::Out;
use crate::text::{Text, one_line, visible};
use crate::{human, output};

/// A header and rows, laid out with two spaces between columns.
pub(crate) struct Columns {
    header: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Columns {
    pub(crate) fn new(header: &[&str]) -> Self {
        Self { header: header.iter().map(ToString::to_string).collect(), rows: Vec::new() }
    }

    /// Puts text before every first cell.
    pub(crate) fn prefix(&mut self, text: &str) {
        self.rows.iter_mut().filter_map(|row| row.first_mut()).for_each(|cell| cell.insert_str(0, text));
    }

    /// Writes the lines.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn print(&self, out: &mut Out, header: bool) -> std::io::Result<()> {
        self.lines(out, header).iter().try_for_each(|line| out.text(line))
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        // A cell of several lines would break the row.
        self.rows.push(cells.iter().map(|cell| visible(cell).replace(['\n', '\t'], " ")).collect());
    }

    /// The lines; phases are coloured where colours are wanted.
    pub(crate) fn lines(&self, out: &Out, header: bool) -> Vec<Text> {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.header.clone());
        for row in &self.rows {
            table.add_row(row.clone());
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        let coloured = self.header.iter().position(|name| ["PHASE", "STATE", "OUTCOME"].contains(&name.as_str()));
        let widths = table.column_max_content_widths();
        let offset: usize = widths.iter().take(coloured.unwrap_or(0)).map(|w| usize::from(*w) + 2).sum();
        let lines = table.lines().map(|line| line.trim_end().to_owned()).collect::<Vec<_>>();
        let skip = usize::from(!header);
        let paint = |(i, line): (usize, String)| match (coloured, i.checked_sub(1).and_then(|r| self.rows.get(r))) {
            (Some(column), Some(row)) if out.colours() && row[..column].iter().all(|cell| cell.is_ascii()) => {
                let word = &row[column];
                match line.get(offset..offset + word.len()) {
                    Some(there) if there == word => {
                        let (before, after) = (&line[..offset], &line[offset + word.len()..]);
                        Text::from(before).then(out.paint(word, colour(word))).then(after)
                    }
                    _ => line.into(),
                }
            }
            _ => line.into(),
        };
        lines.into_iter().enumerate().map(paint).skip(skip).collect()
    }
}

/// The colour of a phase or state.
pub(crate) fn colour(word: &str) -> &'static str {
    match word {
        "Provisioned" | "Succeeded" | "True" | "done" => output::GREEN,
        "Failed" | "Held" | "refused" | "failed" => output::RED,
        "Cancelled" | "Discovered" | "Deleting" | "Paused" => output::YELLOW,
        "Provisioning" | "Deprovisioning" | "Running" | "Rebooting" => output::CYAN,
        _ => "",
    }
}

/// The table of documents of one kind.
pub(crate) fn documents(kind: Kind, documents: &[&Document], wide: bool, labels: bool, now: Timestamp) -> Columns {
    let header: &[&str] = match (kind, wide) {
        (Kind::Machine, false) => &["NAME", "PHASE", "CONNECTED", "WORKFLOW", "AGE"],
        (Kind::Machine, true) => &[
            "NAME", "PHASE", "CONNECTED", "WORKFLOW", "AGE", "MACS", "FIRMWARE", "CPUS", "MEMORY", "DISKS", "HEARD",
            "AGENT",
        ],
        (Kind::Template, false) => &["NAME", "ACTIONS", "PARAMETERS", "AGE"],
        (Kind::Template, true) => &["NAME", "ACTIONS", "PARAMETERS", "AGE", "GENERATION"],
        (Kind::Secret, false) => &["NAME", "KEYS", "FOR", "AGE"],
        (Kind::Secret, true) => &["NAME", "KEYS", "FOR", "AGE", "VERSION"],
        (Kind::EnrolmentRule, false) => &["NAME", "PRIORITY", "WHEN", "TEMPLATE", "APPROVES", "AGE"],
        (Kind::EnrolmentRule, true) => {
            &["NAME", "PRIORITY", "WHEN", "TEMPLATE", "APPROVES", "AGE", "NAMES", "LABELLED", "APPLIED"]
        }
        (Kind::Pool, false) => &["NAME", "TEMPLATE", "WANTED", "READY", "INSTALLING", "FAILED", "STATE", "AGE"],
        (Kind::Pool, true) => &[
            "NAME", "TEMPLATE", "WANTED", "READY", "INSTALLING", "FAILED", "STATE", "AGE", "OUTDATED", "RELEASING",
            "FOR",
        ],
        (Kind::Workflow, false) => &["NAME", "MACHINE", "TEMPLATE", "PHASE", "ACTION", "AGE"],
        (Kind::Workflow, true) => &["NAME", "MACHINE", "TEMPLATE", "PHASE", "ACTION", "AGE", "TOOK", "BY", "PROBLEM"],
    };
    let mut names = header.to_vec();
    if labels {
        names.push("LABELS");
    }
    let mut columns = Columns::new(&names);
    for document in documents {
        let mut cells = match *document {
            Document::Machine(machine) => machine_cells(machine, now),
            Document::Template(template) => template_cells(template, now),
            Document::Workflow(workflow) => workflow_cells(workflow, now),
            Document::Secret(secret) => secret_cells(secret, now),
            Document::EnrolmentRule(rule) => rule_cells(rule, now),
            Document::Pool(pool) => pool_cells(pool, now),
        };
        cells.truncate(header.len());
        if labels {
            cells.push(or_dash(pairs(&document.metadata().labels).collect::<Vec<_>>().join(",")));
        }
        columns.row(cells);
    }
    columns
}

pub(crate) fn or_dash(text: impl Into<String>) -> String {
    let text = text.into();
    if text.is_empty() { "-".into() } else { text }
}

/// The phase of a machine, as its document has it; `Available` before the coordinator has set one.
pub(crate) fn machine_phase(machine: &Machine) -> String {
    format!("{:?}", machine.status.as_ref().map_or(MachinePhase::Available, |s| s.phase))
}

pub(crate) fn workflow_phase(workflow: &Workflow) -> String {
    format!("{:?}", workflow.status.as_ref().map_or(WorkflowPhase::Pending, |s| s.phase))
}

/// The phase of a document, where its kind has one.
pub(crate) fn phase(document: &Document) -> Option<String> {
    match document {
        Document::Machine(machine) => Some(machine_phase(machine)),
        Document::Workflow(run) => Some(workflow_phase(run)),
        Document::Template(_) | Document::Secret(_) | Document::EnrolmentRule(_) | Document::Pool(_) => None,
    }
}

fn machine_cells(machine: &Machine, now: Timestamp) -> Vec<String> {
    let status = machine.status.as_ref();
    let facts = status.and_then(|s| s.facts.as_deref());
    let connected = status.and_then(|s| s.conditions.iter().find(|c| c.kind == ConditionType::Connected));
    vec![
        machine.metadata.name.clone(),
        machine_phase(machine),
        match connected.map(|c| c.status) {
            Some(ConditionStatus::True) => "yes".into(),
            Some(ConditionStatus::False) => "no".into(),
            _ => "-".into(),
        },
        or_dash(status.and_then(|s| s.workflow.clone()).unwrap_or_default()),
        human::age(machine.metadata.creation_timestamp, now),
        machine.macs().iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
        facts.map_or("-".into(), |f| format!("{:?}", f.firmware.mode).to_lowercase()),
        facts.map_or("-".into(), |f| f.cpu.logical.to_string()),
        facts.map_or("-".into(), |f| human::bytes(f.memory_bytes)),
        facts.map_or("-".into(), |f| {
            let disks = f.disks.iter().map(|d| format!("{} {}", d.id.name, human::bytes(d.id.size_bytes)));
            or_dash(disks.collect::<Vec<_>>().join(", "))
        }),
        human::age(status.and_then(|s| s.last_heard), now),
        or_dash(status.and_then(|s| s.agent.clone()).unwrap_or_default()),
    ]
}

fn template_cells(template: &Template, now: Timestamp) -> Vec<String> {
    let name = |action: &serde_json::Value| action.get("name").and_then(|n| n.as_str()).unwrap_or("?").to_owned();
    vec![
        template.metadata.name.clone(),
        template.spec.actions.iter().map(name).collect::<Vec<_>>().join(","),
        or_dash(template.spec.parameters.keys().cloned().collect::<Vec<_>>().join(",")),
        human::age(template.metadata.creation_timestamp, now),
        template.metadata.generation.to_string(),
    ]
}

fn workflow_cells(workflow: &Workflow, now: Timestamp) -> Vec<String> {
    let status = workflow.status.as_ref();
    vec![
        workflow.metadata.name.clone(),
        workflow.spec.machine.clone(),
        workflow.spec.template.clone(),
        workflow_phase(workflow),
        or_dash(status.and_then(|s| human::not_seen(s, now)).unwrap_or_else(|| action_cell(workflow))),
        human::age(workflow.metadata.creation_timestamp, now),
        or_dash(status.and_then(|s| human::between(s.started_at, s.ended_at, now)).unwrap_or_default()),
        or_dash(workflow.spec.authority.as_ref().map(|a| a.person.clone()).unwrap_or_default()),
        or_dash(status.and_then(|s| s.problem.as_ref()).map(|p| p.code.to_string()).unwrap_or_default()),
    ]
}

pub(crate) fn pairs(map: &std::collections::BTreeMap<String, String>) -> impl Iterator<Item = String> {
    map.iter().map(|(key, value)| format!("{}={}", one_line(key), one_line(value)))
}

fn secret_cells(secret: &Secret, now: Timestamp) -> Vec<String> {
    let keys = secret.status.as_ref().map(|s| s.keys.join(",")).unwrap_or_default();
    let owners = secret.spec.machines.iter().cloned().chain(pairs(&secret.spec.match_labels));
    vec![
        secret.metadata.name.clone(),
        or_dash(keys),
        or_dash(owners.collect::<Vec<_>>().join(",")),
        human::age(secret.metadata.creation_timestamp, now),
        secret.status.as_ref().map_or("-".into(), |s| s.version.to_string()),
    ]
}

fn rule_cells(rule: &EnrolmentRule, now: Timestamp) -> Vec<String> {
    vec![
        rule.metadata.name.clone(),
        rule.spec.priority.to_string(),
        or_dash(rule.spec.when.iter().map(|(fact, is)| format!("{fact} {is}")).collect::<Vec<_>>().join(", ")),
        or_dash(rule.spec.template.clone().unwrap_or_default()),
        if rule.spec.approve { "yes".into() } else { "no".into() },
        human::age(rule.metadata.creation_timestamp, now),
        or_dash(rule.spec.name.clone().unwrap_or_default()),
        or_dash(pairs(&rule.spec.labels).collect::<Vec<_>>().join(",")),
        rule.status.as_ref().map_or("-".into(), |s| s.applied.to_string()),
    ]
}

fn pool_cells(pool: &Pool, now: Timestamp) -> Vec<String> {
    let (spec, status) = (&pool.spec, pool.status.clone().unwrap_or_default());
    let ready = status.conditions.iter().find(|condition| condition.kind == ConditionType::Ready);
    let state = ready.map_or("-".into(), |ready| match ready.status {
        ConditionStatus::True => "Ready".into(),
        ConditionStatus::False | ConditionStatus::Unknown => ready.reason.to_string(),
    });
    let wanted = pairs(&spec.match_labels).chain(spec.when.iter().map(|(fact, is)| format!("{fact} {is}")));
    vec![
        pool.metadata.name.clone(),
        spec.template.clone(),
        spec.replicas.to_string(),
        status.ready.to_string(),
        status.installing.to_string(),
        status.failed.to_string(),
        state,
        human::age(pool.metadata.creation_timestamp, now),
        status.outdated.to_string(),
        status.releasing.to_string(),
        or_dash(wanted.collect::<Vec<_>>().join(", ")),
    ]
}

/// `write 41%` of the action under way, or the one that failed, or the last one done.
pub(crate) fn action_cell(workflow: &Workflow) -> String {
    let Some(status) = &workflow.status else { return String::new() };
    let at = |state: ActionState| status.actions.iter().rfind(|a| a.state == state);
    let Some(current) =
        at(ActionState::Running).or_else(|| at(ActionState::Failed)).or_else(|| at(ActionState::Succeeded))
    else {
        return String::new();
    };
    let percent = current.progress.as_ref().filter(|_| current.state == ActionState::Running).and_then(|p| {
        let (done, total) = p.share();
        human::percent(done, total)
    });
    match percent {
        Some(percent) => format!("{} {percent}%", current.action.name),
        None => current.action.name.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_with_two_spaces_and_no_trailing_ones() {
        let mut columns = Columns::new(&["NAME", "PHASE"]);
        columns.row(vec!["node-1".into(), "Available".into()]);
        columns.row(vec!["a".into(), "Failed".into()]);
        let lines = columns.lines(&Out::plain(), true);
        assert_eq!(lines, ["NAME    PHASE", "node-1  Available", "a       Failed"].map(Text::from));
        let coloured = columns.lines(&Out::coloured(), false);
        assert_eq!(coloured[1].as_str(), "a       \x1b[31mFailed\x1b[0m");
    }

    #[test]
    fn a_cell_is_one_line_without_control_characters() {
        let mut columns = Columns::new(&["NAME", "PHASE"]);
        columns.row(vec!["\x1b[2Jx\ny".into(), "Failed".into()]);
        let lines = columns.lines(&Out::coloured(), false);
        assert_eq!(lines[0].as_str(), "\\x1b[2Jx y  \x1b[31mFailed\x1b[0m");
    }

    #[test]
    fn a_machine_that_is_not_seen_shows_since_when() {
        let run = serde_json::json!({"apiVersion": "landfall.dev/v1alpha1", "kind": "Workflow", "metadata": {"name": "m-a"},
            "spec": {"machine": "m", "template": "t"}, "status": {"phase": "Pending", "machineGeneration": 1,
                "actions": [], "conditions": [{"type": "NotSeen", "status": "True", "reason": "NeverNetbooted",
                    "message": "", "since": "2026-01-01T00:00:00Z", "observedGeneration": 1}]}});
        let run = Document::from_value(run).unwrap();
        let columns = documents(Kind::Workflow, &[&run], false, false, "2026-01-01T03:00:00Z".parse().unwrap());
        let lines = columns.lines(&Out::plain(), false);
        assert!(lines[0].as_str().contains("not seen 3h"), "{}", lines[0].as_str());
    }
}
