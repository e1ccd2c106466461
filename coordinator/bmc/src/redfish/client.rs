//! HTTP to one BMC: bounded waits and answers, a session where it gives one, entity tags both ways.

use landfall_api::BmcSpec;
use reqwest::header::{ETAG, IF_MATCH, LOCATION};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::field::{link, names_message, own_path, said, text};
use crate::Account;
use crate::error::BmcError;
use crate::http::{self, Http};

/// Redirects of one request: to the path with a slash behind it, as a rule.
const MAX_REDIRECTS: usize = 3;
/// Where Redfish begins (DSP0266, 6.2).
const ROOT: &str = "/redfish/v1/";

/// An answer with success.
#[derive(Debug)]
pub(super) struct Answer {
    /// The body; null where there is none.
    pub(super) body: Value,
    /// The entity tag, for the next change.
    pub(super) etag: Option<String>,
}

/// How requests are signed.
enum Login {
    /// The service's root alone may be read.
    None,
    /// By a session.
    Session {
        token: String,
        /// Where it is ended.
        path: Option<String>,
    },
    /// By name and password in every request: the BMC has no sessions.
    Basic,
}

/// What came back, whatever its status.
struct Raw {
    status: StatusCode,
    body: Value,
    is_json: bool,
    etag: Option<String>,
    token: Option<String>,
    location: Option<String>,
}

/// A connection to one BMC.
pub(super) struct Client {
    http: Http,
    account: Account,
    login: Login,
    sessions: Option<String>,
}

impl Client {
    /// Reads the service's root, then logs in; the root's content with it.
    pub(super) async fn connect(spec: &BmcSpec, account: Account) -> Result<(Self, Value), BmcError> {
        let mut client = Self { http: Http::new(spec)?, account, login: Login::None, sessions: None };
        let root = client.get(ROOT).await?.body;
        if text(&root, &["RedfishVersion"]).is_none() && link(&root, &["Systems"]).is_none() {
            return Err(client.invalid(ROOT, "it is not the root of a Redfish service"));
        }
        client.sessions = link(&root, &["Links", "Sessions"])
            .or_else(|| Some(format!("{}/Sessions", link(&root, &["SessionService"])?.trim_end_matches('/'))));
        client.log_in().await?;
        Ok((client, root))
    }

    /// One login. A refusal is final: another try with the same account may lock it out.
    async fn log_in(&mut self) -> Result<(), BmcError> {
        let Some(path) = self.sessions.clone() else {
            self.login = Login::Basic;
            return Ok(());
        };
        self.login = Login::None;
        let body = json!({"UserName": self.account.username, "Password": self.account.password});
        let raw = self.send(Method::POST, &path, Some(&body), None).await?;
        match (raw.status, raw.token) {
            (status, Some(token)) if status.is_success() => {
                let path = raw.location.or_else(|| link(&raw.body, &[]));
                self.login = Login::Session { token, path };
                Ok(())
            }
            // No sessions here, or none left.
            (StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED, _) => {
                self.login = Login::Basic;
                Ok(())
            }
            _ if names_message(&raw.body, "LimitExceeded") => {
                tracing::info!(bmc = self.base(), "the BMC has no session left; every request carries the account");
                self.login = Login::Basic;
                Ok(())
            }
            (status, None) if status.is_success() => Err(self.invalid(&path, "the new session has no X-Auth-Token")),
            // Some refuse an account with 400 (iLO 4 and 5: UnauthorizedLoginAttempt).
            (StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _) => Err(self.refused(&path)),
            _ => Err(self.failed(&path, raw.status, &raw.body)),
        }
    }

