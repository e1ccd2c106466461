//! Where documents, events and secrets are kept.

use std::path::{Path, PathBuf};

use axum::http::Uri;
use landfall_store::{DATABASE, PostgresOptions, Risk};
use serde::{Deserialize, Serialize};

/// With this one they are as many as an agent takes.
const MAX_OTHERS: usize = 7;

/// Why `[store]` cannot be used.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) key: &'static str,
    pub(super) what: String,
    pub(super) hint: &'static str,
}

/// The store: SQLite in `data_dir`, or a PostgreSQL database.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StoreConfig {
    /// A PostgreSQL database, such as `postgresql://landfall@db.example/landfall`, without a password. Default none: SQLite.
    pub url: Option<String>,
    /// The CA of the server's certificate, PEM. Default none: the connection is not encrypted.
    pub ca: Option<PathBuf>,
    /// This coordinator's own certificate for the server, PEM. Default none.
    pub certificate: Option<PathBuf>,
    /// The key of that certificate, PEM.
    pub key: Option<PathBuf>,
    /// A file of mode 0600 with the password in its first line. Default none.
    pub password_file: Option<PathBuf>,
    /// What this coordinator starts with although it is not safe. Default nothing.
    pub accept: Vec<Risk>,
}

impl StoreConfig {
    /// Refuses what parses but cannot work. Reads no file.
    pub(super) fn validate(&self) -> Result<(), Fault> {
        let invalid = |key, what: &str, hint| Err(Fault { key, what: what.to_owned(), hint });
        let Some(url) = &self.url else {
            return match self == &Self::default() {
                true => Ok(()),
                false => invalid("store.url", "is missing", "write it, or leave the other keys of [store] out"),
            };
        };
        if self.certificate.is_some() != self.key.is_some() {
            return invalid("store", "has only one of certificate and key", "write both, or neither");
        }
        if self.certificate.is_some() && self.ca.is_none() {
            return invalid("store.ca", "is missing", "name the CA of the server's certificate");
        }
        match PostgresOptions::new(url, Path::new("")) {
            Ok(_) => Ok(()),
            Err(error) => invalid("store.url", &error.to_string(), "see docs/scale.md"),
        }
    }

    /// Refuses coordinators that cannot take this one's place, and addresses that agents would not take.
    pub(super) fn validate_others(&self, others: &[String]) -> Result<(), Fault> {
        let invalid = |what: String, hint| Err(Fault { key: "others", what, hint });
        if others.len() > MAX_OTHERS {
            return invalid(format!("has more than {MAX_OTHERS} coordinators"), "leave some out");
        }
        if !others.is_empty() && self.url.is_none() {
            return invalid(
                "is stated, but the store is this host's own".to_owned(),
                "write [store] url, or leave it out",
            );
        }
        let is_address = |url: &str| {
            url.parse::<Uri>().is_ok_and(|uri| {
                let is_whole = uri.path() == "/" && uri.query().is_none() && !url.ends_with('/');
                uri.scheme_str() == Some("https") && uri.port_u16().is_some() && is_whole
            })
        };
        match others.iter().find(|url| !is_address(url)) {
            Some(url) => invalid(format!("has {url:?}"), "write https://host:port, such as https://192.0.2.11:7443"),
            None => Ok(()),
        }
    }

    /// See [`super::Config::postgres`].
    pub(super) fn postgres(&self, data_dir: &Path) -> Result<Option<PostgresOptions>, Fault> {
        let sqlite = data_dir.join(DATABASE);
        if self.url.is_some() && sqlite.exists() {
            let what = format!("is stated, and {} is there, whose machines would be forgotten", sqlite.display());
            let hint =
                "run landfall-coordinator migrate-store --to postgresql, leave [store] out, or move that database away";
            return Err(Fault { key: "store.url", what, hint });
        }
        self.options(data_dir)
    }

    /// See [`super::Config::store_to_migrate`].
    pub(super) fn options(&self, data_dir: &Path) -> Result<Option<PostgresOptions>, Fault> {
        let invalid = |key, what: String, hint| Fault { key, what, hint };
        let Some(url) = &self.url else { return Ok(None) };
        let of_file = |key| move |error: landfall_store::PostgresError| invalid(key, error.to_string(), "correct it");
        let mut options = PostgresOptions::new(url, data_dir).map_err(of_file("store.url"))?;
        if let Some(path) = &self.password_file {
            options = options.with_password_file(path).map_err(of_file("store.password_file"))?;
        }
        if let Some(ca) = &self.ca {
            let identity = self.certificate.as_deref().zip(self.key.as_deref());
            options = options.with_tls(ca, identity).map_err(of_file("store.ca"))?;
        }
        Ok(Some(options.accepting(&self.accept)))
    }
}
