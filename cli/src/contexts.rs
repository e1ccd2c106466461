//! Several coordinators: the file of contexts, which contains names of files and commands and never a secret.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::{fs, io};

use landfall_api::Digest;
use landfall_client::{Server, Trust};
use serde::{Deserialize, Serialize};
use serde_saphyr::Spanned;

use crate::failure::Failure;
use crate::settings::{Identity, Settings, TokenSource};

/// Largest file that is read, bytes.
const MAX_BYTES: u64 = 1 << 20;

/// One coordinator, and the credentials for it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) server: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ca_pin: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cert: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_file: Option<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token_command: Option<String>,
}

impl Entry {
    /// An entry from the command line; files by their absolute path, since the next call may come from another
    /// directory.
    ///
    /// # Errors
    /// [`Failure::Usage`] where something is missing.
    pub(crate) fn new(settings: Settings) -> Result<Self, Failure> {
        let Some(server) = settings.server else {
            return Err(Failure::Usage("a context needs --server".into()));
        };
        let whole = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
        let mut entry = Self { server: server.to_string(), ..Self::default() };
        match settings.trust {
            Some(Trust::Ca(path)) => entry.ca = Some(whole(path)),
            Some(Trust::Pin(pin)) => entry.ca_pin = Some(pin.to_string()),
            None => {}
        }
        match settings.identity {
            Some(Identity::Certificate { cert, key }) => {
                (entry.cert, entry.key) = (Some(whole(cert)), Some(whole(key)));
            }
            Some(Identity::Token(TokenSource::File(path))) => entry.token_file = Some(whole(path)),
            Some(Identity::Token(TokenSource::Command(command))) => entry.token_command = Some(command),
            Some(Identity::Token(TokenSource::Given(_))) | None => {}
        }
        entry.settings().map_err(Failure::Usage)?;
        Ok(entry)
    }

    /// Checks it and returns its parts.
    fn settings(&self) -> Result<Settings, String> {
        let server: Server = self.server.parse().map_err(|e| format!("server: {e}"))?;
        let trust = match (&self.ca, &self.ca_pin) {
            (Some(_), Some(_)) => return Err("ca and caPin exclude each other".into()),
            (Some(ca), None) => Some(Trust::Ca(ca.clone())),
            (None, Some(pin)) => Some(Trust::Pin(pin.parse::<Digest>().map_err(|e| format!("caPin: {e}"))?)),
            (None, None) => None,
        };
        let token = match (&self.token_file, &self.token_command) {
            (Some(_), Some(_)) => return Err("tokenFile and tokenCommand exclude each other".into()),
            (Some(file), None) => Some(Identity::Token(TokenSource::File(file.clone()))),
            (None, Some(command)) => Some(Identity::Token(TokenSource::Command(command.clone()))),
            (None, None) => None,
        };
        let identity = match (&self.cert, &self.key, token) {
            (Some(_), Some(_), Some(_)) => return Err("a certificate and a token exclude each other".into()),
            (Some(cert), Some(key), None) => Some(Identity::Certificate { cert: cert.clone(), key: key.clone() }),
            (None, None, token) => token,
            _ => return Err("cert and key belong together".into()),
        };
        if matches!(server, Server::Https { .. }) {
            if trust.is_none() {
                return Err("an https server needs ca or caPin".into());
            }
            if identity.is_none() {
                return Err("an https server needs cert with key, tokenFile or tokenCommand".into());
            }
        }
        Ok(Settings { server: Some(server), trust, identity })
    }

    /// The same for an entry from the file, which is already checked.
    pub(crate) fn into_settings(self) -> Settings {
        self.settings().unwrap_or_default()
    }

    /// The credentials, in a few words.
    pub(crate) fn who(&self) -> String {
        match (&self.cert, &self.token_file, &self.token_command) {
            (Some(cert), ..) => cert.display().to_string(),
            (_, Some(file), _) => format!("token of {}", file.display()),
            (.., Some(command)) => format!("token by {command}"),
            _ => "local user".into(),
        }
    }

    /// How the coordinator is verified, in a few words.
    pub(crate) fn known_by(&self) -> String {
        self.ca.as_ref().map(|ca| ca.display().to_string()).or_else(|| self.ca_pin.clone()).unwrap_or_default()
    }
}

/// All contexts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Contexts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    pub(crate) contexts: BTreeMap<String, Entry>,
}

/// The parsed file: every part with its place.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    #[serde(default)]
    current: Option<Spanned<String>>,
    #[serde(default)]
    contexts: BTreeMap<String, Spanned<Entry>>,
}

impl Contexts {
    /// The path of the file; `None` if no variable states it.
    pub(crate) fn file() -> Option<PathBuf> {
        let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")))?;
        Some(base.join("landfall").join("config.yaml"))
    }

