//! Templates become typed action lists.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use landfall_api::{
    Action, ActionStatus, DiskReceipt, DurationSpec, ErrorCode, LeftOut, Machine, Precheck, Problem, SuccessOn,
    Template, WorkflowStatus, validate_rendered,
};
use serde_json::{Value, json};

use super::expand::{Expanded, Expander, Fragments, Place};
use super::scalar::{Room, Scope, environment};
use super::{expand, parameters, secret_ref, written_twice};

/// A template rendered for one machine: what a run of it pins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// What is done, in order.
    pub actions: Vec<Action>,
    /// What is not done, because its condition does not hold.
    pub left_out: Vec<LeftOut>,
    /// What is done after a failure or a cancel.
    pub on_failure: Vec<Action>,
    /// How long the run may take in all, where the template says.
    pub timeout: Option<DurationSpec>,
    /// When it has succeeded, where the template says.
    pub success_on: Option<SuccessOn>,
    /// Whether the agent checks the whole list first, where the template says.
    pub precheck: Option<Precheck>,
}

impl Plan {
    /// The status of a run that has not begun.
    pub fn status(self, machine: &Machine, expected_receipts: Vec<DiskReceipt>) -> WorkflowStatus {
        WorkflowStatus {
            actions: self.actions.into_iter().map(ActionStatus::pending).collect(),
            left_out: self.left_out,
            on_failure: self.on_failure.into_iter().map(ActionStatus::pending).collect(),
            timeout: self.timeout,
            success_on: self.success_on,
            precheck: self.precheck,
            machine_generation: machine.metadata.generation,
            prompt: machine.prompt(),
            expected_receipts,
            ..WorkflowStatus::default()
        }
    }
}

/// Renders the template's actions for a machine and checks the result, so that every error a list can have comes
/// before its first step. `fragments` are the templates that it includes.
///
/// # Errors
/// [`Problem`] with code `InvalidTemplate`; `subject` is the path of the field, such as
/// `Template/debian: spec.actions[0].writeImage.image.url`.
pub fn render(
    machine: &Machine, template: &Template, stated: &BTreeMap<String, Value>, fragments: &Fragments,
) -> Result<Plan, Problem> {
    let (name, spec) = (&template.metadata.name, &template.spec);
    if spec.fragment {
        let message = format!("template \"{name}\" is a fragment: it is only for others to include");
        let hint = "include it: - { name: …, include: { template: … } }";
        return Err(Problem::new(ErrorCode::InvalidTemplate, message)
            .at(format!("Template/{name}: spec.fragment"))
            .hint(hint));
    }
    let params = parameters::scope(template, parameters::resolved(template, stated)?);
    let scope = machine_scope(machine);
    let text = scope.to_string();
    if secret_ref::has_placeholder(&text) {
        return Err(Problem::new(ErrorCode::InvalidTemplate, secret_ref::UNUSABLE)
            .at(format!("Template/{name}: spec.actions"))
            .hint("remove them from the machine's labels; facts have none once its agent has reported them again"));
    }
    let seen = RefCell::new(json!({ "machine": scope }));
    let scope = Scope { values: minijinja::Value::from(minijinja::value::Serde(scope)), bytes: text.len() };
    let seen_params = expand::seen(&params, &format!("Template/{name}: spec.parameters"))?;
    let params_bytes = seen_params.to_string().len();
    let expander = Expander {
        environment: environment(),
        machine,
        machine_scope: scope,
        fragments,
        seen,
        items: Cell::new(0),
        room: Room::whole(),
    };
    let list = |items, field: &str| {
        let path = format!("Template/{name}: spec.{field}");
        let place = Place {
            chain: vec![name.as_str()],
            path,
            params: params.clone(),
            params_bytes,
            seen_params: RefCell::new(seen_params.clone()),
            prefix: String::new(),
            branch: None,
            repeated: false,
            when: None,
        };
        let mut out = Expanded::default();
        expander.list(items, &place, &mut out).map(|()| out)
    };
    let main = list(&spec.actions, "actions")?;
    let plan = Plan {
        actions: main.actions,
        left_out: main.left_out,
        on_failure: list(&spec.on_failure, "onFailure")?.actions,
        timeout: spec.timeout,
        success_on: spec.success_on,
        precheck: spec.precheck,
    };
    validate_rendered(&plan.actions, &plan.on_failure, plan.success_on).map_err(|mut problem| {
        problem.subject = format!("Template/{name}: spec.{}", problem.subject);
        problem
    })?;
    within_bounds(&plan, &format!("Template/{name}: spec.actions"))?;
    written_twice::refuse(&plan.actions, machine, &format!("Template/{name}: spec.actions"))?;
    Ok(plan)
}

/// The exact size: a text takes more bytes in JSON than were counted while it was rendered.
fn within_bounds(plan: &Plan, path: &str) -> Result<(), Problem> {
    let json = serde_json::to_vec(&(&plan.actions, &plan.on_failure, &plan.left_out)).map_err(|error| {
        Problem::new(ErrorCode::Internal, format!("cannot write the list as JSON: {error}")).at(path)
    })?;
    let room = Room::whole();
    room.take(json.len(), path)
}

/// What expressions see as `machine`. Nothing secret is in it.
fn machine_scope(machine: &Machine) -> Value {
    let facts = machine.status.as_ref().and_then(|status| status.facts.as_ref());
    json!({
        "name": machine.metadata.name,
        "uid": machine.metadata.uid,
        "labels": machine.metadata.labels,
        "macs": machine.macs(),
        "facts": facts,
    })
}

#[cfg(test)]
mod tests;
