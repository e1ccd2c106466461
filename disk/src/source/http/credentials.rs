//! Which servers get the credentials: the servers of the image's own URLs, and no server that one of them redirects to.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use reqwest::{Url, header::HeaderValue};

use crate::{Authorization, Defect, LogLevel, Observer, WriteError, source::locator::shown};

/// What to send, and to whom. Never printed: the header value is marked as sensitive.
pub(super) struct Credentials {
    value: Option<HeaderValue>,
    /// Whether a registry's token server may be shown them: it takes names and passwords, not tokens.
    is_basic: bool,
    own: Vec<Url>,
}

impl Credentials {
    pub(super) fn new(
        authorization: Option<&Authorization>, own: &[Url], observer: &dyn Observer,
    ) -> Result<Self, WriteError> {
        let value = match authorization {
            Some(Authorization::Basic { username, .. }) if username.contains(':') => {
                let reason = "the user name contains a colon, which HTTP does not allow".into();
                return Err(WriteError::BadFormat {
                    subject: own.first().map(shown).unwrap_or_default(),
                    reason,
                    defect: Defect::Settings,
                });
            }
            Some(Authorization::Basic { username, password }) => {
                Some(format!("Basic {}", STANDARD.encode(format!("{username}:{}", password.expose()))))
            }
            Some(Authorization::Bearer(token)) => Some(format!("Bearer {}", token.expose())),
            None => None,
        };
        let is_basic = matches!(authorization, Some(Authorization::Basic { .. }));
        let value = value.map(|text| sensitive(&text)).transpose().map_err(|reason| WriteError::BadFormat {
            subject: own.first().map(shown).unwrap_or_default(),
            reason,
            defect: Defect::Settings,
        })?;
        if value.is_some() {
            for url in own.iter().filter(|url| is_bare(url)) {
                let line = format!("the credentials for {} travel unencrypted; use https", shown(url));
                observer.log(LogLevel::Warn, &line);
            }
        }
        Ok(Self { value, is_basic, own: own.to_vec() })
    }

    /// What is sent to this server.
    pub(super) fn of(&self, url: &Url) -> Option<&HeaderValue> {
        self.value.as_ref().filter(|_| self.own.iter().any(|own| same_server(own, url)))
    }

    /// What is sent to a registry's own token server.
    pub(super) fn for_tokens(&self) -> Option<&HeaderValue> {
        self.value.as_ref().filter(|_| self.is_basic)
    }
}

/// A header that is not printed.
pub(super) fn sensitive(text: &str) -> Result<HeaderValue, String> {
    let mut value =
        HeaderValue::from_str(text).map_err(|_| "the credentials contain a character that HTTP does not allow")?;
    value.set_sensitive(true);
    Ok(value)
}

/// The same scheme, host and port; or the same host's https where http was asked for, both at their usual ports.
pub(super) fn same_server(own: &Url, other: &Url) -> bool {
    let default = |url: &Url| url.port().is_none();
    let upgraded = own.scheme() == "http" && other.scheme() == "https" && default(own) && default(other);
    own.host() == other.host()
        && (upgraded
            || (own.scheme() == other.scheme() && own.port_or_known_default() == other.port_or_known_default()))
}

/// Whether the network can read what is sent there: plain http to another machine.
pub(super) fn is_bare(url: &Url) -> bool {
    let local = url.host_str().is_some_and(|host| {
        let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
        host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    });
    url.scheme() == "http" && !local
}

#[cfg(test)]
mod tests {
    use landfall_api::SecretText;

    use super::*;
    use crate::Unobserved;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn credentials_are_for_their_own_server_only() {
        let bearer = Authorization::Bearer(SecretText::new("geheim"));
        let credentials =
            Credentials::new(Some(&bearer), &[url("http://a/x"), url("https://b:8/")], &Unobserved).unwrap();
        for trusted in ["http://a/y", "http://a:80/", "https://a/y", "https://b:8/z?q"] {
            assert!(credentials.of(&url(trusted)).is_some(), "{trusted}");
        }
        for not_told in ["http://c/x", "http://a:81/", "https://a:444/", "http://b:8/", "https://b/", "https://a.c/"] {
            assert!(credentials.of(&url(not_told)).is_none(), "{not_told}");
        }
        assert!(!format!("{:?}", credentials.value).contains("geheim"));
    }

    #[test]
    fn a_token_with_a_line_break_is_refused_unprinted() {
        let bearer = Authorization::Bearer(SecretText::new("geheim\r\nHost: x"));
        let error = Credentials::new(Some(&bearer), &[url("https://a/")], &Unobserved).err().unwrap();
        assert!(!format!("{error} {error:?}").contains("geheim"));
    }

    #[test]
    fn only_plain_http_to_another_machine_is_bare() {
        assert!(is_bare(&url("http://10.0.0.1/")) && is_bare(&url("http://host/")));
        for fine in ["https://host/", "http://127.0.0.1:5000/", "http://[::1]/", "http://localhost/"] {
            assert!(!is_bare(&url(fine)), "{fine}");
        }
    }
}