    /// Reads them; none if there is no file.
    ///
    /// # Errors
    /// A fault in the file, with its line.
    pub(crate) fn read(file: &Path) -> Result<Self, Failure> {
        let failed = |e: io::Error| Failure::local(format!("cannot read {}", file.display()), e, "");
        let about = match fs::metadata(file) {
            Ok(about) => about,
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(Self::default());
            }
            Err(error) => return Err(failed(error)),
        };
        // The file decides which commands run and which CA is trusted.
        if about.permissions().mode() & 0o022 != 0 {
            let (what, hint) = (format!("{} is not trusted", file.display()), format!("chmod 600 {}", file.display()));
            return Err(Failure::local(what, "other users may change it", hint));
        }
        if about.len() > MAX_BYTES {
            let why = format!("it has more than {MAX_BYTES} bytes");
            return Err(Failure::local(format!("cannot read {}", file.display()), why, ""));
        }
        Self::parse(&fs::read_to_string(file).map_err(failed)?, file)
    }

    fn parse(text: &str, file: &Path) -> Result<Self, Failure> {
        const HINT: &str = "correct it there, or create the context again with: landfall context set";
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let fault = |line: u64, what: String| Failure::local(format!("{}:{line}", file.display()), what, HINT);
        let options = serde_saphyr::options! { strict_booleans: true, with_snippet: false };
        let written: Written = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(1, |at| at.line());
            let said = error.without_snippet().to_string();
            let said = said.split(" at line ").next().unwrap_or(&said).trim_start_matches("error: ").to_owned();
            fault(line, said)
        })?;
        let mut contexts = BTreeMap::new();
        for (name, entry) in written.contexts {
            entry.value.settings().map_err(|e| fault(entry.referenced.line(), format!("context {name}: {e}")))?;
            contexts.insert(name, entry.value);
        }
        if let Some(current) = &written.current
            && !contexts.contains_key(&current.value)
        {
            let what = format!("the current context \"{}\" does not exist in the file", current.value);
            return Err(fault(current.referenced.line(), what));
        }
        Ok(Self { current: written.current.map(|c| c.value), contexts })
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Failure::Usage`] if there is none of that name.
    pub(crate) fn get(&self, name: &str, file: &Path) -> Result<Entry, Failure> {
        self.contexts.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
            let meant = match landfall_api::nearest(name, &known) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None if known.is_empty() => "there are none yet; create one with landfall context set".into(),
                None => format!("there are {}", known.join(", ")),
            };
            Failure::Usage(format!("{} has no context \"{name}\"; {meant}", file.display()))
        })
    }

    /// The current one, if one is.
    ///
    /// # Errors
    /// As [`Contexts::get`].
    pub(crate) fn current_entry(&self, file: &Path) -> Result<Option<Entry>, Failure> {
        self.current.as_deref().map(|name| self.get(name, file)).transpose()
    }

    /// Writes them, complete or not at all, readable only by the owner.
    ///
    /// # Errors
    /// Those of writing.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::local(format!("cannot write {}", file.display()), e, "");
        let directory = file.parent().unwrap_or(Path::new("/"));
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let tree = serde_json::to_value(self).map_err(|e| failed(io::Error::other(e)))?;
        let text = serde_saphyr::to_string(&tree).map_err(|e| failed(io::Error::other(e)))?;
        // Made with mode 0600.
        let mut fresh = tempfile::NamedTempFile::new_in(directory).map_err(failed)?;
        fresh.write_all(b"# Written by landfall context, which removes other comments.\n").map_err(failed)?;
        fresh.write_all(text.as_bytes()).map_err(failed)?;
        fresh.as_file().sync_all().map_err(failed)?;
        fresh.persist(file).map_err(|e| failed(e.error))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "/home/ann/config.yaml";

    fn fault(text: &str) -> String {
        match Contexts::parse(text, Path::new(FILE)) {
            Err(Failure::Local { what, cause, .. }) => format!("{what}: {cause}"),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn each_fault_is_reported_with_file_and_line() {
        for (text, place, says) in [
            ("contexts:\n  a:\n    server: http://x\n", ":3", "server: write unix:///path or https"),
            ("contexts:\n  a:\n    server: unix:///s\n  b:\n    sevrer: unix:///s\n", ":5", "sevrer"),
            ("current: b\ncontexts:\n  a:\n    server: unix:///s\n", ":1", "\"b\" does not exist"),
            ("contexts:\n  a:\n    server: https://x\n", ":3", "needs ca or caPin"),
            (
                "contexts:\n  a:\n    server: https://x\n    ca: /a\n    cert: /c\n",
                ":3",
                "cert and key belong together",
            ),
            ("contexts:\n  a:\n    server: https://x\n    ca: /a\n", ":3", "needs cert with key"),
            ("contexts: {a: {server: [}}\n", ":1", ""),
        ] {
            let said = fault(text);
            assert!(said.starts_with(&format!("{FILE}{place}")) && said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn written_contexts_read_back_and_stay_private() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("new/landfall/config.yaml");
        assert_eq!(Contexts::read(&file).unwrap(), Contexts::default());
        let flags = Settings {
            server: Some("https://lab:1".parse().unwrap()),
            trust: Some(Trust::Ca("ca.pem".into())),
            identity: Some(Identity::Token(TokenSource::Command("pass show 'a: b' # c".into()))),
        };
        let entry = Entry::new(flags).unwrap();
        assert!(entry.ca.as_ref().unwrap().is_absolute());
        let contexts =
            Contexts { current: Some("lab".into()), contexts: [("lab".to_owned(), entry)].into_iter().collect() };
        contexts.write(&file).unwrap();
        assert_eq!(Contexts::read(&file).unwrap(), contexts);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
        assert!(Contexts::read(&file).is_err());
    }
}
