//! `phone-home`: the installed system reports to the coordinator that it is up, then removes the agent's files.
//!
//! It does not need systemd: it removes files, and a simple `init` can start it directly.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use landfall_api::{Pin, SecretText, message::PhoneHomeReport};
use landfall_session::{Backoff, https_client, phone_home};
use serde::{Deserialize, Serialize};

use crate::installed;

const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// For how long one coordinator may refuse while another cannot be reached: a host that restarts is back by then.
const DISPUTE: Duration = Duration::from_secs(15 * 60);

/// The config file.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// Where to.
    pub(crate) url: String,
    /// The same at the coordinators that take its place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) other_urls: Vec<String>,
    /// Good for this machine and run; a secret.
    pub(crate) bearer_token: String,
    /// `sha256:…` of the CA's key, at least one.
    pub(crate) ca_pins: Vec<String>,
    /// The proxy that the agent reached the coordinator by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) proxy: Option<String>,
}

/// Phoning home ended without success.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The config cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The config is invalid.
    #[error("{}: {why}; the agent's cloudInit action writes this file, so install the machine again", path.display())]
    Config { path: PathBuf, why: String },
    /// The coordinator understood and refused.
    #[error("refused by the coordinator: {0}")]
    Refused(landfall_api::Problem),
    /// The HTTPS client cannot be made.
    #[error(transparent)]
    Client(landfall_api::Problem),
}

/// Phones home, for as long as it takes.
///
/// # Errors
/// [`Error`]: the config is bad, or the coordinator refused for good.
pub(crate) async fn run(path: &Path) -> Result<(), Error> {
    let config = read(path)?;
    let bad = |why: String| Error::Config { path: path.to_owned(), why };
    let pins: Vec<Pin> =
        config.ca_pins.iter().map(|p| p.parse()).collect::<Result<_, _>>().map_err(|e| bad(format!("caPins: {e}")))?;
    if pins.is_empty() {
        return Err(bad("caPins is empty, so no coordinator can be trusted".into()));
    }
    let proxy = config.proxy.as_deref().map(str::parse).transpose().map_err(|e| bad(format!("proxy: {e}")))?;
    let token = SecretText::new(config.bearer_token);
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut dispute = Dispute::default();
    let url = 'up: loop {
        let (mut refused, mut may_come) = (None, false);
        // A new client per attempt: the resolver reads /etc/resolv.conf when the client is made, and early in a boot it
        // changes.
        let client = https_client(&pins, proxy.as_ref()).map_err(Error::Client)?;
        for url in std::iter::once(&config.url).chain(&config.other_urls) {
            match phone_home(&client, url, &token, &report()).await {
                Ok(()) => break 'up url,
                Err(e) if !e.retryable => refused = Some(e.problem),
                Err(e) => {
                    tracing::warn!("{}", e.problem);
                    may_come = true;
                }
            }
        }
        if dispute.ends(refused.is_some(), may_come, Instant::now())
            && let Some(problem) = refused
        {
            return Err(Error::Refused(problem));
        }
        let wait = backoff.step();
        tracing::warn!("next attempt in {} s", wait.as_secs().max(1));
        tokio::time::sleep(wait).await;
    };
    tracing::info!("reported to the coordinator at {url} that this system is up");
    remove_traces(Path::new("/"), path);
    Ok(())
}

/// Coordinators that refuse while others give no answer: one that has lost its place may refuse what its successor would take.
#[derive(Default)]
struct Dispute {
    since: Option<Instant>,
}

impl Dispute {
    /// Whether a refusal counts after this round.
    fn ends(&mut self, refused: bool, may_come: bool, now: Instant) -> bool {
        if !refused {
            self.since = None;
            return false;
        }
        !may_come || now.duration_since(*self.since.get_or_insert(now)) >= DISPUTE
    }
}

fn read(path: &Path) -> Result<Config, Error> {
    let text = fs::read_to_string(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    serde_json::from_str(&text).map_err(|e| Error::Config { path: path.to_owned(), why: e.to_string() })
}

/// The report; fields that cannot be read are empty.
fn report() -> PhoneHomeReport {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    PhoneHomeReport {
        hostname: read("/proc/sys/kernel/hostname"),
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        os_release: pretty_name(&read("/etc/os-release")),
        kernel: read("/proc/sys/kernel/osrelease"),
        uptime_seconds: landfall_session::boot_time().as_secs(),
        machine_id: read("/etc/machine-id"),
    }
}

/// `PRETTY_NAME` of an os-release file, which has shell quoting.
fn pretty_name(text: &str) -> String {
    let value = text.lines().find_map(|l| l.strip_prefix("PRETTY_NAME=")).unwrap_or_default();
    value.trim().trim_matches(['"', '\'']).to_owned()
}

/// Disables and removes the unit, the token and the binary. The token first: it must not stay on the disk.
fn remove_traces(root: &Path, config: &Path) {
    let below = |path: &str| root.join(path.trim_start_matches('/'));
    let mut paths = vec![config.to_owned(), below(installed::WANTS), below(installed::UNIT), below(installed::BINARY)];
    if config != below(installed::CONFIG) {
        // Started by hand with another config: the files of an install must stay.
        paths.truncate(1);
    }
    for path in &paths {
        match fs::remove_file(path) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => tracing::warn!("cannot remove {}: {e}; remove it by hand", path.display()),
        }
    }
    for directory in paths.iter().filter_map(|p| p.parent()).filter(|d| d.ends_with("landfall")) {
        // Not empty: it contains files that are not ours.
        fs::remove_dir(directory).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn success_leaves_no_trace_and_nothing_else_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path.trim_start_matches('/'));
        for path in [installed::BINARY, installed::CONFIG, installed::UNIT, installed::WANTS, "/etc/landfall-other"] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "x").unwrap();
        }
        remove_traces(root.path(), &at(installed::CONFIG));
        for path in [installed::BINARY, installed::CONFIG, installed::UNIT, installed::WANTS] {
            assert!(!at(path).exists(), "{path}");
        }
        assert!(!at("/etc/landfall").exists() && !at("/usr/local/lib/landfall").exists());
        assert!(at("/etc/landfall-other").exists() && at("/usr/local/lib").exists());
    }

    #[test]
    fn a_refusal_waits_for_coordinators_that_do_not_answer() {
        let start = Instant::now();
        let mut dispute = Dispute::default();
        for (second, refused, may_come, ends) in [
            (0, false, true, false),
            (1, true, true, false),
            (900, true, true, false),
            (901, true, true, true),
            (960, false, true, false),
            (1020, true, true, false),
            (1919, true, true, false),
            (1920, true, true, true),
            (1921, true, false, true),
        ] {
            assert_eq!(dispute.ends(refused, may_come, start + Duration::from_secs(second)), ends, "{second}");
        }
        assert!(Dispute::default().ends(true, false, start), "all of them refuse");
    }

    #[test]
    fn an_invalid_config_is_refused_with_its_path() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("phone-home.json");
        fs::write(&path, r#"{"url":"https://x","bearerToken":"t","caPins":[],"more":1}"#).unwrap();
        let Err(error) = read(&path) else { panic!("taken") };
        assert!(error.to_string().contains("phone-home.json") && error.to_string().contains("more"), "{error}");
    }

    #[test]
    fn the_systems_name_is_read_with_and_without_quotes() {
        assert_eq!(pretty_name("ID=x\nPRETTY_NAME=\"Debian GNU/Linux 12\"\n"), "Debian GNU/Linux 12");
        assert_eq!(pretty_name("PRETTY_NAME=mini"), "mini");
        assert_eq!(pretty_name(""), "");
    }
}
