//! The coordinator's routes as functions.

use std::path::Path;

use futures::StreamExt;
use landfall_api::{
    API_PATH, ApplyResponse, Document, ErrorCode, EventRecord, Kind, ListMetadata, LogRecord, NO_SUCH_ROUTE, Problem,
    SightingList, WatchType, Workflow,
};
use landfall_pin::{PinMismatch, rustls_error};
use reqwest::{Method, RequestBuilder, Response};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use tokio_util::codec::{FramedRead, LinesCodec};
use tokio_util::io::StreamReader;

use crate::connect::{chain, http_client, local_client};
use crate::scope::escaped;
use crate::{ClientError, Endpoint, Scope, Server};

/// The longest line of a stream that is read, bytes: a document has at most 1 MiB.
const MAX_LINE: usize = 4 << 20;
/// Documents of one answer of a list.
const PAGE: usize = 500;

/// A connection to a coordinator.
#[derive(Debug, Clone)]
pub struct Client {
    pub(crate) http: reqwest::Client,
    pub(crate) base: String,
    server: Server,
}

/// A continuing stream of JSON lines.
pub type Lines<T> = futures::stream::BoxStream<'static, Result<T, ClientError>>;

/// One line of a watch, its document still a tree.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Change {
    /// What happened.
    #[serde(rename = "type")]
    pub kind: WatchType,
    /// The revision after it.
    pub resource_version: u64,
    /// The document, where the change has one.
    #[serde(default)]
    pub object: Option<Value>,
    /// Why the watch ends, where it does.
    #[serde(default)]
    pub problem: Option<Problem>,
}

/// The ports that netbooted and were not served.
///
/// # Errors
/// [`ClientError`].
pub async fn sightings(client: &Client) -> Result<SightingList, ClientError> {
    client.answer(client.request(Method::GET, "sightings")).await
}

impl Client {
    /// A client of that coordinator; a name is resolved. Of several, each is asked whether it is ready, until one is.
    ///
    /// # Errors
    /// [`ClientError`] for files, names and credentials that cannot be used.
    pub async fn new(endpoint: &Endpoint) -> Result<Self, ClientError> {
        let (http, base) = http_client(endpoint).await?;
        Ok(Self { http, base, server: endpoint.server.clone() })
    }

    /// A client of the socket on the coordinator's own host; nothing is sent yet.
    ///
    /// # Errors
    /// [`ClientError::Local`] if the HTTP client cannot be made.
    pub fn local(socket: &Path) -> Result<Self, ClientError> {
        let (http, base) = local_client(socket)?;
        Ok(Self { http, base, server: Server::Unix(socket.to_owned()) })
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http.request(method, format!("{}{API_PATH}/{path}", self.base))
    }

    /// Documents, and the revision to watch from.
    pub async fn list(&self, scope: &Scope) -> Result<(Vec<Document>, u64), ClientError> {
        let mut documents = Vec::new();
        let revision = self
            .pages(scope, |tree| {
                documents.push(document(tree)?);
                Ok(())
            })
            .await?;
        Ok((documents, revision))
    }

    /// The names of a kind's documents, for suggestions; other fields are not parsed.
    pub async fn names(&self, kind: Kind) -> Result<Vec<String>, ClientError> {
        let mut names = Vec::new();
        let note = |document: Value| {
            names.extend(document.pointer("/metadata/name").and_then(Value::as_str).map(str::to_owned));
            Ok(())
        };
        self.pages(&Scope::of(kind, None), note).await?;
        Ok(names)
    }

    /// Reads a list page by page: neither side holds the JSON of a whole kind. Answers the revision to watch from.
    async fn pages(
        &self, scope: &Scope, mut each: impl FnMut(Value) -> Result<(), ClientError>,
    ) -> Result<u64, ClientError> {
        #[derive(Deserialize)]
        struct Listed {
            items: Vec<Value>,
            metadata: ListMetadata,
        }
        let first = format!("{}?limit={PAGE}{}", scope.kind.plural(), scope.query());
        let mut path = first.clone();
        loop {
            let listed: Listed = self.answer(self.request(Method::GET, &path)).await?;
            listed.items.into_iter().try_for_each(&mut each)?;
            match listed.metadata.next {
                Some(next) => path = format!("{first}&continue={}", escaped(&next)),
                None => return Ok(listed.metadata.resource_version),
            }
        }
    }

