//! Whether an image can be fetched: checked before a workflow begins, not by a machine with a cleared disk.
//!
//! The coordinator never shows an image's secret: the machine it belongs to does, once its run has begun. So of a server that
//! asks for one, that it answers is all that is found out here.

use std::time::Duration;

use async_trait::async_trait;
use landfall_api::{AccessSpec, Action, Download, ErrorCode, ImageUrl, Problem};
use reqwest::{Certificate, Client, Proxy, StatusCode, header::RANGE};
use serde_json::Value;

/// How long one server may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The image of a template's action, where that is known before a machine and parameters are: `None` where an expression
/// still stands in what matters here.
pub(super) fn in_template(action: &Value) -> Option<Download> {
    let image = action.pointer("/writeImage/image")?;
    let known = |value: &Value| !value.to_string().contains("{{");
    let mirrors = image.get("mirrors").cloned().unwrap_or_else(|| Value::Array(Vec::new()));
    let access = image.get("access").cloned().unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    let url = image.get("url")?.as_str()?.to_owned();
    if url.contains("{{") || !known(&mirrors) || !known(&access) {
        return None;
    }
    let mut urls = vec![url];
    urls.extend(serde_json::from_value::<Vec<String>>(mirrors).ok()?);
    Some(Download { urls, access: serde_json::from_value(access).ok()? })
}

/// Asks image servers.
#[async_trait]
pub trait SourceChecker: Send + Sync {
    /// Whether it is there.
    ///
    /// # Errors
    /// [`Problem`] with code `SourceUnreachable` naming the URL and what its server said; of several URLs the first, with
    /// the others among the causes.
    async fn check(&self, wanted: &Download) -> Result<(), Problem>;

    /// Everything that a list's actions download.
    ///
    /// # Errors
    /// The first that is not there.
    async fn check_all(&self, actions: &[Action]) -> Result<(), Problem> {
        for action in actions {
            for wanted in action.spec.downloads() {
                self.check(&wanted).await?;
            }
        }
        Ok(())
    }
}

/// Asks over HTTP: HEAD, and where that is not allowed one byte by Range.
pub struct HttpSources(Client);

impl HttpSources {
    /// A client with bounded waits.
    ///
    /// # Errors
    /// [`Problem`] if TLS cannot be set up.
    pub fn new() -> Result<Self, Problem> {
        client(&AccessSpec::default()).map(Self)
    }
}

/// A client that speaks as the image's document says, but for who asks.
fn client(access: &AccessSpec) -> Result<Client, Problem> {
    let mut builder = Client::builder().no_proxy().connect_timeout(LIMIT).timeout(LIMIT);
    let unusable = |what: &str, error: reqwest::Error| {
        Problem::new(ErrorCode::InvalidTemplate, format!("cannot use {what}: {error}")).caused_by(&error)
    };
    for pem in &access.ca_certificates {
        let certificates = Certificate::from_pem_bundle(pem.as_bytes())
            .map_err(|error| unusable("a certificate of image.access.caCertificates", error))?;
        builder = certificates.into_iter().fold(builder, reqwest::ClientBuilder::add_root_certificate);
    }
    if let Some(proxy) = &access.proxy {
        builder = builder.proxy(Proxy::all(proxy).map_err(|error| unusable("image.access.proxy", error))?);
    }
    builder.build().map_err(|error| match access {
        // A certificate's inside is looked at only here.
        access if *access != AccessSpec::default() => unusable("image.access", error),
        _ => Problem::new(ErrorCode::Internal, format!("cannot create an HTTPS client for image sources: {error}"))
            .caused_by(&error)
            .hint("install this host's CA certificates (Debian: ca-certificates), or name a file of them in SSL_CERT_FILE"),
    })
}

async fn ask(client: &Client, url: &str) -> Result<StatusCode, reqwest::Error> {
    let status = client.head(url).send().await?.status();
    if status == StatusCode::METHOD_NOT_ALLOWED || status == StatusCode::NOT_IMPLEMENTED {
        return Ok(client.get(url).header(RANGE, "bytes=0-0").send().await?.status());
    }
    Ok(status)
}

/// The answers of a server that requires credentials.
const HIDDEN: [StatusCode; 3] = [StatusCode::UNAUTHORIZED, StatusCode::FORBIDDEN, StatusCode::NOT_FOUND];

/// Of an image `for_the_known`, that its server answers is enough.
async fn check_one(client: &Client, url: &str, for_the_known: bool) -> Result<(), Problem> {
    let unreachable = |what: String| {
        Problem::new(ErrorCode::SourceUnreachable, what)
            .at(url)
            .hint("correct the URL, or start its server; the machines must also reach it")
    };
    // Without the URL, which is in `subject` already.
    let silent = |error: reqwest::Error| {
        let error = error.without_url();
        unreachable(format!("cannot reach the image: {error}")).caused_by(&error)
    };
    match ImageUrl::parse(url) {
        // The agent's own file: it alone can tell.
        Ok(ImageUrl::File(_)) => Ok(()),
        // Whether the registry gives the image is settled between it and the agent, in several steps; any answer means
        // that it is up (`/v2/` is the distribution specification's own check).
        Ok(ImageUrl::Oci { registry, plain, .. }) => {
            let scheme = if plain { "http" } else { "https" };
            client.get(format!("{scheme}://{registry}/v2/")).send().await.map(drop).map_err(silent)
        }
        Ok(ImageUrl::Http) => match ask(client, url).await {
            Ok(status) if status.is_success() || (for_the_known && HIDDEN.contains(&status)) => Ok(()),
            Ok(status) => Err(unreachable(format!("the image's server answered {status}"))),
            Err(error) => Err(silent(error)),
        },
        Err(error) => Err(Problem::new(ErrorCode::InvalidTemplate, error.message).at(url).hint(error.hint)),
    }
}

