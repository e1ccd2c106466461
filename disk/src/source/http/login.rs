//! A registry's login: the token it asks for in its challenge, fetched where the challenge says.
//!
//! The protocol is Docker's token authentication, which the OCI distribution specification leaves to registries and all of
//! them speak: `401` with `WWW-Authenticate: Bearer realm="…",service="…",scope="…"`, then `GET realm?service=…&scope=…`.

use std::sync::{Mutex, PoisonError};

use reqwest::header::{HeaderMap, HeaderValue};
use reqwest::{Client, StatusCode, Url, header};

use super::broken::{Broken, READ, chain};
use super::credentials::{Credentials, is_bare, same_server, sensitive};
use crate::{WriteError, source::locator::shown};

/// More than any token's answer has.
const ANSWER_MAX: usize = 256 * 1024;

/// The token for one registry, as long as it is taken. Asked for again when it is no longer: a long download outlives it.
pub(in crate::source) struct Login {
    registry: Url,
    token: Mutex<Option<HeaderValue>>,
}

impl Login {
    pub(in crate::source) fn new(registry: &Url) -> Self {
        Self { registry: registry.clone(), token: Mutex::new(None) }
    }

    /// What to send to this server: nothing, unless it is the registry itself.
    pub(super) fn token_for(&self, url: &Url) -> Option<HeaderValue> {
        let token = self.token.lock().unwrap_or_else(PoisonError::into_inner).clone();
        token.filter(|_| same_server(&self.registry, url))
    }

    /// Fetches the token that a 401 of `at` asks for.
    pub(super) async fn renew(
        &self, client: &Client, credentials: &Credentials, at: &Url, head: &HeaderMap,
    ) -> Result<(), Broken> {
        let refused = |why: &str| {
            Broken::Final(WriteError::Status { url: shown(at), status: format!("401 Unauthorized, {why}") })
        };
        let challenges = head.get_all(header::WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
        let challenge = challenges.filter_map(bearer_challenge).next();
        let Some(challenge) = challenge.filter(|_| same_server(&self.registry, at)) else {
            return Err(refused("and it refused the credentials, or none were stated"));
        };
        let mut realm = Url::parse(&challenge.realm).map_err(|_| refused("naming a token server that is not a URL"))?;
        let unfit =
            !matches!(realm.scheme(), "http" | "https") || (self.registry.scheme() == "https" && is_bare(&realm));
        if unfit {
            return Err(refused("naming a token server that is not behind https"));
        }
        for (name, value) in [("service", &challenge.service), ("scope", &challenge.scope)] {
            if let Some(value) = value {
                realm.query_pairs_mut().append_pair(name, value);
            }
        }
        let mut request = client.get(realm.clone());
        if let Some(value) = credentials.for_tokens() {
            request = request.header(header::AUTHORIZATION, value.clone());
        }
        let mut answer = tokio::time::timeout(READ, request.send())
            .await
            .map_err(|_| Broken::NoAnswer("the token server does not answer".into(), None))?
            .map_err(|error| Broken::NoAnswer(format!("the token server: {}", chain(error)), None))?;
        let status = answer.status();
        if status.is_server_error() {
            return Err(Broken::NoAnswer(format!("the token server answered {status}"), None));
        }
        if status != StatusCode::OK {
            return Err(refused(&format!("and its token server {} answered {status}", shown(&realm))));
        }
        let mut body = Vec::new();
        while let Some(chunk) = tokio::time::timeout(READ, answer.chunk())
            .await
            .map_err(|_| Broken::NoAnswer("the token server fell silent".into(), None))?
            .map_err(|error| Broken::NoAnswer(format!("the token server: {}", chain(error)), None))?
        {
            if body.len() + chunk.len() > ANSWER_MAX {
                return Err(refused("and the response of its token server is too long"));
            }
            body.extend_from_slice(&chunk);
        }
        let token = token_in(&body).ok_or_else(|| refused("and its token server gives no token"))?;
        let value = sensitive(&format!("Bearer {token}")).map_err(|why| refused(&why))?;
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        Ok(())
    }
}

/// What a challenge asks for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Challenge {
    pub(crate) realm: String,
    pub(crate) service: Option<String>,
    pub(crate) scope: Option<String>,
}

/// `Bearer realm="…",service="…",scope="…"`, RFC 9110 section 11.6.1.
pub(crate) fn bearer_challenge(text: &str) -> Option<Challenge> {
    let (scheme, mut rest) = text.trim().split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut found = Challenge::default();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let Some((name, after)) = rest.split_once('=') else { break };
        let value;
        (value, rest) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (token, rest) = after.split_at(after.find([',', ' ']).unwrap_or(after.len()));
                (token.to_owned(), rest)
            }
        };
        match name.trim().to_ascii_lowercase().as_str() {
            "realm" => found.realm = value,
            "service" => found.service = Some(value),
            "scope" => found.scope = Some(value),
            _ => {}
        }
    }
    (!found.realm.is_empty()).then_some(found)
}

/// A quoted string after its first quote, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut out = String::new();
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '"' => return Some((out, text.get(at + 1..)?)),
            '\\' => out.push(chars.next()?.1),
            other => out.push(other),
        }
    }
    None
}

fn token_in(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let token = ["token", "access_token"].iter().find_map(|name| value.get(name)?.as_str());
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_challenge_is_read_with_its_quotes() {
        let text = r#"Bearer realm="https://auth/token",service="reg \"x\"",scope="repository:a/b:pull,push",error=x"#;
        let found = bearer_challenge(text).unwrap();
        assert_eq!(found.realm, "https://auth/token");
        assert_eq!(found.service.as_deref(), Some("reg \"x\""));
        assert_eq!(found.scope.as_deref(), Some("repository:a/b:pull,push"));
        for bad in ["Basic realm=\"x\"", "Bearer", "Bearer service=\"x\"", "Bearer realm=\"x"] {
            assert_eq!(bearer_challenge(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_challenge_makes_it_panic(text in "(Bearer )?[a-z=\", \\\\]{0,40}") {
            bearer_challenge(&text);
        }
    }
}