    /// The nearest existing name, for a failure that a document does not exist and that names none.
    async fn hinted(&self, kind: Kind, name: &str, failure: ClientError) -> ClientError {
        let ClientError::Problem(mut problem) = failure else { return failure };
        let named = problem.hint.contains("did you mean");
        if problem.code == ErrorCode::NotFound && !named && problem.message.contains(&format!("\"{name}\"")) {
            // This is only a hint: if it is not available, that is not a failure.
            let names = self.names(kind).await.unwrap_or_default();
            // If the document exists, another part of it is missing.
            let known: Vec<&str> =
                names.iter().map(String::as_str).filter(|_| !names.iter().any(|n| n == name)).collect();
            if let Some(nearest) = landfall_api::nearest(name, &known) {
                problem.hint = format!("did you mean {nearest}? {}", problem.hint).trim_end().to_owned();
            }
        }
        ClientError::Problem(problem)
    }

    /// An answer, or its failure with a hint.
    pub(crate) async fn or_hint<T>(
        &self, kind: Kind, name: &str, answer: impl Future<Output = Result<T, ClientError>>,
    ) -> Result<T, ClientError> {
        match answer.await {
            Ok(answer) => Ok(answer),
            Err(failure) => Err(self.hinted(kind, name, failure).await),
        }
    }

    /// One document.
    pub async fn get(&self, kind: Kind, name: &str) -> Result<Document, ClientError> {
        let path = format!("{}/{}", kind.plural(), segment(name)?);
        document(self.or_hint(kind, name, self.answer(self.request(Method::GET, &path))).await?)
    }

    /// Deletes a document and answers what it was.
    pub async fn delete(&self, kind: Kind, name: &str) -> Result<Document, ClientError> {
        let path = format!("{}/{}", kind.plural(), segment(name)?);
        document(self.or_hint(kind, name, self.answer(self.request(Method::DELETE, &path))).await?)
    }

    /// Requests an operation on a document: `POST …/machines/node-1/adopt`.
    pub async fn act(&self, kind: Kind, name: &str, verb: &str, body: Option<&Value>) -> Result<Value, ClientError> {
        let request = self.request(Method::POST, &format!("{}/{}/{verb}", kind.plural(), segment(name)?));
        let request = match body {
            Some(body) => request.json(body),
            None => request,
        };
        self.or_hint(kind, name, self.answer(request)).await
    }

    /// Reads a path of the API; returns each line or each item of the response.
    pub async fn rows(&self, path: &str) -> Result<Vec<Value>, ClientError> {
        let response = self.send(self.request(Method::GET, path)).await?;
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        let mut out = Vec::new();
        for value in serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>() {
            match value.map_err(|e| self.not_understood(&e))? {
                Value::Object(mut list) if list.get("items").is_some_and(Value::is_array) => {
                    if let Some(Value::Array(items)) = list.remove("items") {
                        out.extend(items);
                    }
                }
                Value::Array(items) => out.extend(items),
                one => out.push(one),
            }
        }
        Ok(out)
    }

    /// The changes of a document, oldest first; only the newest `limit` changes if a limit is given.
    pub async fn history(&self, kind: Kind, name: &str, limit: Option<usize>) -> Result<Vec<Value>, ClientError> {
        let query = limit.map(|limit| format!("?limit={limit}")).unwrap_or_default();
        self.or_hint(kind, name, self.rows(&format!("{}/{}/history{query}", kind.plural(), segment(name)?))).await
    }

    /// Applies a document; with `dry_run` it is only checked.
    pub async fn apply(&self, document: &impl Serialize, dry_run: bool) -> Result<ApplyResponse<Value>, ClientError> {
        let path = if dry_run { "apply?dryRun=true" } else { "apply" };
        self.answer(self.request(Method::POST, path).json(document)).await
    }

    /// Changes after a revision.
    pub async fn watch(&self, scope: &Scope, from: u64) -> Result<Lines<Change>, ClientError> {
        let path = format!("{}?watch=true&resourceVersion={from}{}", scope.kind.plural(), scope.query());
        self.lines(self.request(Method::GET, &path)).await
    }

    /// What happened to a machine or a workflow, oldest first.
    pub async fn events(&self, kind: Kind, name: &str) -> Result<Lines<EventRecord>, ClientError> {
        let path = format!("{}/{}/events", kind.plural(), segment(name)?);
        self.or_hint(kind, name, self.lines(self.request(Method::GET, &path))).await
    }

    /// Log lines of a workflow.
    pub async fn logs(&self, workflow: &str, query: &[(&str, String)]) -> Result<Lines<LogRecord>, ClientError> {
        let query: Vec<String> = query.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let path = format!("workflows/{}/logs?{}", segment(workflow)?, query.join("&"));
        self.or_hint(Kind::Workflow, workflow, self.lines(self.request(Method::GET, &path))).await
    }

    pub(crate) async fn answer<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, ClientError> {
        let response = self.send(request).await?;
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        serde_json::from_slice(&bytes).map_err(|e| self.not_understood(&e))
    }

