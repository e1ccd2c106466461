//! What flags, the environment or a context say of a coordinator and the caller.

use std::{path::PathBuf, process::Stdio};

use landfall_api::Digest;
use landfall_client::{Server, Trust};
use tokio::process::Command;

use crate::{args::Connection, failure::Failure};

/// Longest token that is read, bytes.
const MAX_TOKEN: usize = 4096;

/// The credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Identity {
    Certificate { cert: PathBuf, key: PathBuf },
    Token(TokenSource),
}

/// Where a token comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TokenSource {
    File(PathBuf),
    Command(String),
    /// `LANDFALL_TOKEN`.
    Given(String),
}

impl TokenSource {
    /// The token. A command gets the terminal if it may ask the person for a passphrase; it ends when the wait ends.
    ///
    /// # Errors
    /// Where there is none.
    pub(crate) async fn read(&self, may_ask: bool) -> Result<String, Failure> {
        let (what, text) = match self {
            Self::Given(token) => ("LANDFALL_TOKEN".to_owned(), token.clone()),
            Self::File(path) => {
                let what = path.display().to_string();
                let failed = |e| Failure::local(format!("cannot read {what}"), e, "it must contain a token");
                (what.clone(), std::fs::read_to_string(path).map_err(failed)?)
            }
            Self::Command(command) => {
                let what = format!("the token command \"{command}\"");
                let terminal = || if may_ask { Stdio::inherit() } else { Stdio::null() };
                let mut run = Command::new("sh");
                run.args(["-c", command]).stderr(terminal()).stdin(terminal()).stdout(Stdio::piped());
                let failed = |e| Failure::local(format!("cannot run {what}"), e, "");
                // Not by `output`, which would capture its standard error.
                let output = run.kill_on_drop(true).spawn().map_err(failed)?.wait_with_output().await;
                let output = output.map_err(failed)?;
                if !output.status.success() {
                    return Err(Failure::local(
                        format!("{what} failed"),
                        output.status,
                        "run it alone to see its error",
                    ));
                }
                (what, String::from_utf8_lossy(&output.stdout).into_owned())
            }
        };
        let token = text.trim();
        if token.is_empty() || token.len() > MAX_TOKEN || token.contains(char::is_whitespace) {
            let hint = "create a token with landfall token create";
            return Err(Failure::local(format!("{what} contains no token"), "a token is a single word", hint));
        }
        Ok(token.to_owned())
    }
}

/// The values of one layer. Related parts are taken from one layer: a certificate of one person is never used with the
/// key of another.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) server: Option<Server>,
    pub(crate) trust: Option<Trust>,
    pub(crate) identity: Option<Identity>,
}

impl Settings {
    /// The flags of the command line.
    ///
    /// # Errors
    /// [`Failure::Usage`] for half a pair.
    pub(crate) fn of_flags(flags: &Connection) -> Result<Self, Failure> {
        let pair = |cert: &Option<PathBuf>, key: &Option<PathBuf>| match (cert, key) {
            (Some(cert), Some(key)) => Ok(Some(Identity::Certificate { cert: cert.clone(), key: key.clone() })),
            (None, None) => Ok(None),
            (Some(_), None) => Err(Failure::Usage("--cert needs --key".into())),
            (None, Some(_)) => Err(Failure::Usage("--key needs --cert".into())),
        };
        let token = flags.token_file.clone().map(TokenSource::File);
        let token = token.or_else(|| flags.token_command.clone().map(TokenSource::Command));
        Ok(Self {
            server: flags.server.clone(),
            trust: flags.ca.clone().map(Trust::Ca).or(flags.ca_pin.map(Trust::Pin)),
            identity: pair(&flags.cert, &flags.key)?.or(token.map(Identity::Token)),
        })
    }

    /// The environment, by name.
    pub(crate) fn of_environment(get: impl Fn(&str) -> Option<String>) -> Result<Self, Failure> {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        let read = |name: &str, error: String| Failure::Usage(format!("{name}: {error}"));
        let server = get("LANDFALL_SERVER").map(|s| s.parse()).transpose().map_err(|e| read("LANDFALL_SERVER", e))?;
        let pin = get("LANDFALL_CA_PIN").map(|s| s.parse::<Digest>()).transpose();
        let pin = pin.map_err(|e| read("LANDFALL_CA_PIN", e.to_string()))?;
        let file = |name: &str| get(name).map(PathBuf::from);
        let token = get("LANDFALL_TOKEN").map(TokenSource::Given);
        let token = token.or_else(|| file("LANDFALL_TOKEN_FILE").map(TokenSource::File));
        let identity = match (file("LANDFALL_CERT"), file("LANDFALL_KEY")) {
            (Some(cert), Some(key)) => Some(Identity::Certificate { cert, key }),
            (None, None) => token.map(Identity::Token),
            _ => {
                return Err(Failure::Usage(
                    "LANDFALL_CERT and LANDFALL_KEY are needed together; set both or neither".into(),
                ));
            }
        };
        Ok(Self { server, trust: file("LANDFALL_CA").map(Trust::Ca).or(pin.map(Trust::Pin)), identity })
    }

    /// This, and where it says nothing, the other.
    pub(crate) fn over(self, lower: Self) -> Self {
        Self {
            server: self.server.or(lower.server),
            trust: self.trust.or(lower.trust),
            identity: self.identity.or(lower.identity),
        }
    }
}
