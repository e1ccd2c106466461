//! The operators' API as the lab uses it: over the coordinator's Unix socket, with waits that follow its watch.

use std::path::Path;
use std::time::Duration;

use futures::StreamExt;
use landfall_api::{EventRecord, Machine, Workflow};
use reqwest::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::LabError;

const ROOT: &str = "/apis/landfall.dev/v1alpha1";
/// A request that takes longer is answered with an error.
const REQUEST_LIMIT: Duration = Duration::from_secs(60);
/// Pause before a coordinator that does not answer (it may be down on purpose) is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(250);

/// A client.
#[derive(Debug, Clone)]
pub struct Api {
    client: reqwest::Client,
}

impl Api {
    /// A client of the socket at this path; nothing is sent yet.
    ///
    /// # Errors
    /// [`LabError::Api`] if the HTTP client cannot be made.
    pub fn new(socket: &Path) -> Result<Self, LabError> {
        // An earlier client may have installed it, which is good enough.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .unix_socket(socket)
            .build()
            .map_err(|e| failed("CONNECT", &socket.to_string_lossy(), &e))?;
        Ok(Self { client })
    }

    /// Sends a request and returns the answer's JSON.
    ///
    /// # Errors
    /// [`LabError::Api`] for anything but a 2xx.
    pub async fn request(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value, LabError> {
        let name = static_name(&method);
        let text = self.text(method, path, body).await?;
        if text.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).map_err(|e| not_json(name, path, &e, &text))
    }

