//! Whether an image can be fetched at all: asked before a run begins, not found out by a machine with a cleared disk.

use std::time::Duration;

use async_trait::async_trait;
use landfall_api::{Action, ActionSpec, ErrorCode, Problem};
use reqwest::{Client, StatusCode, header::RANGE};

/// How long one server may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// Asks image servers.
#[async_trait]
pub trait SourceChecker: Send + Sync {
    /// Whether the image at `url` is there.
    ///
    /// # Errors
    /// [`Problem`] with code `SourceUnreachable` naming the URL and what its server said.
    async fn check(&self, url: &str) -> Result<(), Problem>;

    /// Every image of a list.
    ///
    /// # Errors
    /// The first that is not there.
    async fn check_all(&self, actions: &[Action]) -> Result<(), Problem> {
        for action in actions {
            if let ActionSpec::WriteImage(spec) = &action.spec {
                self.check(&spec.image.url).await?;
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
        let client = Client::builder().no_proxy().connect_timeout(LIMIT).timeout(LIMIT).build();
        client.map(Self).map_err(super::drive::internal)
    }

    async fn ask(&self, url: &str) -> Result<StatusCode, reqwest::Error> {
        let status = self.0.head(url).send().await?.status();
        if status == StatusCode::METHOD_NOT_ALLOWED || status == StatusCode::NOT_IMPLEMENTED {
            return Ok(self.0.get(url).header(RANGE, "bytes=0-0").send().await?.status());
        }
        Ok(status)
    }
}

#[async_trait]
impl SourceChecker for HttpSources {
    async fn check(&self, url: &str) -> Result<(), Problem> {
        let unreachable = |what: String| {
            Problem::new(ErrorCode::SourceUnreachable, what)
                .at(url)
                .hint("correct the URL, or start its server; the machines must reach it too")
        };
        match self.ask(url).await {
            Ok(status) if status.is_success() => Ok(()),
            Ok(status) => Err(unreachable(format!("the image's server answered {status}"))),
            // The URL is in `subject` already.
            Err(error) => {
                let error = error.without_url();
                Err(unreachable(format!("the image cannot be reached: {error}")).caused_by(&error))
            }
        }
    }
}
