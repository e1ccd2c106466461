//! `landfall describe`: everything about a document, for a person who looks for a reason.

mod machine;
mod workflow;

use jiff::Timestamp;
use landfall_api::{Condition, ConditionStatus, Document, EnrolmentRule, Kind, Metadata, Pool, Secret, Template};
use landfall_client::{Client, Scope};

use super::{events, history};
use crate::args::{Describe, Selection};
use crate::failure::Failure;
use crate::output::Out;
use crate::table::{Columns, or_dash};
use crate::text::{Text, set_in};
use crate::{human, output, table};

/// Events shown of a document.
const RECENT: usize = 15;

/// Changes shown of a document.
const RECENT_CHANGES: usize = 5;

/// Where the values of fields begin.
const FIELD: usize = 16;

pub(crate) async fn run(args: &Describe, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let selection = args.which.selection()?;
    args.labels.with(&selection)?;
    let mut documents = Vec::new();
    match &selection {
        Selection::Named(named) => {
            for (kind, name) in named {
                documents.push(client.get(*kind, name).await?);
            }
        }
        Selection::Kinds(kinds) => {
            for kind in kinds {
                documents.extend(client.list(&Scope::of(*kind, args.labels.selector.as_ref())).await?.0);
            }
            if documents.is_empty() {
                let words = kinds.iter().map(|k| k.plural()).collect::<Vec<_>>().join(", ");
                output::to_stderr(&format!("There are no {words}."));
            }
        }
    }
    for (i, document) in documents.iter().enumerate() {
        if i > 0 {
            out.line("\n")?;
        }
        let mut page = Page { out, now: Timestamp::now() };
        match document {
            Document::Machine(machine) => page.machine(machine, client).await?,
            Document::Template(template) => page.template(template)?,
            Document::Workflow(run) => page.workflow(run)?,
            Document::Secret(secret) => page.secret(secret)?,
            Document::EnrolmentRule(rule) => page.rule(rule)?,
            Document::Pool(pool) => page.pool(pool)?,
        }
        let (kind, name) = (document.kind(), &document.metadata().name);
        if matches!(kind, Kind::Machine | Kind::Workflow) {
            page.events(client, kind, name).await?;
        }
        if let Some(columns) = history::newest(client, kind, name, RECENT_CHANGES).await {
            page.heading("History")?;
            page.columns(&columns)?;
        }
    }
    Ok(())
}

struct Page<'a> {
    out: &'a mut Out,
    now: Timestamp,
}

