//! The client that all servers of an image share: trust, proxy, credentials, redirects.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::header::HeaderMap;
use reqwest::{Client, Proxy, Response, StatusCode, Url, header, redirect};
use rustls::pki_types::{CertificateDer, pem::PemObject};
use tokio::runtime::{Builder, Runtime};

use super::answer;
use super::broken::{Broken, READ, chain};
use super::credentials::Credentials;
use super::login::Login;
use crate::source::locator::shown;
use crate::source::userinfo::has_user;
use crate::{Access, Defect, Observer, WriteError};

const CONNECT: Duration = Duration::from_secs(10);
/// How soon a wait notices a stop.
pub(super) const TICK: Duration = Duration::from_millis(100);
/// As many as curl's users expect (it says 50) are a loop in practice.
const REDIRECTS: usize = 10;

/// A client, and the runtime it runs on: async at the edge, pulled synchronously.
pub(in crate::source) struct Connector {
    client: Client,
    runtime: Runtime,
    credentials: Credentials,
}

impl Connector {
    /// `own`: the image's own URLs, whose servers get the credentials.
    ///
    /// # Errors
    /// [`WriteError::BadFormat`] for certificates, a proxy or credentials that cannot be used; [`WriteError::Start`].
    pub(in crate::source) fn new(own: &[Url], access: &Access, observer: &dyn Observer) -> Result<Self, WriteError> {
        let subject = own.first().map(shown).unwrap_or_default();
        let bad = |reason: String| WriteError::BadFormat { subject: subject.clone(), reason, defect: Defect::Settings };
        let start = |error: Box<dyn Error + Send + Sync>| WriteError::Start {
            what: "HTTP client",
            source: io::Error::other(error),
        };
        // The boot image has no certificate store, and no provider need have been installed for a plain command line.
        let mut roots = rustls::RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        for pem in &access.ca_certificates {
            add_authorities(&mut roots, pem)
                .map_err(|why| bad(format!("a certificate authority given for it {why}")))?;
        }
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|e| start(e.into()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        // One stream a connection: HTTP/2 would only add its flow control. Redirects are followed here, by our rules.
        let mut builder = Client::builder()
            .tls_backend_preconfigured(tls)
            .http1_only()
            .connect_timeout(CONNECT)
            .redirect(redirect::Policy::none())
            // Static glibc has no getaddrinfo; literal addresses never reach a resolver.
            .hickory_dns(true)
            .no_proxy();
        if let Some(proxy) = &access.proxy {
            builder = builder.proxy(proxy_at(proxy).map_err(bad)?);
        }
        let client = builder.build().map_err(|e| start(e.into()))?;
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| start(e.into()))?;
        Ok(Self { client, runtime, credentials: Credentials::new(access.authorization.as_ref(), own, observer)? })
    }

    /// Runs `work` on this thread. Everything of reqwest's runs inside: it starts timers and wants the runtime for them.
    pub(super) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    /// The client itself, for what is no download. Only inside of [`Self::run`].
    pub(super) const fn client(&self) -> &Client {
        &self.client
    }

    /// An answer whose head says that its body is what was asked for; redirects are followed.
    pub(super) async fn get(&self, url: &Url, headers: &HeaderMap, login: Option<&Login>) -> Result<Response, Broken> {
        let mut at = url.clone();
        let mut logged_in = false;
        for _ in 0..=REDIRECTS {
            let mut request = self.client.get(at.clone()).headers(headers.clone());
            let token = login.and_then(|login| login.token_for(&at));
            if let Some(value) = token.or_else(|| self.credentials.of(&at).cloned()) {
                request = request.header(header::AUTHORIZATION, value);
            }
            let answer = tokio::time::timeout(READ + CONNECT, request.send()).await;
            let Ok(answer) = answer else { return Err(Broken::NoAnswer("the server does not answer".into(), None)) };
            let answer = answer.map_err(|error| match distrusted(&error) {
                Some(why) => refused(&at, format!("a certificate that cannot be trusted: {why}")),
                None => Broken::NoAnswer(chain(error), None),
            })?;
            let status = answer.status();
            if let Some(target) = redirected(&at, &answer).map_err(Broken::Final)? {
                at = target;
                continue;
            }
            if let Some(login) = login.filter(|_| status == StatusCode::UNAUTHORIZED && !logged_in) {
                login.renew(&self.client, &self.credentials, &at, answer.headers()).await?;
                logged_in = true;
                continue;
            }
            let busy = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
            if status.is_server_error() || busy {
                let wait = answer::retry_after(answer.headers(), jiff::Timestamp::now());
                return Err(Broken::NoAnswer(status.to_string(), wait));
            }
            return Ok(answer);
        }
        Err(refused(url, format!("more than {REDIRECTS} redirects")))
    }
}