    pub(crate) async fn lines<T: DeserializeOwned + Send + 'static>(
        &self, request: RequestBuilder,
    ) -> Result<Lines<T>, ClientError> {
        let response = self.send(request).await?;
        let client = self.clone();
        let bytes = response.bytes_stream().map(|chunk| chunk.map_err(std::io::Error::other));
        let lines = FramedRead::new(StreamReader::new(bytes), LinesCodec::new_with_max_length(MAX_LINE));
        let parsed = lines.filter_map(move |line| {
            std::future::ready(match line {
                // The coordinator answers with an empty body.
                Ok(line) if line.is_empty() => None,
                Ok(line) => Some(serde_json::from_str(&line).map_err(|e| client.not_understood(&e))),
                Err(error) => Some(Err(client.unreachable(&error))),
            })
        });
        Ok(parsed.boxed())
    }

    pub(crate) async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|e| self.unreachable(&e))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let bytes = response.bytes().await.map_err(|e| self.unreachable(&e))?;
        Err(match serde_json::from_slice::<Problem>(&bytes) {
            Ok(problem) if problem.code == ErrorCode::NotFound && problem.message == NO_SUCH_ROUTE => older(&problem),
            Ok(problem) => problem.into(),
            Err(_) => {
                let said = String::from_utf8_lossy(&bytes[..bytes.len().min(200)]).trim().to_owned();
                Problem::new(ErrorCode::Internal, format!("{} answered {status} {said}", self.server).trim_end())
                    .hint("check that this address is a Landfall coordinator")
                    .into()
            }
        })
    }

    pub(crate) fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> ClientError {
        let causes: Vec<String> =
            chain(error).into_iter().filter(|said| !said.starts_with("error sending request")).collect();
        let said = causes.join(" ");
        let hint = match &self.server {
            Server::Unix(path) if said.contains("ermission denied") => {
                format!("run this as root or as the coordinator's user, who own {}", path.display())
            }
            Server::Unix(_) => {
                "check that the coordinator is running on this host; if it runs elsewhere, or with another data_dir, \
                    use --server or LANDFALL_SERVER"
                    .into()
            }
            Server::Https { .. } if said.contains("UnknownIssuer") => {
                "the server's certificate is not signed by the stated CA; use ca.pem from this coordinator's admin/"
                    .into()
            }
            Server::Https { .. } if rustls_error(error).and_then(PinMismatch::of).is_some() => {
                "another coordinator answers at this address, or its CA has changed; compare with --ca-pin, or with \
                    caPin of the context"
                    .into()
            }
            Server::Https { .. } if said.contains("ertificate") => {
                "check that this is the coordinator's TLS port, and that --ca, --cert and --key are from its admin/"
                    .into()
            }
            Server::Https { .. } => {
                "check that the coordinator is running and that no firewall blocks its TLS port".into()
            }
        };
        ClientError::Unreachable { what: format!("cannot reach the coordinator at {}", self.server), causes, hint }
    }

    fn not_understood(&self, error: &serde_json::Error) -> ClientError {
        skew(format!("{} sent a response that this command does not understand", self.server), error.to_string())
    }
}

/// A name as part of a path. An invalid name is refused here, because a document with such a name cannot exist.
pub(crate) fn segment(name: &str) -> Result<&str, ClientError> {
    if landfall_api::is_dns_label(name) {
        return Ok(name);
    }
    Err(ClientError::Usage(format!("\"{name}\" is not a valid name: use only lower-case letters, digits and \"-\"")))
}

/// A document of an answer.
///
/// # Errors
/// [`ClientError::Problem`] if it is none that this library understands.
pub fn document(tree: Value) -> Result<Document, ClientError> {
    Document::from_value(tree).map_err(skewed)
}

/// A workflow of an answer.
///
/// # Errors
/// As [`document`].
pub fn workflow(tree: Value) -> Result<Workflow, ClientError> {
    match document(tree)? {
        Document::Workflow(workflow) => Ok(workflow.into_inner()),
        other => Err(skewed(Problem::new(
            ErrorCode::Internal,
            format!("the coordinator sent a {} instead of a workflow", other.kind()),
        ))),
    }
}

/// A route that this command uses exists in newer coordinators only.
fn older(answer: &Problem) -> ClientError {
    let message = format!("this coordinator is older than this landfall {}", env!("CARGO_PKG_VERSION"));
    let mut problem = Problem::new(ErrorCode::VersionSkew, message).hint("upgrade the coordinator first");
    problem.causes.push(format!("{} {}", answer.message, answer.subject).trim_end().to_owned());
    problem.into()
}

/// A document that does not parse here comes from a newer coordinator.
fn skewed(problem: Problem) -> ClientError {
    skew("the coordinator sent a document that this command does not understand".into(), problem.to_string())
}

fn skew(what: String, cause: String) -> ClientError {
    let mut problem =
        Problem::new(ErrorCode::VersionSkew, what).hint("use the landfall command of the coordinator's version");
    problem.causes.push(cause);
    problem.into()
}
