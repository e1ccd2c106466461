//! `wait`: its fields, what is sent to the agent, and what comes of it.

use std::{fmt, time::Duration};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::skip_serializing_none;

use super::http;
use super::kind::{ActionInfo, Declaration, Download};
use super::rules::{Rules, plain_text};
use crate::{AccessSpec, DurationSpec, ImageAccess, ImageSourceError, issue::join};

/// Waits for a time, or until a server answers: `for` or `until`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WaitSpec {
    /// For so long.
    #[serde(default, rename = "for", skip_serializing_if = "Option::is_none")]
    pub duration: Option<DurationSpec>,
    /// Until this is so; the action's timeout ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UntilSpec>,
}

/// What is waited for: `url` or `tcp`.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UntilSpec {
    /// GET of this http or https URL is answered with one of `expectStatus`.
    pub url: Option<String>,
    /// With `url`: the statuses that end the wait. Default: 200 to 299.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expect_status: Vec<u16>,
    /// With `url`: how the server is asked; without `authorization`.
    pub access: Option<AccessSpec>,
    /// A TCP connection is accepted at this `host:port`.
    pub tcp: Option<String>,
    /// From the end of one try to the next, at least 1s. Default: 5s.
    pub interval: Option<DurationSpec>,
}

/// `wait` as an agent is sent it.
#[derive(Debug, Clone, PartialEq)]
pub enum Wait {
    /// For so long. Never zero.
    For(Duration),
    /// Until a server answers.
    Until {
        /// Which, and how.
        answer: Awaited,
        /// From the end of one try to the next. Never zero.
        interval: Duration,
    },
}

/// What is tried again and again.
#[derive(Debug, Clone, PartialEq)]
pub enum Awaited {
    /// GET of a URL.
    Url {
        /// `http:` or `https:`.
        url: String,
        /// The statuses that end the wait; empty: 200 to 299.
        expect_status: Vec<u16>,
        /// How the server is asked.
        access: ImageAccess,
    },
    /// A TCP connection.
    Tcp {
        /// A name or an address, without brackets.
        host: String,
        /// Never 0.
        port: u16,
    },
}

/// What came of a `wait`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitResult {
    /// How long it waited, milliseconds.
    pub waited_ms: u64,
}

/// The action's fields do not go together: `validate_actions` refuses them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableWait {
    /// One of them.
    #[error("the field {0} is missing or invalid")]
    Field(&'static str),
    /// `access`.
    #[error(transparent)]
    Access(#[from] ImageSourceError),
}

/// From the end of one try to the next where a template does not say: nothing is noticed late, and no server is flooded.
const INTERVAL: Duration = Duration::from_secs(5);
const SHORTEST_INTERVAL: Duration = Duration::from_secs(1);

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => write!(f, "wait for {} s", time.as_secs_f64()),
            Self::Until { answer: Awaited::Url { url, .. }, .. } => write!(f, "wait until {url} answers"),
            Self::Until { answer: Awaited::Tcp { host, port }, .. } if host.contains(':') => {
                write!(f, "wait until [{host}]:{port} accepts a connection")
            }
            Self::Until { answer: Awaited::Tcp { host, port }, .. } => {
                write!(f, "wait until {host}:{port} accepts a connection")
            }
        }
    }
}

impl WaitSpec {
    /// What an agent is sent.
    ///
    /// # Errors
    /// [`UnusableWait`] where the fields do not go together.
    pub fn resolved(self) -> Result<Wait, UnusableWait> {
        let until = match (self.duration, self.until) {
            (Some(time), None) => return Ok(Wait::For(time.get())),
            (None, Some(until)) => until,
            _ => return Err(UnusableWait::Field("for")),
        };
        let UntilSpec { url, expect_status, access, tcp, interval } = until;
        let answer = match (url, tcp) {
            (Some(url), None) => {
                let access = access.map(ImageAccess::try_from).transpose()?.unwrap_or_default();
                Awaited::Url { url, expect_status, access }
            }
            (None, Some(tcp)) => {
                let (host, port) = place(&tcp).ok_or(UnusableWait::Field("until.tcp"))?;
                Awaited::Tcp { host: host.to_owned(), port }
            }
            _ => return Err(UnusableWait::Field("until.url")),
        };
        Ok(Wait::Until { answer, interval: interval.map_or(INTERVAL, DurationSpec::get) })
    }
}

