//! Enrolment rules: they admit discovered machines without a person.
//!
//! A rule never authorises writing a disk that is not blank. The run it starts has no person's authority in it, so the
//! agent refuses any other disk, and it is started once in the life of a machine's document: not when the rule changes, not
//! when the machine enrols again, not when the run fails.

use jiff::Timestamp;
use landfall_api::message::EnrollRequest;
use landfall_api::{
    AppliedRule, ApprovedKey, Document, EnrolmentRule, ErrorCode, Kind, Machine, MachineFacts, Problem, ProofKind,
    Shared, check_expressions, facts_match, is_dns_label,
};
use minijinja::{Environment, UndefinedBehavior};

use super::super::identities::{facts_of, undescribed};
use super::super::internal;
use super::super::requests::{Asker as By, RULE_LABEL};
use super::{Asker, Enrolments};
use landfall_store::audit::Note;

/// What stands for a run while it is being started, so that a crash in between starts no second one.
const STARTING: &str = "being started";

impl Enrolments {
    /// The rule that counts for these facts: of those that match the one with the highest priority, then the first by name.
    pub(super) async fn matching_rule(&self, facts: &MachineFacts) -> Result<Option<Shared<EnrolmentRule>>, Problem> {
        let (documents, _) = self.fleet.store().documents().list(Kind::EnrolmentRule).await?;
        let mut rules: Vec<_> = documents
            .into_iter()
            .filter_map(|document| match document {
                Document::EnrolmentRule(rule) => Some(rule),
                _ => None,
            })
            .collect();
        if rules.is_empty() {
            return Ok(None);
        }
        let facts = serde_json::to_value(facts).map_err(internal)?;
        rules.sort_by(|a, b| b.spec.priority.cmp(&a.spec.priority).then_with(|| a.metadata.name.cmp(&b.metadata.name)));
        Ok(rules.into_iter().find(|rule| match facts_match(&rule.spec.when, &facts) {
            Ok(matches) => matches,
            Err(error) => {
                tracing::warn!(rule = %rule.metadata.name, %error, "an enrolment rule is not valid; it matches no \
                    machine");
                false
            }
        }))
    }

    /// Applies the first matching rule to a discovered machine that is neither approved nor described by a person, if
    /// discovery is on for its address: a person's document has priority over a rule. Under the machine's lock.
    pub(super) async fn apply_rule(
        &self, machine: Shared<Machine>, request: &EnrollRequest, by: &Asker, key: &str,
    ) -> Result<(Shared<Machine>, Option<AppliedRule>), Problem> {
        let enrolment = machine.status.as_ref().map(|s| s.enrolment.clone()).unwrap_or_default();
        let covered = by.address.is_some_and(|address| self.fleet.settings().discovery.covers(address));
        if !covered || !undescribed(&machine) || machine.spec.proof == ProofKind::Approval {
            return Ok((machine, enrolment.rule));
        }
        let Some(rule) = self.matching_rule(&facts_of(request)).await? else { return Ok((machine, enrolment.rule)) };
        let (name, by) = (machine.metadata.name.clone(), rule.metadata.name.clone());
        let now = self.fleet.now();
        let mut machine = machine;
        if enrolment.rule.as_ref().is_none_or(|applied| applied.name != by) {
            let run = enrolment.rule.as_ref().and_then(|applied| applied.run.clone());
            let applied = AppliedRule { name: by.clone(), at: now, template: rule.spec.template.clone(), run };
            machine = self
                .fleet
                .mutate_machine(&name, |machine| {
                    for (key, value) in &rule.spec.labels {
                        machine.metadata.labels.entry(key.clone()).or_insert_with(|| value.clone());
                    }
                    machine.status.get_or_insert_default().enrolment.rule = Some(applied.clone());
                })
                .await?;
            self.count_applied(&rule).await;
            let note = Note::own("ApplyRule", format!("machine/{name}"), format!("rule {by}"));
            self.fleet.store().audit().note(now, note).await;
        }
        if rule.spec.approve {
            tracing::warn!(machine = %name, rule = %by, fingerprint = key, "a rule, not a person, approved this \
                machine");
            let detail = format!("rule {by}, not a person, approved the key {key}");
            self.fleet.store().audit().note(now, Note::own("ApproveByRule", format!("machine/{name}"), detail)).await;
            machine = self.let_in(&machine, key, &format!("{}{by}", ApprovedKey::BY_RULE)).await?;
        }
        let applied = machine.status.as_ref().and_then(|s| s.enrolment.rule.clone());
        Ok((machine, applied))
    }

    /// What rules that were applied before that time were starting when a coordinator ended is not started, unless the run is there.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be written.
    pub(in crate::engine) async fn end_starts(
        &self, machines: &[Shared<Machine>], before: Timestamp,
    ) -> Result<(), Problem> {
        let of = |machine: &Machine| {
            let rule = machine.status.as_ref().and_then(|status| status.enrolment.rule.clone())?;
            Some(rule).filter(|rule| rule.at < before)
        };
        for machine in machines {
            let name = &machine.metadata.name;
            let Some(rule) = of(machine).filter(|rule| rule.run.as_deref() == Some(STARTING)) else { continue };
            let begun = self.fleet.current_workflow(machine).await?.filter(|run| {
                let by = run.metadata.labels.get(RULE_LABEL);
                run.spec.authority.is_none() && by == Some(&rule.name)
            });
            let result = begun.map_or_else(
                || "not started: the coordinator ended meanwhile; a person can request it".to_owned(),
                |run| run.metadata.name.clone(),
            );
            tracing::warn!(machine = %name, rule = %rule.name, run = %result, "the coordinator ended while it started a \
                rule's workflow");
            self.note_rules_run(name, &result).await?;
        }
        Ok(())
    }

