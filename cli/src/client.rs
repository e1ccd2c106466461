//! The coordinator's routes as functions.

use std::collections::BTreeMap;

use futures::StreamExt;
use landfall_api::{
    API_PATH, ApplyResponse, Document, ErrorCode, EventRecord, Kind, ListMetadata, LogRecord, Problem,
    ProvisionRequest, WatchType, Workflow,
};
use reqwest::{Method, RequestBuilder, Response};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::{
    codec::{FramedRead, LinesCodec},
    io::StreamReader,
};

use crate::{
    args::Connection,
    failure::Failure,
    server::Server,
    tls::{chain, http_client},
};

/// The longest line of a stream that is read, bytes: a document has at most 1 MiB.
const MAX_LINE: usize = 4 << 20;

/// A connection to a coordinator.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    base: String,
    server: Server,
}

/// Lines of JSON that go on.
pub(crate) type Lines<T> = futures::stream::BoxStream<'static, Result<T, Failure>>;

/// One line of a watch, its document still a tree.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Change {
    #[serde(rename = "type")]
    pub(crate) kind: WatchType,
    pub(crate) resource_version: u64,
    #[serde(default)]
    pub(crate) object: Option<Value>,
    #[serde(default)]
    pub(crate) problem: Option<Problem>,
}

impl Client {
    pub(crate) async fn new(connection: &Connection) -> Result<Self, Failure> {
        let (http, base) = http_client(connection).await?;
        Ok(Self { http, base, server: connection.server.clone() })
    }

    fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{API_PATH}/{path}", self.base))
    }

    /// Every document of a kind, and the revision to watch from.
    pub(crate) async fn list(&self, kind: Kind) -> Result<(Vec<Document>, u64), Failure> {
        #[derive(Deserialize)]
        struct Listed {
            items: Vec<Value>,
            metadata: ListMetadata,
        }
        let listed: Listed = self.answer(self.request(Method::GET, kind.plural())).await?;
        let items = listed.items.into_iter().map(Document::from_value).collect::<Result<_, _>>().map_err(skewed)?;
        Ok((items, listed.metadata.resource_version))
    }

    pub(crate) async fn get(&self, kind: Kind, name: &str) -> Result<Document, Failure> {
        let path = format!("{}/{}", kind.plural(), segment(name)?);
        document(self.answer(self.request(Method::GET, &path)).await?)
    }

    pub(crate) async fn delete(&self, kind: Kind, name: &str) -> Result<Document, Failure> {
        let path = format!("{}/{}", kind.plural(), segment(name)?);
        document(self.answer(self.request(Method::DELETE, &path)).await?)
    }

    pub(crate) async fn apply(&self, document: &Document, dry_run: bool) -> Result<ApplyResponse<Value>, Failure> {
        let path = if dry_run { "apply?dryRun=true" } else { "apply" };
        self.answer(self.request(Method::POST, path).json(document)).await
    }

    pub(crate) async fn provision(
        &self,
        machine: &str,
        template: &str,
        parameters: BTreeMap<String, Value>,
        force: bool,
    ) -> Result<Workflow, Failure> {
        let body = ProvisionRequest { template: template.to_owned(), parameters, force };
        let path = format!("machines/{}/provision", segment(machine)?);
        workflow(self.answer(self.request(Method::POST, &path).json(&body)).await?)
    }

    pub(crate) async fn cancel(&self, name: &str) -> Result<Workflow, Failure> {
        let path = format!("workflows/{}/cancel", segment(name)?);
        workflow(self.answer(self.request(Method::POST, &path)).await?)
    }

    /// Changes after a revision.
    pub(crate) async fn watch(&self, kind: Kind, from: u64) -> Result<Lines<Change>, Failure> {
        let path = format!("{}?watch=true&resourceVersion={from}", kind.plural());
        self.lines(self.request(Method::GET, &path)).await
    }

    pub(crate) async fn events(&self, kind: Kind, name: &str) -> Result<Lines<EventRecord>, Failure> {
        let path = format!("{}/{}/events", kind.plural(), segment(name)?);
        self.lines(self.request(Method::GET, &path)).await
    }

    pub(crate) async fn logs(&self, workflow: &str, follow: bool) -> Result<Lines<LogRecord>, Failure> {
        let path = format!("workflows/{}/logs?follow={follow}", segment(workflow)?);
        self.lines(self.request(Method::GET, &path)).await
    }

    async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, Failure> {
        let response = self.send(request).await?;
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        serde_json::from_slice(&bytes).map_err(|e| self.not_understood(&e))
    }

    async fn lines<T: DeserializeOwned + Send + 'static>(&self, request: RequestBuilder) -> Result<Lines<T>, Failure> {
        let response = self.send(request).await?;
        let client = self.clone();
        let bytes = response.bytes_stream().map(|chunk| chunk.map_err(std::io::Error::other));
        let lines = FramedRead::new(StreamReader::new(bytes), LinesCodec::new_with_max_length(MAX_LINE));
        let parsed = lines.map(move |line| match line {
            Ok(line) => serde_json::from_str(&line).map_err(|e| client.not_understood(&e)),
            Err(error) => Err(client.unreachable(&error)),
        });
        Ok(parsed.boxed())
    }

    async fn send(&self, request: RequestBuilder) -> Result<Response, Failure> {
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        Err(match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) => problem.into(),
            Err(_) => {
                let said = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).trim().to_owned();
                Problem::new(ErrorCode::Internal, format!("{} answered {status} {said}", self.server).trim_end())
                    .hint("is that address a Landfall coordinator?")
                    .into()
            }
        })
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> Failure {
        let causes: Vec<String> =
            chain(error).into_iter().filter(|said| !said.starts_with("error sending request")).collect();
        let said = causes.join(" ");
        let hint = match &self.server {
            Server::Unix(path) if said.contains("ermission denied") => {
                format!("run this as root or as the coordinator's user: {} is theirs", path.display())
            }
            Server::Unix(_) => {
                "is the coordinator running on this host? If it runs elsewhere, or with another data_dir, \
                                say where: --server or LANDFALL_SERVER"
                    .into()
            }
            Server::Https { .. } if said.contains("UnknownIssuer") => {
                "the server's certificate is not signed by the CA given; take ca.pem from this coordinator's admin/"
                    .into()
            }
            Server::Https { .. } if said.contains("ertificate") => {
                "is that port the coordinator's TLS port, and are --ca, --cert and --key from its admin/?".into()
            }
            Server::Https { .. } => "is the coordinator running, and does a firewall let its TLS port through?".into(),
        };
        Failure::Unreachable { what: format!("the coordinator at {} cannot be reached", self.server), causes, hint }
    }

    fn not_understood(&self, error: &serde_json::Error) -> Failure {
        skew(format!("{} answered what this command does not understand", self.server), error.to_string())
    }
}

/// A name as part of a path. What is no name is refused here: escaping it would only ask for what cannot exist.
fn segment(name: &str) -> Result<&str, Failure> {
    if landfall_api::is_dns_label(name) {
        return Ok(name);
    }
    Err(Failure::Usage(format!("\"{name}\" is no name: names have lower-case letters, digits and \"-\" only")))
}

fn document(tree: Value) -> Result<Document, Failure> {
    Document::from_value(tree).map_err(skewed)
}

fn workflow(tree: Value) -> Result<Workflow, Failure> {
    match document(tree)? {
        Document::Workflow(workflow) => Ok(*workflow),
        other => {
            Err(skewed(Problem::new(ErrorCode::Internal, format!("a workflow was expected, not a {}", other.kind()))))
        }
    }
}

/// A document of the coordinator's that does not parse here is a newer coordinator's.
fn skewed(problem: Problem) -> Failure {
    skew("the coordinator answered a document this command does not understand".into(), problem.to_string())
}

fn skew(what: String, cause: String) -> Failure {
    let mut problem =
        Problem::new(ErrorCode::VersionSkew, what).hint("use a landfall of the coordinator's own version");
    problem.causes.push(cause);
    problem.into()
}