    /// The answer's text.
    async fn text(&self, method: Method, path: &str, body: Option<&Value>) -> Result<String, LabError> {
        let name = static_name(&method);
        let mut request = self.client.request(method, format!("http://localhost{path}")).timeout(REQUEST_LIMIT);
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(|e| failed(name, path, &e))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|e| failed(name, path, &e))?;
        if !status.is_success() {
            return Err(LabError::Api { method: name, path: path.to_owned(), status: status.as_u16(), body: text });
        }
        Ok(text)
    }

    /// Applies a document.
    ///
    /// # Errors
    /// [`LabError::Api`], with the coordinator's reasons, if it is refused.
    pub async fn apply(&self, document: &Value) -> Result<Value, LabError> {
        self.request(Method::POST, &format!("{ROOT}/apply"), Some(document)).await
    }

    /// Starts a workflow of a template on a machine and returns its name.
    ///
    /// # Errors
    /// [`LabError::Api`] if it is refused.
    pub async fn provision(&self, machine: &str, template: &str, force: bool) -> Result<String, LabError> {
        let path = format!("{ROOT}/machines/{machine}/provision");
        let mut body = json!({ "template": template });
        if force {
            body["force"] = Value::Bool(true);
        }
        let workflow: Workflow = read(&path, self.request(Method::POST, &path, Some(&body)).await?)?;
        Ok(workflow.metadata.name)
    }

    /// A machine.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn machine(&self, name: &str) -> Result<Machine, LabError> {
        let path = format!("{ROOT}/machines/{name}");
        read(&path, self.request(Method::GET, &path, None).await?)
    }

    /// A workflow.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn workflow(&self, name: &str) -> Result<Workflow, LabError> {
        let path = format!("{ROOT}/workflows/{name}");
        read(&path, self.request(Method::GET, &path, None).await?)
    }

    /// What is known of a workflow: the agents' events and its own turning points.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn events(&self, workflow: &str) -> Result<Vec<EventRecord>, LabError> {
        let path = format!("{ROOT}/workflows/{workflow}/events");
        let text = self.text(Method::GET, &path, None).await?;
        let line = |line: &str| serde_json::from_str(line).map_err(|e| not_json("GET", &path, &e, line));
        text.lines().map(line).collect()
    }

    /// All machines.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn machines(&self) -> Result<Vec<Machine>, LabError> {
        let path = format!("{ROOT}/machines");
        let mut list = self.request(Method::GET, &path, None).await?;
        read(&path, list["items"].take())
    }

    /// Names of all workflows.
    ///
    /// # Errors
    /// [`LabError::Api`].
    pub async fn workflow_names(&self) -> Result<Vec<String>, LabError> {
        let list = self.request(Method::GET, &format!("{ROOT}/workflows"), None).await?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str().map(str::to_owned)).collect())
    }

    /// Waits until `wanted` holds for a workflow, following the coordinator's watch; a coordinator that is down
    /// meanwhile is waited for too.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the workflow as it was last seen.
    pub async fn wait_workflow(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Workflow) -> bool,
    ) -> Result<Workflow, LabError> {
        self.wait("workflows", name, what, limit, wanted).await
    }

    /// Waits until `wanted` holds for a machine; see [`Api::wait_workflow`].
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the machine as it was last seen.
    pub async fn wait_machine(
        &self,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&Machine) -> bool,
    ) -> Result<Machine, LabError> {
        self.wait("machines", name, what, limit, wanted).await
    }

    async fn wait<T: DeserializeOwned + Clone>(
        &self,
        plural: &str,
        name: &str,
        what: &str,
        limit: Duration,
        wanted: impl Fn(&T) -> bool,
    ) -> Result<T, LabError> {
        let mut last = Value::Null;
        let search = async {
            loop {
                // However a watch ends (coordinator killed, history expired), it is begun anew from the present state.
                match self.follow(plural, name, &wanted, &mut last).await {
                    Ok(found) => return found,
                    Err(_) => tokio::time::sleep(ASK_AGAIN).await,
                }
            }
        };
        match tokio::time::timeout(limit, search).await {
            Ok(found) => Ok(found),
            Err(_) => Err(LabError::Timeout {
                what: format!("{plural}/{name}: {what}"),
                limit,
                tail: vec![format!("last seen: {}", summary(&last))],
            }),
        }
    }

    async fn follow<T: DeserializeOwned>(
        &self,
        plural: &str,
        name: &str,
        wanted: &impl Fn(&T) -> bool,
        last: &mut Value,
    ) -> Result<T, LabError> {
        let path = format!("{ROOT}/{plural}");
        let list = self.request(Method::GET, &path, None).await?;
        let mut judge = |object: &Value| -> Result<Option<T>, LabError> {
            if object["metadata"]["name"] != name {
                return Ok(None);
            }
            *last = object.clone();
            let object: T = read(&path, object.clone())?;
            Ok(wanted(&object).then_some(object))
        };
        for item in list["items"].as_array().into_iter().flatten() {
            if let Some(found) = judge(item)? {
                return Ok(found);
            }
        }
        let from = &list["metadata"]["resourceVersion"];
        let from = from.as_str().map_or_else(|| from.to_string(), str::to_owned);
        let watch = format!("{path}?watch=true&resourceVersion={from}");
        let url = format!("http://localhost{watch}");
        let answer = self.client.get(url).send().await.map_err(|e| failed("GET", &watch, &e))?;
        let mut buffer = Vec::new();
        let mut body = answer.bytes_stream();
        while let Some(bytes) = body.next().await {
            buffer.extend_from_slice(&bytes.map_err(|e| failed("GET", &watch, &e))?);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let Ok(change) = serde_json::from_slice::<Value>(&line) else { continue };
                if let Some(found) = judge(&change["object"])? {
                    return Ok(found);
                }
            }
        }
        Err(LabError::Api { method: "GET", path: watch, status: 0, body: "the watch ended".into() })
    }
}

/// Whether an error is the coordinator's refusal with that status.
pub fn is_status(error: &LabError, status: StatusCode) -> bool {
    matches!(error, LabError::Api { status: found, .. } if *found == status.as_u16())
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

fn read<T: DeserializeOwned>(path: &str, value: Value) -> Result<T, LabError> {
    serde_json::from_value(value).map_err(|e| LabError::Api {
        method: "GET",
        path: path.to_owned(),
        status: 200,
        body: format!("the answer is not the document expected: {e}"),
    })
}

fn not_json(method: &'static str, path: &str, error: &serde_json::Error, text: &str) -> LabError {
    LabError::Api { method, path: path.to_owned(), status: 200, body: format!("not JSON ({error}): {text}") }
}

fn failed(method: &'static str, path: &str, error: &reqwest::Error) -> LabError {
    let mut body = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        body = format!("{body}: {cause}");
        source = cause.source();
    }
    LabError::Api { method, path: path.to_owned(), status: 0, body }
}

fn static_name(method: &Method) -> &'static str {
    match *method {
        Method::POST => "POST",
        Method::DELETE => "DELETE",
        _ => "GET",
    }
}