impl Declaration for WaitSpec {
    const INFO: ActionInfo = ActionInfo {
        after_failure: true,
        ..ActionInfo::new("Waits for a time, or until a server answers.", DurationSpec::from_secs(3600), 8)
    };

    fn check(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
        let until = spec.get("until").filter(|until| !until.is_null());
        let timed = spec.get("for").is_some_and(|time| !time.is_null());
        match (timed, until) {
            (true, Some(_)) => rules.say(
                join(path, "until"),
                "it waits for a time or until something, not both",
                "remove one of the two; two actions wait for both",
            ),
            (false, None) => rules.say(
                path,
                "there is nothing to wait for",
                "write for: 30s, or until: { url: … } or until: { tcp: host:port }",
            ),
            _ => {}
        }
        if let Some(until) = until.and_then(Value::as_object) {
            self::until(until, &join(path, "until"), rules);
        }
    }

    fn downloads(&self) -> Vec<Download> {
        // It is waited for: that it does not answer yet is no fault.
        Vec::new()
    }
}

fn until(spec: &Map<String, Value>, path: &str, rules: &mut Rules<'_>) {
    let has = |field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    match (has("url"), has("tcp")) {
        (true, true) => {
            let hint = "remove one of the two; two actions wait for both";
            rules.say(join(path, "tcp"), "it waits for a url or a tcp connection, not both", hint);
        }
        (false, false) => {
            let hint = "write url: https://host/path, or tcp: host:port";
            rules.say(path, "there is nothing to wait for", hint);
        }
        _ => {}
    }
    for field in ["expectStatus", "access"].into_iter().filter(|field| has(field) && !has("url")) {
        rules.say(join(path, field), format!("{field} belongs to a url"), "remove it, or write url in place of tcp");
    }
    http::server_url(spec, path, rules);
    http::statuses(spec.get("expectStatus"), &join(path, "expectStatus"), rules);
    http::access(spec, path, rules);
    if let Some(tcp) = plain_text(spec, "tcp").filter(|tcp| place(tcp).is_none()) {
        let hint = "write a name or an address and a port, such as db.example:5432 or [fd00::1]:5432";
        rules.say(join(path, "tcp"), format!("\"{tcp}\" is not a host and a port"), hint);
    }
    let interval = plain_text(spec, "interval").and_then(|text| text.parse::<DurationSpec>().ok());
    if let Some(interval) = interval.filter(|interval| interval.get() < SHORTEST_INTERVAL) {
        let message = format!("an interval of {interval} is too short");
        rules.say(join(path, "interval"), message, "write at least 1s: the server has to answer each time");
    }
}

/// A host without brackets, and a port.
fn place(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').filter(|inner| inner.parse::<std::net::Ipv6Addr>().is_ok())?,
        None if host.contains(':') => return None,
        None => host,
    };
    let fits = |c: char| c.is_ascii_alphanumeric() || ".-_:".contains(c);
    let port = port.parse().ok().filter(|port| *port != 0)?;
    (!host.is_empty() && host.len() <= 253 && host.chars().all(fits)).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_wait_is_sent_with_its_defaults() {
        let sent = |wait: Value| serde_json::from_value::<WaitSpec>(wait).unwrap().resolved().unwrap();
        let second = Duration::from_secs;
        assert_eq!(sent(json!({"for": "2m"})), Wait::For(second(120)));
        let until = sent(json!({"until": {"tcp": "[fd00::1]:22", "interval": "1s"}}));
        let answer = Awaited::Tcp { host: "fd00::1".into(), port: 22 };
        assert_eq!(until, Wait::Until { answer, interval: second(1) });
        assert_eq!(until.to_string(), "wait until [fd00::1]:22 accepts a connection");
        let url = sent(json!({"until": {"url": "http://h/"}}));
        assert!(matches!(url, Wait::Until { interval, .. } if interval == second(5)));
        assert_eq!(WaitSpec::default().resolved(), Err(UnusableWait::Field("for")));
    }
}