impl Page<'_> {
    fn secret(&mut self, secret: &Secret) -> Result<(), Failure> {
        self.metadata(&secret.metadata)?;
        let status = secret.status.clone().unwrap_or_default();
        self.field("Keys", &or_dash(status.keys.join(", ")))?;
        self.field("Values", &format!("never shown; version {}", status.version))?;
        self.field("For machines", &or_dash(secret.spec.machines.join(", ")))?;
        let labels = table::pairs(&secret.spec.match_labels).collect::<Vec<_>>().join(", ");
        self.field("For labels", &or_dash(labels))
    }

    fn rule(&mut self, rule: &EnrolmentRule) -> Result<(), Failure> {
        self.metadata(&rule.metadata)?;
        let spec = &rule.spec;
        self.field("Priority", &spec.priority.to_string())?;
        self.field("Names it", &or_dash(spec.name.clone().unwrap_or_default()))?;
        self.field("Labels it", &or_dash(table::pairs(&spec.labels).collect::<Vec<_>>().join(", ")))?;
        self.field("Runs", &or_dash(spec.template.clone().unwrap_or_default()))?;
        self.field("Approves", if spec.approve { "yes" } else { "no" })?;
        if let Some(status) = &rule.status {
            self.field("Applied", &format!("to {} machines", status.applied))?;
        }
        self.heading("When all of this holds")?;
        if spec.when.is_empty() {
            self.out.line("  always: it is for every machine")?;
            return Ok(());
        }
        let mut columns = Columns::new(&["FACT", "IS"]);
        spec.when.iter().for_each(|(fact, is)| columns.row(vec![fact.clone(), is.clone()]));
        self.columns(&columns)
    }

    fn pool(&mut self, pool: &Pool) -> Result<(), Failure> {
        self.metadata(&pool.metadata)?;
        let (spec, status) = (&pool.spec, pool.status.clone().unwrap_or_default());
        self.field("Template", &spec.template)?;
        let wanted = table::pairs(&spec.match_labels).chain(spec.when.iter().map(|(fact, is)| format!("{fact} {is}")));
        self.field("Claims", &or_dash(wanted.collect::<Vec<_>>().join(", ")))?;
        self.field("Wanted", &spec.replicas.to_string())?;
        let parts = [
            ("ready", status.ready),
            ("installing", status.installing),
            ("outdated", status.outdated),
            ("failed", status.failed),
            ("leaving", status.releasing),
        ];
        let there = parts.iter().filter(|(_, n)| *n > 0).map(|(what, n)| format!("{n} {what}"));
        self.field("Machines", &or_dash(there.collect::<Vec<_>>().join(", ")))?;
        let by = status.requested.map(|by| by.person);
        self.field("Wipes for", &by.unwrap_or_else(|| "no person: a file requests it".into()))?;
        self.conditions(&status.conditions)?;
        if status.members.is_empty() {
            return Ok(());
        }
        self.heading("Machines")?;
        let mut columns = Columns::new(&["NAME", "STATE", "PROBLEM"]);
        for member in status.members {
            columns.row(vec![member.name, member.state.to_string(), or_dash(member.problem.unwrap_or_default())]);
        }
        self.columns(&columns)
    }

    fn field(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        self.put(name, set_in(value, &" ".repeat(FIELD)).into())
    }

    fn put(&mut self, name: &str, value: Text) -> Result<(), Failure> {
        self.out.text(&Text::from(format!("{:<FIELD$}", format!("{name}:"))).then(value))?;
        Ok(())
    }

    fn heading(&mut self, text: &str) -> Result<(), Failure> {
        let text = self.out.paint(text, output::BOLD);
        self.out.text(&Text::from("\n").then(text))?;
        Ok(())
    }

    fn columns(&mut self, columns: &Columns) -> Result<(), Failure> {
        for line in columns.lines(self.out, true) {
            self.out.text(&Text::from("  ").then(line))?;
        }
        Ok(())
    }

    fn moment(&self, at: Option<Timestamp>) -> String {
        at.map_or("-".into(), |at| format!("{} ({} ago)", human::moment(at), human::age(Some(at), self.now)))
    }

    fn metadata(&mut self, metadata: &Metadata) -> Result<(), Failure> {
        self.field("Name", &metadata.name)?;
        if !metadata.labels.is_empty() {
            self.field("Labels", &table::pairs(&metadata.labels).collect::<Vec<_>>().join(", "))?;
        }
        if let Some(uid) = metadata.uid {
            self.field("UID", &uid.to_string())?;
        }
        let created = self.moment(metadata.creation_timestamp);
        self.field("Created", &created)?;
        if let Some(asked) = metadata.deletion_timestamp {
            let text = self.moment(Some(asked));
            self.field("Being deleted", &format!("since {text}"))?;
            self.field("Held by", &or_dash(metadata.finalizers.join(", ")))?;
        }
        self.field("Generation", &metadata.generation.to_string())
    }

    fn phase(&mut self, phase: &str) -> Result<(), Failure> {
        let painted = self.out.paint(phase, table::colour(phase));
        self.put("Phase", painted)
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
            let (kind, reason) = (condition.kind.to_string(), condition.reason.to_string());
            columns.row(vec![kind, status.into(), or_dash(reason), since, condition.message.clone()]);
        }
        self.columns(&columns)
    }

    fn template(&mut self, template: &Template) -> Result<(), Failure> {
        self.metadata(&template.metadata)?;
        if !template.spec.parameters.is_empty() {
            self.heading("Parameters")?;
            let mut columns = Columns::new(&["NAME", "TYPE", "DEFAULT", "RULES", "DESCRIPTION"]);
            for (name, parameter) in &template.spec.parameters {
                let default = parameter.default.as_ref().map_or("(required)".into(), ToString::to_string);
                let (kind, rules) = (parameter.type_in_words(), or_dash(parameter.rules_in_words()));
                columns.row(vec![name.clone(), kind, default, rules, parameter.description.clone()]);
            }
            self.columns(&columns)?;
        }
        self.heading("Actions")?;
        let text = serde_saphyr::to_string(&template.spec.actions)
            .map_err(|e| Failure::local("cannot show the actions", e, ""))?;
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