    async fn note_rules_run(&self, machine: &str, result: &str) -> Result<(), Problem> {
        self.fleet
            .mutate_machine(machine, |machine| {
                if let Some(applied) = machine.status.as_mut().and_then(|s| s.enrolment.rule.as_mut()) {
                    applied.run = Some(result.to_owned());
                }
            })
            .await
            .map(drop)
    }

    /// Starts the workflow that a rule names, once per machine document. It completes even if the caller has gone:
    /// otherwise a half start would look like a running one.
    pub(super) async fn start_rules_run(&self, machine: &str, rule: &AppliedRule) -> Result<(), Problem> {
        let (engine, machine, rule) = (self.clone(), machine.to_owned(), rule.clone());
        tokio::spawn(async move { engine.start_run_of(&machine, &rule).await }).await.map_err(internal)?
    }

    async fn start_run_of(&self, machine: &str, rule: &AppliedRule) -> Result<(), Problem> {
        let Some(template) = rule.template.as_deref().filter(|_| rule.run.is_none()) else { return Ok(()) };
        let mine = std::sync::atomic::AtomicBool::new(false);
        self.fleet
            .mutate_machine(machine, |machine| {
                let applied =
                    machine.status.as_mut().and_then(|s| s.enrolment.rule.as_mut()).filter(|r| r.run.is_none());
                mine.store(applied.is_some(), std::sync::atomic::Ordering::Relaxed);
                if let Some(applied) = applied {
                    applied.run = Some(STARTING.to_owned());
                }
            })
            .await?;
        if !mine.into_inner() {
            return Ok(());
        }
        let outcome = self
            .requests
            .provision_by(machine, template, std::collections::BTreeMap::new(), By::Rule(&rule.name))
            .await;
        let result = match &outcome {
            Ok(run) => run.metadata.name.clone(),
            Err(problem) => format!("not started: {problem}"),
        };
        let detail = format!("rule {}, template {template}: {result}", rule.name);
        let failed = outcome.err().map(|problem| problem.code);
        let note = Note {
            outcome: if failed.is_some() {
                landfall_api::AuditOutcome::Failed
            } else {
                landfall_api::AuditOutcome::Done
            },
            code: failed,
            ..Note::own("ProvisionByRule", format!("machine/{machine}"), detail)
        };
        self.fleet.store().audit().note(self.fleet.now(), note).await;
        self.note_rules_run(machine, &result).await
    }

    /// For people only; a count that changed at the same moment may be one too low.
    async fn count_applied(&self, rule: &Shared<EnrolmentRule>) {
        let mut rule = rule.clone();
        rule.status.get_or_insert_default().applied += 1;
        if let Err(error) = self.fleet.store().documents().update(Document::from(rule)).await {
            tracing::debug!(%error, "a rule's count was not stored");
        }
    }
}

/// The name that a rule gives, if it gives one that can be a name.
pub(super) fn name_by(rule: &EnrolmentRule, facts: &MachineFacts) -> Option<String> {
    let expression = rule.spec.name.as_deref()?;
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let context = serde_json::json!({ "facts": facts });
    let invalid = |error: &dyn std::fmt::Display| Problem::new(ErrorCode::InvalidTemplate, error.to_string());
    // Rules that were stored before their names were checked come here unchecked.
    let rendered = check_expressions(expression).map_err(|error| invalid(&error)).and_then(|_| {
        let context = minijinja::Value::from(minijinja::value::Serde(context));
        environment.render_str(expression, context).map_err(|error| invalid(&error))
    });
    match rendered.map(|text| label(&text)) {
        Ok(Some(name)) => Some(name),
        Ok(None) => {
            tracing::warn!(rule = %rule.metadata.name, "the rule's name expression does not give a valid name");
            None
        }
        Err(problem) => {
            tracing::warn!(rule = %rule.metadata.name, %problem, "the rule's name expression does not render");
            None
        }
    }
}

/// A DNS label made of a text, if anything of it can stand in one.
pub(in crate::engine) fn label(text: &str) -> Option<String> {
    let mut label: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).take(63).collect();
    while label.contains("--") {
        label = label.replace("--", "-");
    }
    let label = label.trim_matches('-').to_owned();
    is_dns_label(&label).then_some(label)
}

#[cfg(test)]
mod tests {
    use super::label;

    #[test]
    fn any_serial_number_becomes_a_name_or_none() {
        for (serial, name) in [
            ("5CG1234XYZ", Some("5cg1234xyz")),
            ("VMware-56 4d 1a", Some("vmware-56-4d-1a")),
            ("../../etc", Some("etc")),
            ("", None),
            ("---", None),
            ("é", None),
        ] {
            assert_eq!(label(serial).as_deref(), name, "{serial}");
        }
        assert_eq!(label(&"a".repeat(500)).unwrap().len(), 63);
    }
}