    /// Reads a resource.
    pub(super) async fn get(&self, path: &str) -> Result<Answer, BmcError> {
        let mut at = path.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            let raw = self.request(Method::GET, &at, None, None).await?;
            match raw.location.filter(|_| raw.status.is_redirection()) {
                Some(next) => at = next,
                None if raw.status.is_success() && !raw.is_json => return Err(self.invalid(&at, "it is not JSON")),
                None if raw.status.is_success() => return Ok(Answer { body: raw.body, etag: raw.etag }),
                None => return Err(self.failed(&at, raw.status, &raw.body)),
            }
        }
        Err(self.invalid(path, "it is redirected without end"))
    }

    /// Changes a resource that was read with this tag. Some BMCs demand a tag, some refuse a weak one, some every tag but `*`: each is
    /// tried once.
    pub(super) async fn patch(&self, path: &str, body: &Value, etag: Option<&str>) -> Result<(), BmcError> {
        let strong = etag.and_then(|tag| tag.strip_prefix("W/"));
        let mut raw = self.request(Method::PATCH, path, Some(body), etag).await?;
        for tag in strong.into_iter().chain(["*"]) {
            if !matches!(raw.status, StatusCode::PRECONDITION_FAILED | StatusCode::PRECONDITION_REQUIRED) {
                break;
            }
            raw = self.request(Method::PATCH, path, Some(body), Some(tag)).await?;
        }
        self.succeeded(path, &raw)
    }

    /// Asks for an action; the path of the task that performs it, if it takes a while.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Option<String>, BmcError> {
        let raw = self.request(Method::POST, path, Some(body), None).await?;
        self.succeeded(path, &raw)?;
        let task = link(&raw.body, &[]).or(raw.location);
        Ok(task.filter(|_| raw.status == StatusCode::ACCEPTED))
    }

    /// Ends the session.
    pub(super) async fn close(&mut self) {
        if let Login::Session { path: Some(path), .. } = &self.login {
            let path = path.clone();
            if let Err(error) = self.send(Method::DELETE, &path, None, None).await {
                tracing::debug!(%error, "the BMC's session stays open until the BMC ends it");
            }
        }
        self.login = Login::None;
    }

    fn succeeded(&self, path: &str, raw: &Raw) -> Result<(), BmcError> {
        if raw.status.is_success() { Ok(()) } else { Err(self.failed(path, raw.status, &raw.body)) }
    }

    /// A request with the login. Nothing logs in again here: the caller counts logins.
    async fn request(
        &self, method: Method, path: &str, body: Option<&Value>, etag: Option<&str>,
    ) -> Result<Raw, BmcError> {
        let raw = self.send(method, path, body, etag).await?;
        match (raw.status, &self.login) {
            (StatusCode::UNAUTHORIZED, Login::Session { .. }) => Err(BmcError::SessionEnded { url: self.url(path) }),
            (StatusCode::UNAUTHORIZED, Login::Basic) => Err(self.refused(path)),
            (StatusCode::FORBIDDEN, Login::Session { .. } | Login::Basic) => Err(BmcError::Forbidden {
                url: self.url(path),
                username: self.account.username.clone(),
                said: said(&raw.body),
            }),
            _ => Ok(raw),
        }
    }

    async fn send(
        &self, method: Method, path: &str, body: Option<&Value>, etag: Option<&str>,
    ) -> Result<Raw, BmcError> {
        let url = self.url(path);
        let mut request = self.http.request(method, &url).header("OData-Version", "4.0");
        request = match &self.login {
            Login::None => request,
            Login::Session { token, .. } => request.header("X-Auth-Token", token),
            Login::Basic => request.basic_auth(&self.account.username, Some(&self.account.password)),
        };
        if let Some(body) = body {
            request = request.json(body);
        }
        if let Some(etag) = etag {
            request = request.header(IF_MATCH, etag);
        }
        let http::Answer { status, headers, body } = self.http.send(request, &url).await?;
        let header = |name: &str| headers.get(name)?.to_str().ok().map(str::to_owned);
        let location = header(LOCATION.as_str()).and_then(|written| own_path(&written));
        let read = serde_json::from_slice::<Value>(&body);
        let is_json = read.is_ok();
        let body = read.unwrap_or_default();
        // Some send it in the body alone.
        let etag = header(ETAG.as_str()).or_else(|| text(&body, &["@odata.etag"]));
        Ok(Raw { status, body, is_json, etag, token: header("X-Auth-Token"), location })
    }

    /// The URL before a path.
    pub(super) fn base(&self) -> &str {
        self.http.base()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base())
    }

    /// An answer that is not as it should be.
    pub(super) fn invalid(&self, path: &str, what: impl Into<String>) -> BmcError {
        BmcError::Invalid { url: self.url(path), what: what.into() }
    }

    /// Something that the BMC cannot do.
    pub(super) fn unsupported(&self, path: &str, what: impl Into<String>) -> BmcError {
        BmcError::Unsupported { url: self.url(path), what: what.into() }
    }

    /// Something that the BMC accepted and did not do.
    pub(super) fn not_kept(&self, path: &str, what: String, read: String) -> BmcError {
        BmcError::NotKept { url: self.url(path), what, read }
    }

    fn refused(&self, path: &str) -> BmcError {
        BmcError::Refused { url: self.url(path), username: self.account.username.clone(), said: String::new() }
    }

    fn failed(&self, path: &str, status: StatusCode, body: &Value) -> BmcError {
        BmcError::Failed { url: self.url(path), status: status.as_u16(), said: said(body) }
    }
}
