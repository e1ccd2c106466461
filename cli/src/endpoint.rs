//! Which coordinator to use, and with which credentials: flags before the environment before a context.

use std::path::Path;

use landfall_client::{Client, Server, Trust};

use crate::args::Connection;
use crate::contexts::{Contexts, Entry};
use crate::failure::Failure;
use crate::settings::{Identity, Settings};

/// The socket on a coordinator's own host, the default.
const DEFAULT_SOCKET: &str = "/var/lib/landfall/api.sock";

/// A coordinator and the caller.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    pub(crate) server: Server,
    pub(crate) trust: Option<Trust>,
    pub(crate) identity: Option<Identity>,
    /// Whether a token command may ask the person at the terminal.
    pub(crate) may_ask: bool,
}

impl Endpoint {
    /// Combines flags, environment and contexts.
    ///
    /// # Errors [`Failure::Usage`] if they are contradictory, and the errors of reading the contexts.
    pub(crate) fn find(flags: &Connection) -> Result<Self, Failure> {
        Self::resolve(flags, |name| std::env::var(name).ok(), Contexts::file().as_deref())
    }

    /// A client of that coordinator. Runs the token command, where there is one.
    ///
    /// # Errors
    /// Those of the token, and of [`Client::new`].
    pub(crate) async fn client(&self) -> Result<Client, Failure> {
        let identity = match &self.identity {
            None => None,
            Some(Identity::Certificate { cert, key }) => {
                Some(landfall_client::Identity::Certificate { cert: cert.clone(), key: key.clone() })
            }
            Some(Identity::Token(source)) => Some(landfall_client::Identity::Token(source.read(self.may_ask).await?)),
        };
        let (server, trust) = (self.server.clone(), self.trust.clone());
        Ok(Client::new(&landfall_client::Endpoint { server, trust, identity }).await?)
    }

    fn resolve(flags: &Connection, env: impl Fn(&str) -> Option<String>, file: Option<&Path>) -> Result<Self, Failure> {
        let named = flags.context.clone().or_else(|| env("LANDFALL_CONTEXT").filter(|name| !name.is_empty()));
        let said = Settings::of_flags(flags)?.over(Settings::of_environment(env)?);
        let context = match (named, file) {
            (Some(name), None) => {
                return Err(Failure::Usage(format!(
                    "there is no context \"{name}\": the file of contexts is unknown without XDG_CONFIG_HOME or HOME"
                )));
            }
            // If a flag names another server, the context from the environment does not apply to it.
            (Some(name), Some(file)) => {
                let context = Contexts::read(file)?.get(&name, file)?;
                let meant = flags.context.is_some()
                    || flags.server.as_ref().is_none_or(|server| context.server.parse().as_ref() == Ok(server));
                Some(context).filter(|_| meant)
            }
            // The current context's credentials are for its own server: another server never gets them.
            (None, _) if said.server.is_some() => None,
            (None, Some(file)) => Contexts::read(file)?.current_entry(file)?,
            (None, None) => None,
        };
        let all = said.over(context.map(Entry::into_settings).unwrap_or_default());
        Ok(Self {
            server: all.server.unwrap_or_else(|| Server::Unix(DEFAULT_SOCKET.into())),
            trust: all.trust,
            identity: all.identity,
            may_ask: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    use crate::settings::TokenSource;

    fn env<'a>(pairs: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<String> + 'a {
        |name| pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
    }

    fn contexts(dir: &tempfile::TempDir) -> PathBuf {
        let file = dir.path().join("config.yaml");
        let text = "current: lab\ncontexts:\n  lab: {server: 'https://lab', ca: /lab/ca.pem, tokenFile: /lab/token}\n  \
                    dc2: {server: 'https://dc2:1', caPin: 'sha256:0000000000000000000000000000000000000000000000000000000000000000', cert: /c, key: /k}\n";
        std::fs::write(&file, text).unwrap();
        file
    }

    #[test]
    fn flags_win_over_the_environment_and_that_over_the_context() {
        let dir = tempfile::tempdir().unwrap();
        let file = contexts(&dir);
        let find =
            |flags: &Connection, pairs: &[(&str, &str)]| Endpoint::resolve(flags, env(pairs), Some(&file)).unwrap();
        let none = Connection::default();
        assert_eq!(find(&none, &[]).server.to_string(), "https://lab:7443");
        assert_eq!(find(&none, &[("LANDFALL_CONTEXT", "dc2")]).server.to_string(), "https://dc2:1");
        let dc2 = Connection { context: Some("dc2".into()), ..Connection::default() };
        assert_eq!(find(&dc2, &[("LANDFALL_CONTEXT", "lab")]).server.to_string(), "https://dc2:1");
        let ca = Connection { ca: Some("/mine".into()), ..Connection::default() };
        let found = find(&ca, &[("LANDFALL_TOKEN", "t"), ("LANDFALL_CA", "/other")]);
        assert_eq!(found.trust, Some(Trust::Ca("/mine".into())));
        assert_eq!(found.identity, Some(Identity::Token(TokenSource::Given("t".into()))));
        assert!(Endpoint::resolve(&none, env(&[("LANDFALL_CERT", "/c")]), Some(&file)).is_err());
        assert_eq!(
            Endpoint::resolve(&none, env(&[]), None).unwrap().server.to_string(),
            "unix:///var/lib/landfall/api.sock"
        );
    }

    #[test]
    fn a_contexts_credentials_go_to_no_other_server() {
        let dir = tempfile::tempdir().unwrap();
        let file = contexts(&dir);
        let other = Connection { server: Some("https://elsewhere".parse().unwrap()), ..Connection::default() };
        assert_eq!(Endpoint::resolve(&other, env(&[]), Some(&file)).unwrap().identity, None);
        let by_env = Endpoint::resolve(&Connection::default(), env(&[("LANDFALL_SERVER", "https://x")]), Some(&file));
        assert_eq!(by_env.unwrap().identity, None);
        let named = env(&[("LANDFALL_CONTEXT", "lab")]);
        let found = Endpoint::resolve(&other, &named, Some(&file)).unwrap();
        assert_eq!((found.identity, found.trust), (None, None));
        let own = Connection { server: Some("https://lab".parse().unwrap()), ..Connection::default() };
        assert!(Endpoint::resolve(&own, &named, Some(&file)).unwrap().identity.is_some());
        // Both are stated: another address of the same coordinator.
        let both = Connection { context: Some("lab".into()), ..other };
        assert!(Endpoint::resolve(&both, &named, Some(&file)).unwrap().identity.is_some());
    }

    #[tokio::test]
    async fn a_token_is_one_word_from_file_or_command() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("token");
        std::fs::write(&file, "abc\n").unwrap();
        assert_eq!(TokenSource::File(file.clone()).read(true).await.unwrap(), "abc");
        assert_eq!(TokenSource::Command("echo x-1".into()).read(true).await.unwrap(), "x-1");
        for bad in ["exit 3", "true", "echo a b"] {
            assert!(TokenSource::Command(bad.into()).read(true).await.is_err(), "{bad}");
        }
        // Without a person the command must not ask: its input is empty.
        assert_eq!(TokenSource::Command("cat; echo x-2".into()).read(false).await.unwrap(), "x-2");
        std::fs::write(&file, "").unwrap();
        assert!(TokenSource::File(file).read(true).await.is_err());
    }
}