fn refused(url: &Url, status: String) -> Broken {
    Broken::Final(WriteError::Status { url: shown(url), status })
}

/// Where an answer points, if it does.
pub(super) fn redirected(at: &Url, answer: &Response) -> Result<Option<Url>, WriteError> {
    let status = answer.status();
    let points = matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308);
    let Some(location) = answer.headers().get(header::LOCATION).filter(|_| points) else { return Ok(None) };
    let refused = |why: &str| WriteError::Status { url: shown(at), status: format!("{status}, {why}") };
    let target = location.to_str().ok().and_then(|text| at.join(text).ok());
    let target = target.ok_or_else(|| refused("to what is not a URL"))?;
    if !matches!(target.scheme(), "http" | "https") {
        return Err(refused("to neither http nor https"));
    }
    if at.scheme() == "https" && target.scheme() == "http" {
        return Err(refused("from https to http, which is refused"));
    }
    if has_user(&target) {
        return Err(refused("to a URL with a password in it, which is refused"));
    }
    Ok(Some(target))
}

fn add_authorities(roots: &mut rustls::RootCertStore, pem: &str) -> Result<(), String> {
    let mut found = false;
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|error| format!("is not PEM: {error}"))?;
        roots.add(certificate).map_err(|error| format!("cannot be used: {error}"))?;
        found = true;
    }
    if found { Ok(()) } else { Err("contains no certificate; it must begin with -----BEGIN CERTIFICATE-----".into()) }
}

fn proxy_at(text: &str) -> Result<Proxy, String> {
    let url = Url::parse(text).map_err(|error| format!("the proxy is not a URL such as http://proxy:3128: {error}"))?;
    if has_user(&url) {
        return Err("the proxy's URL holds a user or password, which would be logged; proxies with a login are not \
                    supported"
            .into());
    }
    if url.scheme() != "http" || url.host().is_none() {
        return Err("the proxy must be given as http://host:port".into());
    }
    Proxy::all(url).map_err(|error| format!("the proxy cannot be used: {error}"))
}

/// Why the server's certificate is refused, if that is the error: a retry does not cure it.
pub(super) fn distrusted(error: &(dyn Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(cause) = next {
        if let Some(tls @ rustls::Error::InvalidCertificate(_)) = cause.downcast_ref() {
            return Some(tls.to_string());
        }
        // An I/O error's source is its content's source, and not the content.
        let content = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = content.map(|content| content as &(dyn Error + 'static)).or_else(|| cause.source());
    }
    None
}

/// The future's value, or `None` once `stop` is set.
pub(super) async fn until_stopped<T>(stop: &AtomicBool, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    loop {
        if stop.load(Ordering::Acquire) {
            return None;
        }
        if let Ok(value) = tokio::time::timeout(TICK, &mut future).await {
            return Some(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unobserved;

    #[test]
    fn what_cannot_be_used_is_said_before_anything_is_fetched() {
        let own = [Url::parse("https://host/a").unwrap()];
        let said = |access: &Access| Connector::new(&own, access, &Unobserved).err().unwrap().to_string();
        for (pem, words) in [("", "no certificate"), ("-----BEGIN CERTIFICATE-----\nAAAA\n", "PEM")] {
            assert!(said(&Access { ca_certificates: vec![pem.into()], ..Access::default() }).contains(words), "{pem}");
        }
        for proxy in ["host:3128", "socks5://host", "http://anna:geheim@host:1", ""] {
            let said = said(&Access { proxy: Some(proxy.into()), ..Access::default() });
            assert!(said.contains("proxy") && !said.contains("geheim"), "{said}");
        }
    }
}
