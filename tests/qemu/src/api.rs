//! The operators' API as the lab uses it: the operator's own client over the coordinator's Unix socket, with waits that
//! follow its watch.

use std::{path::Path, time::Duration};

use futures::{StreamExt, TryStreamExt};
use landfall_api::{Document, ErrorCode, EventRecord, Kind, Machine, Problem, TokenRequest, Workflow};
use landfall_client::{Client, ClientError, Scope, document, workflow};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::LabError;

/// A request that takes longer is answered with an error.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Pause before a coordinator that does not answer (it may be down on purpose) is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A client.
#[derive(Debug, Clone)]
pub struct Api {
    client: Client,
}

impl Api {
    /// A client of the socket at this path; nothing is sent yet.
    ///
    /// # Errors
    /// [`LabError::Api`] if the HTTP client cannot be made.
    pub fn new(socket: &Path) -> Result<Self, LabError> {
        // An earlier client may have installed it, which is good enough.
        let _ = rustls::crypto::ring::default_provider().install_default();
        Ok(Self { client: Client::local(socket)? })
    }

    /// Applies a document.
    ///
    /// # Errors
    /// [`LabError::Api`], with the coordinator's reasons, if it is refused.
    pub async fn apply(&self, document: &Value) -> Result<Value, LabError> {
        Ok(answered(self.client.apply(document, false)).await?.object)
    }

    /// Starts a workflow of a template on a machine and returns its name.
    ///
    /// # Errors
    /// [`LabError::Api`] if it is refused.
    pub async fn provision(&self, machine: &str, template: &str, force: bool) -> Result<String, LabError> {
        let mut body = json!({ "template": template });
        if force {
            body["force"] = Value::Bool(true);
        }
        let answer = answered(self.client.act(Kind::Machine, machine, "provision", Some(&body))).await?;
        Ok(workflow(answer)?.metadata.name)
    }

    /// Makes a bearer token; the answer holds its value.
    ///
    /// # Errors
    /// [`LabError::Api`] if it is refused.
    pub async fn create_token(&self, request: &TokenRequest) -> Result<Value, LabError> {
        answered(self.client.create_token(request)).await
    }

    /// A machine.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn machine(&self, name: &str) -> Result<Machine, LabError> {
        typed(&answered(self.client.get(Kind::Machine, name)).await?)
    }

    /// A workflow.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn workflow(&self, name: &str) -> Result<Workflow, LabError> {
        typed(&answered(self.client.get(Kind::Workflow, name)).await?)
    }

    /// What is known of a workflow: the agents' events and its own turning points.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn events(&self, workflow: &str) -> Result<Vec<EventRecord>, LabError> {
        answered(async { self.client.events(Kind::Workflow, workflow).await?.try_collect().await }).await
    }

    /// All machines.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn machines(&self) -> Result<Vec<Machine>, LabError> {
        answered(self.client.list(&Scope::of(Kind::Machine, None))).await?.0.iter().map(typed).collect()
    }

    /// Names of all workflows.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn workflow_names(&self) -> Result<Vec<String>, LabError> {
        answered(self.client.names(Kind::Workflow)).await
    }

    /// Waits until `wanted` holds for a workflow, following the coordinator's watch; a coordinator that is down
    /// meanwhile is waited for too.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the workflow as it was last seen.
    pub async fn wait_workflow(
        &self, name: &str, what: &str, limit: Duration, wanted: impl Fn(&Workflow) -> bool,
    ) -> Result<Workflow, LabError> {
        self.wait(Kind::Workflow, name, what, limit, wanted).await
    }

    /// Waits until `wanted` holds for a machine; see [`Api::wait_workflow`].
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the machine as it was last seen.
    pub async fn wait_machine(
        &self, name: &str, what: &str, limit: Duration, wanted: impl Fn(&Machine) -> bool,
    ) -> Result<Machine, LabError> {
        self.wait(Kind::Machine, name, what, limit, wanted).await
    }

    async fn wait<T: DeserializeOwned>(
        &self, kind: Kind, name: &str, what: &str, limit: Duration, wanted: impl Fn(&T) -> bool,
    ) -> Result<T, LabError> {
        let mut last = Value::Null;
        let search = async {
            loop {
                // However a watch ends (coordinator killed, history expired), it is begun anew from the present state.
                match self.follow(kind, name, &wanted, &mut last).await {
                    Ok(Some(found)) => return found,
                    Ok(None) | Err(_) => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        match tokio::time::timeout(limit, search).await {
            Ok(found) => Ok(found),
            Err(_) => Err(LabError::Timeout {
                what: format!("{}/{name}: {what}", kind.plural()),
                limit,
                tail: vec![format!("last seen: {}", summary(&last))],
            }),
        }
    }

    /// The document once it is as wanted; `None` if the watch ended before.
    async fn follow<T: DeserializeOwned>(
        &self, kind: Kind, name: &str, wanted: &impl Fn(&T) -> bool, last: &mut Value,
    ) -> Result<Option<T>, LabError> {
        let mut judge = |document: &Document| -> Result<Option<T>, LabError> {
            *last = tree(document)?;
            let object: T = typed(document)?;
            Ok(wanted(&object).then_some(object))
        };
        let scope = Scope::one(kind, name);
        let (documents, revision) = answered(self.client.list(&scope)).await?;
        for found in &documents {
            if let Some(found) = judge(found)? {
                return Ok(Some(found));
            }
        }
        let mut changes = self.client.watch(&scope, revision).await?;
        while let Some(change) = changes.next().await {
            let Some(object) = change?.object else { continue };
            if let Some(found) = judge(&document(object)?)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

/// An answer within [`REQUEST_LIMIT`].
async fn answered<T>(answer: impl Future<Output = Result<T, ClientError>>) -> Result<T, LabError> {
    match tokio::time::timeout(REQUEST_LIMIT, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(LabError::Timeout {
            what: "an answer of the coordinator's API".into(),
            limit: REQUEST_LIMIT,
            tail: Vec::new(),
        }),
    }
}

/// A document as the kind it is.
fn typed<T: DeserializeOwned>(document: &Document) -> Result<T, LabError> {
    serde_json::from_value(tree(document)?).map_err(|error| not_expected(&error))
}

fn tree(document: &Document) -> Result<Value, LabError> {
    serde_json::to_value(document).map_err(|error| not_expected(&error))
}

fn not_expected(error: &serde_json::Error) -> LabError {
    let problem = Problem::new(ErrorCode::Internal, "the answer is not the document expected").caused_by(error);
    ClientError::from(problem).into()
}

/// The part of a document that shows its state.
fn summary(object: &Value) -> String {
    let status = &object["status"];
    let actions: Vec<Value> = status["actions"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|a| json!([a["action"]["name"], a["state"], a["attempt"], a["problem"], a["progress"]]))
        .collect();
    let seen = json!({
        "phase": status["phase"], "problem": status["problem"], "conditions": status["conditions"], "actions": actions,
    });
    seen.to_string()
}