#[async_trait]
impl SourceChecker for HttpSources {
    async fn check(&self, wanted: &Download) -> Result<(), Problem> {
        let own = wanted.access != AccessSpec::default();
        let client = if own { client(&wanted.access)? } else { self.0.clone() };
        let mut first: Option<Problem> = None;
        for url in &wanted.urls {
            match (check_one(&client, url, wanted.access.authorization.is_some()).await, &mut first) {
                (Ok(()), _) => return Ok(()),
                (Err(problem), None) => first = Some(problem),
                (Err(problem), Some(first)) => first.causes.push(format!("{url}: {}", problem.message)),
            }
        }
        first.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use landfall_api::AuthorizationSpec;
    use serde_json::json;

    use super::*;

    fn wanted(urls: &[&str]) -> Download {
        Download { urls: urls.iter().map(|url| (*url).to_owned()).collect(), access: AccessSpec::default() }
    }

    /// A server that answers 200 to HEAD of `/there`, and 404 to the rest.
    async fn server() -> String {
        let router = axum::Router::new().route("/there", axum::routing::get(|| async { "x" }));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await });
        format!("http://{address}")
    }

    fn sources() -> HttpSources {
        // Another test of this process may have installed the same one.
        drop(rustls::crypto::ring::default_provider().install_default());
        HttpSources::new().unwrap()
    }

    #[tokio::test]
    async fn one_reachable_mirror_suffices_and_failures_name_all() {
        let (sources, server) = (sources(), server().await);
        let (there, gone) = (format!("{server}/there"), format!("{server}/gone"));
        assert_eq!(sources.check(&wanted(&[&there])).await, Ok(()));
        assert_eq!(sources.check(&wanted(&[&gone, &there])).await, Ok(()));
        assert_eq!(sources.check(&wanted(&["file:///no/such/file"])).await, Ok(()));
        assert_eq!(sources.check(&wanted(&[&format!("oci+{server}/a:b")])).await, Ok(()), "it answered");
        let problem = sources.check(&wanted(&[&gone, &gone.replace("gone", "lost")])).await.unwrap_err();
        assert_eq!((problem.code, &problem.subject), (ErrorCode::SourceUnreachable, &gone));
        assert!(problem.causes.iter().any(|cause| cause.contains("/lost")), "{problem}");
    }

    #[tokio::test]
    async fn an_image_server_never_gets_a_secret_from_the_coordinator() {
        let shown = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let note = shown.clone();
        let answer = |status: StatusCode| {
            axum::routing::get(move |headers: axum::http::HeaderMap| async move {
                note.lock().unwrap().extend(headers.get("authorization").cloned());
                axum::http::StatusCode::from_u16(status.as_u16()).unwrap()
            })
        };
        let router = axum::Router::new()
            .route("/asks", answer.clone()(StatusCode::UNAUTHORIZED))
            .route("/forbids", answer.clone()(StatusCode::FORBIDDEN))
            .route("/hides", answer.clone()(StatusCode::NOT_FOUND))
            .route("/gone", answer(StatusCode::BAD_GATEWAY));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let sources = sources();
        let token = AuthorizationSpec { token: Some("hunter2".into()), ..AuthorizationSpec::default() };
        for (path, known, there) in [
            ("asks", true, true),
            ("forbids", true, true),
            ("hides", true, true),
            ("gone", true, false),
            ("asks", false, false),
            ("hides", false, false),
        ] {
            let access = AccessSpec { authorization: known.then(|| token.clone()), ..AccessSpec::default() };
            let answer = sources.check(&Download { urls: vec![format!("{server}/{path}")], access }).await;
            assert_eq!(answer.is_ok(), there, "{path}: {answer:?}");
        }
        assert!(shown.lock().unwrap().is_empty(), "{shown:?}");
    }

    #[tokio::test]
    async fn an_invalid_proxy_or_authority_is_the_templates_fault() {
        let sources = sources();
        let access = AccessSpec {
            ca_certificates: vec!["-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----\n".into()],
            ..AccessSpec::default()
        };
        let problem =
            sources.check(&Download { urls: vec!["https://127.0.0.1:1/i".into()], access }).await.unwrap_err();
        assert_eq!(problem.code, ErrorCode::InvalidTemplate, "{problem}");
    }

    #[test]
    fn a_template_is_asked_about_only_where_no_expression_stands() {
        let of = |image: Value| in_template(&json!({"name": "w", "writeImage": {"image": image}}));
        let plain = of(json!({"url": "http://h/i", "mirrors": ["http://g/i"], "digest": "{{ params.d }}"}));
        assert_eq!(plain, Some(wanted(&["http://h/i", "http://g/i"])));
        assert_eq!(of(json!({"url": "http://h/{{ params.r }}"})), None);
        assert_eq!(of(json!({"url": "http://h/i", "mirrors": ["http://{{ params.r }}/i"]})), None);
        assert_eq!(of(json!({"url": "http://h/i", "access": {"proxy": "{{ params.p }}"}})), None);
        assert_eq!(in_template(&json!({"name": "r", "reboot": {}})), None);
    }

    #[test]
    fn the_files_beside_an_image_are_wanted_too() {
        let signature = json!({"url": "http://h/s", "key": "RW"});
        let image = json!({"url": "http://h/i", "mirrors": ["http://g/i"], "sums": {"url": "http://h/f", "signature": signature}});
        let write: Action = serde_json::from_value(json!({"name": "w", "writeImage": {"image": image}})).unwrap();
        let all = write.spec.downloads();
        assert_eq!(all, [wanted(&["http://h/i", "http://g/i"]), wanted(&["http://h/f"]), wanted(&["http://h/s"])]);
    }
}
