//! A BMC that is logged in at: a session is opened where there is none, and renewed once where it does not answer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use hickory_resolver::TokioResolver;
use landfall_api::BmcAddress;
use tokio::time::timeout;

use super::errors::{forbidden, meaning, of_login};
use super::line::Line;
use super::login::{Failed, log_in};
use super::message::Command;
use super::session::Session;
use super::setup::Role;
use crate::Account;
use crate::error::BmcError;

/// RMCP's port (13.1.1).
const PORT: u16 = 623;
/// For the address of a name.
const LOOKUP: Duration = Duration::from_secs(10);
/// Addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// A name's bytes (13.20), and a password's (22.30).
const MAX_USERNAME: usize = 16;
const MAX_PASSWORD: usize = 20;
/// "Insufficient privilege" (table 5-2).
const PRIVILEGE: u8 = 0xd4;

/// A BMC, with the session where there is one.
pub(super) struct Host {
    url: String,
    host: String,
    port: u16,
    account: Account,
    role: Role,
    session: Option<Session>,
}

impl Host {
    /// Reaches the BMC and logs in.
    pub(super) async fn connect(address: &BmcAddress, account: Account) -> Result<Self, BmcError> {
        let (url, host) = (address.base(), address.host().to_owned());
        let (name, password) = (account.username.len(), account.password.len());
        let said = match () {
            () if name > MAX_USERNAME => format!(": IPMI's names have at most {MAX_USERNAME} bytes, this has {name}"),
            () if password > MAX_PASSWORD => {
                format!(": IPMI's passwords have at most {MAX_PASSWORD} bytes, this has {password}")
            }
            () => String::new(),
        };
        if !said.is_empty() {
            return Err(BmcError::Refused { url, username: account.username, said });
        }
        let port = address.port().unwrap_or(PORT);
        let mut host = Self { url, host, port, account, role: Role::Operator, session: None };
        host.open().await?;
        Ok(host)
    }

    /// Asks, and returns the answer's data without the completion code.
    pub(super) async fn ask(&mut self, command: Command, data: &[u8]) -> Result<Vec<u8>, BmcError> {
        let mut renewed = self.session.as_ref().is_none_or(Session::is_stale);
        if renewed {
            self.open().await?;
        }
        loop {
            let Some(session) = &mut self.session else {
                return Err(self.unreachable("its session has ended".into()));
            };
            match session.ask(command, data).await {
                Ok(answer) if answer.code == 0 => return Ok(answer.data),
                Ok(answer) if answer.code == PRIVILEGE => self.rise().await?,
                Ok(answer) => {
                    let (url, code) = (self.url.clone(), answer.code);
                    return Err(BmcError::Answered { url, request: command.name, code, said: meaning(code) });
                }
                // It may have ended the session by itself, or have started anew.
                Err(_) if !renewed => {
                    renewed = true;
                    self.open().await?;
                }
                Err(why) => {
                    self.close().await;
                    return Err(self.unreachable(why));
                }
            }
        }
    }

    /// Some BMCs want an administrator for what the specification lets an operator do.
    async fn rise(&mut self) -> Result<(), BmcError> {
        if self.role == Role::Administrator {
            return Err(forbidden(self.url.clone(), self.account.username.clone()));
        }
        self.role = Role::Administrator;
        let opened = self.open().await;
        if opened.is_err() {
            self.role = Role::Operator;
        }
        opened
    }

    /// Opens a session, and ends the one before.
    async fn open(&mut self) -> Result<(), BmcError> {
        self.close().await;
        let mut why = "its name has no address".to_owned();
        for address in self.addresses().await? {
            let line = match Line::to(address).await {
                Ok(line) => line,
                Err(error) => {
                    why = error.to_string();
                    continue;
                }
            };
            match log_in(line, &self.account, self.role).await {
                Ok(session) => {
                    self.session = Some(session);
                    return Ok(());
                }
                Err(Failed::Silent(said)) => why = said,
                Err(failed) => return Err(of_login(failed, &self.url, &self.account.username)),
            }
        }
        Err(self.unreachable(why))
    }

    async fn addresses(&self) -> Result<Vec<SocketAddr>, BmcError> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![(address, self.port).into()]);
        }
        let lookup = async {
            let resolver = TokioResolver::builder_tokio()?.build()?;
            resolver.lookup_ip(self.host.as_str()).await
        };
        match timeout(LOOKUP, lookup).await {
            Ok(Ok(found)) => Ok(found.iter().take(MAX_ADDRESSES).map(|address| (address, self.port).into()).collect()),
            Ok(Err(error)) => Err(self.unreachable(error.to_string())),
            Err(_) => Err(self.unreachable("its name was not looked up in time".into())),
        }
    }

    /// The session's id at the BMC; 0: there is none.
    pub(super) fn session_id(&self) -> u32 {
        self.session.as_ref().map_or(0, Session::id)
    }

    /// The session alone, for what is no request.
    ///
    /// # Errors
    /// [`BmcError::Unreachable`]: there is none.
    pub(super) fn into_session(mut self) -> Result<Session, BmcError> {
        self.session.take().ok_or_else(|| self.unreachable("its session has ended".into()))
    }

    /// As messages name it.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Ends the session.
    pub(super) async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            session.close().await;
        }
    }

    pub(super) fn unreachable(&self, why: String) -> BmcError {
        BmcError::Unreachable { url: self.url.clone(), why }
    }

    pub(super) fn invalid(&self, what: &str) -> BmcError {
        BmcError::Invalid { url: self.url.clone(), what: what.to_owned() }
    }

    pub(super) fn unsupported(&self, what: String) -> BmcError {
        BmcError::Unsupported { url: self.url.clone(), what }
    }

    pub(super) fn not_kept(&self, what: String, read: String) -> BmcError {
        BmcError::NotKept { url: self.url.clone(), what, read }
    }
}
