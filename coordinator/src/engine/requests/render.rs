//! What a workflow would do, without one: the list of a template for a machine.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use landfall_api::{Document, ErrorCode, Kind, Machine, Problem, RenderRequest, RenderedList, Shared, Template};
use landfall_machine::life::{busy, may_begin};
use landfall_machine::{is_held, is_open};
use serde_json::Value;
use tokio::{sync::Semaphore, time::timeout};

use super::{Requests, refuse_if_held};
use crate::workflow::{Fragments, Plan, render};

/// Renderings at a time. Each is bounded; the other cores are the sessions'.
const RENDERINGS: usize = 2;

/// How long a person waits for the turn and for the list: a hundred times what the largest one takes.
const RENDERED_WITHIN: Duration = Duration::from_secs(30);

/// The most templates that one includes, also through others: as many as a list may have actions.
const MAX_FRAGMENTS: usize = 64;

/// Whose turn it is to have a list rendered. Clones share the turns.
#[derive(Clone)]
pub(in crate::engine) struct Renderings {
    pub(in crate::engine) turns: Arc<Semaphore>,
}

impl Renderings {
    pub(super) fn new() -> Self {
        Self { turns: Arc::new(Semaphore::new(RENDERINGS)) }
    }

    /// A template's list for a machine, made on a thread of its own: an expression may take longer than a session may wait.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidTemplate`; `LimitReached` if other renderings leave it no turn.
    pub(super) async fn plan(
        &self, machine: &Shared<Machine>, template: &Shared<Template>, stated: &BTreeMap<String, Value>,
        fragments: Fragments,
    ) -> Result<Plan, Problem> {
        let (machine, template, stated) = (machine.clone(), template.clone(), stated.clone());
        let at = format!("Template/{}", template.metadata.name);
        let turns = Arc::clone(&self.turns);
        let made = async move {
            // Held until the thread has ended, also where no one waits for it any more.
            let turn = turns.acquire_owned().await;
            let rendered = move || turn.map(|_turn| render(&machine, &template, &stated, &fragments));
            tokio::task::spawn_blocking(rendered).await
        };
        let problem = |code, message: String| Err(Problem::new(code, message).at(&at));
        match timeout(RENDERED_WITHIN, made).await {
            Ok(Ok(Ok(plan))) => plan,
            Ok(Ok(Err(error))) => problem(ErrorCode::Internal, format!("no list was rendered: {error}")),
            Ok(Err(error)) => problem(ErrorCode::Internal, format!("the rendering ended without a list: {error}")),
            Err(_) => problem(
                ErrorCode::LimitReached,
                format!("the list was not rendered within {} s", RENDERED_WITHIN.as_secs()),
            )
            .map_err(|problem| problem.hint("other large lists are being rendered; request it again")),
        }
    }
}

impl Requests {
    /// The list of a template, stored or not, for a machine in any state. No image's server is asked.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound`, `InvalidDocument` or `InvalidTemplate`.
    pub async fn render(&self, machine: &str, request: RenderRequest) -> Result<RenderedList, Problem> {
        let found = self.fleet.described(machine).await?;
        let template = match (request.template, request.document) {
            (Some(name), None) => self.template(&name).await?,
            (None, Some(document)) => written(document)?,
            _ => {
                let message = "a rendering needs template, the name of a stored one, or document";
                return Err(Problem::new(ErrorCode::InvalidDocument, message).hint("state exactly one of the two"));
            }
        };
        let fragments = self.fragments(&template).await?;
        let plan = self.renderings.plan(&found, &template, &request.parameters, fragments).await?;
        Ok(list(machine, &template.metadata.name, plan))
    }

    /// The list that [`Requests::provision`] would pin, after every check that it makes before a machine is involved: the
    /// images' servers are asked and the secrets are there. An agent that is connected and idle is asked whether each action
    /// would begin. Nothing is stored, and nothing is written.
    ///
    /// # Errors
    /// As [`Requests::provision`].
    pub async fn dry_run(
        &self, machine: &str, template: &str, parameters: &BTreeMap<String, Value>, force: bool,
    ) -> Result<RenderedList, Problem> {
        let found = self.fleet.described(machine).await?;
        may_begin(&found)?;
        // With force the request ends a hold, and the workflow that the hold kept from beginning; no other.
        if !(force && is_held(&found).is_some()) {
            self.is_free(&found).await?;
        }
        let plan = self.rendered(machine, template, parameters).await?;
        let said = self.check_on_machine(&found, &plan, force).await?;
        Ok(RenderedList { machine_check: Some(said), ..list(machine, template, plan) })
    }

    async fn is_free(&self, machine: &Machine) -> Result<(), Problem> {
        refuse_if_held(machine, false)?;
        match self.fleet.current_workflow(machine).await? {
            Some(run) if is_open(&run) => Err(busy(&machine.metadata.name, &run.metadata.name)),
            _ => Ok(()),
        }
    }

    /// The stored templates that one includes, also through others. One that does not exist is missing here too, which
    /// rendering refuses.
    ///
    /// # Errors
    /// [`Problem`] with code `InvalidTemplate` if there are more than [`MAX_FRAGMENTS`].
    pub(in crate::engine) async fn fragments(&self, template: &Template) -> Result<Fragments, Problem> {
        let mut found = Fragments::new();
        let mut wanted: Vec<String> = template.spec.includes().map(|(_, name)| name.to_owned()).collect();
        while let Some(name) = wanted.pop() {
            if found.contains_key(&name) {
                continue;
            }
            let Some(fragment) = self.fleet.store().template(&name).await? else { continue };
            wanted.extend(fragment.spec.includes().map(|(_, name)| name.to_owned()));
            found.insert(name, fragment);
            if found.len() > MAX_FRAGMENTS {
                let message = format!("more than {MAX_FRAGMENTS} templates are included");
                return Err(Problem::new(ErrorCode::InvalidTemplate, message)
                    .at(format!("Template/{}: spec.actions", template.metadata.name))
                    .hint("include fewer, or copy the actions"));
            }
        }
        Ok(found)
    }

    /// A stored template.
    pub(super) async fn template(&self, name: &str) -> Result<Shared<Template>, Problem> {
        match self.fleet.store().template(name).await? {
            Some(found) => Ok(found),
            None => Err(self.fleet.not_found(Kind::Template, name).await),
        }
    }
}

/// A template that came with the request.
fn written(tree: Value) -> Result<Shared<Template>, Problem> {
    let document = Document::from_value(tree)?;
    document.validate()?;
    match document {
        Document::Template(template) => Ok(template),
        other => {
            let message = format!("a {} cannot be rendered", other.kind());
            Err(Problem::new(ErrorCode::InvalidDocument, message).at("document.kind").hint("send a Template"))
        }
    }
}

fn list(machine: &str, template: &str, plan: Plan) -> RenderedList {
    RenderedList {
        machine: machine.to_owned(),
        template: template.to_owned(),
        actions: plan.actions,
        left_out: plan.left_out,
        on_failure: plan.on_failure,
        timeout: plan.timeout,
        success_on: plan.success_on,
        precheck: plan.precheck,
        machine_check: None,
    }
}
