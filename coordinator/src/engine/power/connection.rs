//! A machine's BMC, reached with the account of its document; and what it reads, in the machine's document.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use landfall_api::{BmcAddress, BmcSpec, Machine, PowerState, Problem, RefusedLogin};
use landfall_bmc::{Account, Bmc, BmcError, connect, wake_on_lan};
use landfall_machine::power::{self, Contact};
use landfall_machine::{Input, is_open};
use tokio::time::Instant;

use super::super::secrets::Version;
use super::control::Control;
use super::documents::Documents;
use super::record::contact;
use super::{Noted, OFF_FOR, Shared, lock};

/// Between two readings of the ports of a computer that is awaited, and has known ports already.
const LIST_AGAIN: Duration = Duration::from_secs(60);

/// A session at a BMC, and the account that it is with.
struct Open {
    bmc: Box<dyn Bmc>,
    account: Version,
}

/// One machine's BMC, or what stands in for it.
pub(super) struct Connection {
    shared: Arc<Shared>,
    machine: String,
    control: Control,
    noted: Arc<Mutex<Noted>>,
    open: Option<Open>,
    /// Since when the power has read off without a break.
    off_since: Option<Instant>,
    /// When the computer's ports were last asked for by [`Self::read_again`].
    listed: Option<Instant>,
}

impl Connection {
    pub(super) const fn new(shared: Arc<Shared>, machine: String, control: Control, noted: Arc<Mutex<Noted>>) -> Self {
        Self { shared, machine, control, noted, open: None, off_since: None, listed: None }
    }

    /// The BMC, where there is a session.
    pub(super) fn bmc(&mut self) -> Option<&mut Box<dyn Bmc>> {
        self.open.as_mut().map(|open| &mut open.bmc)
    }

    /// Where the BMC is, if there is one.
    pub(super) fn address(&self) -> Option<&BmcAddress> {
        self.control.address()
    }

    /// Whether a web server stands in for the BMC: each of its calls is a login.
    fn is_webhook(&self) -> bool {
        self.address().is_some_and(|address| address.protocol().is_webhook())
    }

    /// Whether the power read off the last time.
    pub(super) const fn is_off(&self) -> bool {
        self.off_since.is_some()
    }

    pub(super) async fn close(&mut self) {
        if let Some(mut open) = self.open.take() {
            open.bmc.close().await;
        }
    }

    /// Whether the account that was missing or refused may be another now.
    pub(super) async fn has_new_account(&self) -> Result<bool, Problem> {
        let waits = lock(&self.noted).secret.clone();
        Ok(match waits {
            Some((secret, version)) => self.shared.vault.version_of(&secret).await? != version,
            None => false,
        })
    }

    /// Logs in if need be and reads the power; what came of it is in the machine's document then.
    pub(super) async fn read(&mut self, found: &Documents) -> Result<Contact, Problem> {
        let spec = match self.control.clone() {
            Control::Bmc(spec) => spec,
            Control::WakeOnLan(wake) => {
                let (spec, macs) = &*wake;
                let from = self.shared.fleet.settings().advertise;
                // There is no account, and nothing to read.
                let open = || Open { bmc: wake_on_lan(spec, macs, from), account: Version::default() };
                self.open.get_or_insert_with(open);
                // What was read of a BMC that the machine had, and tried through it, says nothing any more.
                if found.bmc().address.is_some() {
                    self.change(power::erase).await?;
                }
                return Ok(Contact::Reads(None));
            }
        };
        let mut read = self.power(&spec, found).await?;
        if let Err(BmcError::SessionEnded { .. }) = read {
            // A BMC ends sessions as it likes. One that does not know a new one either does not know the account's rights.
            read = self.power(&spec, found).await?;
            if let Err(BmcError::SessionEnded { url }) = read {
                read = Ok(Contact::Forbidden(format!("{url} does not accept the session that it gave")));
            }
        }
        let read = match read {
            Ok(read) => read,
            Err(error) => {
                self.close().await;
                contact(&error)
            }
        };
        self.show(&read).await?;
        if matches!(read, Contact::Reads(_)) && found.machine.spec.identity.is_empty() {
            self.read_again(found).await?;
            let busy = found.may_act || found.connected || found.workflow.as_deref().is_some_and(is_open);
            self.shared.identities.by_bmc(&self.machine, &spec.address, busy).await?;
        }
        self.note_off(&read, found).await?;
        Ok(read)
    }

    /// Writes what a look came to into the machine's document.
    pub(super) async fn show(&self, read: &Contact) -> Result<(), Problem> {
        let now = self.shared.fleet.now();
        self.change(|machine| power::show(machine, read, now)).await
    }

    /// What a request of the BMC ended with, in the machine's document; a session that it does not take any more is closed.
    pub(super) async fn failed(&mut self, error: &BmcError) -> Result<(), Problem> {
        let Some(address) = self.control.address() else { return Ok(()) };
        if let (BmcError::Refused { .. }, Some(open)) = (error, &self.open) {
            let account = open.account;
            self.shared.logins.at(&address.base()).await.refused(account);
            self.note_refused(account).await?;
        }
        self.show(&contact(error)).await?;
        if !matches!(error, BmcError::Forbidden { .. }) {
            self.close().await;
        }
        Ok(())
    }

    async fn power(&mut self, spec: &BmcSpec, found: &Documents) -> Result<Result<Contact, BmcError>, Problem> {
        let secret = &spec.credentials;
        // Noted before it is read: a version that comes between the two is looked at again.
        lock(&self.noted).secret = Some((secret.clone(), self.shared.vault.version_of(secret).await?));
        let (account, version) = match self.shared.vault.bmc_account(secret, &spec.address).await {
            Ok(account) => account,
            Err(problem) => {
                self.close().await;
                return Ok(Ok(Contact::NoAccount(problem.to_string())));
            }
        };
        if self.open.as_ref().is_some_and(|open| open.account != version) {
            self.close().await;
        }
        if self.open.is_none()
            && let Err(failed) = self.log_in(spec, found, account, version).await?
        {
            return Ok(Ok(failed));
        }
        let mut login = match self.is_webhook() {
            true => Some(self.shared.logins.at(&spec.address.base()).await),
            false => None,
        };
        if login.as_ref().is_some_and(|login| login.has_refused(version)) {
            drop(login);
            self.close().await;
            return self.is_refused(version, found).await.map(Ok);
        }
        let Some(open) = &mut self.open else { return Ok(Ok(Contact::Silent("its session has ended".into()))) };
        let read = open.bmc.power().await;
        if let (Err(BmcError::Refused { .. }), Some(login)) = (&read, &mut login) {
            // Before another machine's task calls the same server.
            login.refused(version);
        }
        drop(login);
        match read {
            Ok(power) => {
                lock(&self.noted).secret = None;
                Ok(Ok(Contact::Reads(power)))
            }
            Err(error @ BmcError::SessionEnded { .. }) => {
                self.open = None;
                Ok(Err(error))
            }
            Err(error) => {
                let read = contact(&error);
                self.failed(&error).await?;
                Ok(Ok(read))
            }
        }
    }

    /// One login; none with an account that was refused. A new session begins with what the BMC says of the computer.
    async fn log_in(
        &mut self, spec: &BmcSpec, found: &Documents, account: Account, version: Version,
    ) -> Result<Result<(), Contact>, Problem> {
        let mut login = self.shared.logins.at(&spec.address.base()).await;
        let now = self.shared.fleet.store().machine(&self.machine).await?;
        let status = now.as_ref().and_then(|machine| machine.status.as_ref()?.bmc.as_ref());
        // By the console too, which may be at the same place.
        let stored = status.map(|bmc| [&bmc.refused, &bmc.console_refused]).into_iter().flatten().flatten();
        let is_here = |refused: &&RefusedLogin| refused.address.base() == spec.address.base();
        if login.is_refused(version, &self.machine, stored.filter(is_here)) {
            drop(login);
            return self.is_refused(version, found).await.map(Err);
        }
        let bmc = match connect(spec, account, &self.machine).await {
            Ok(bmc) => bmc,
            Err(error) => {
                if matches!(error, BmcError::Refused { .. }) {
                    login.refused(version);
                    drop(login);
                    self.note_refused(version).await?;
                }
                return Ok(Err(contact(&error)));
            }
        };
        drop(login);
        let open = self.open.insert(Open { bmc, account: version });
        match open.bmc.inventory().await {
            Ok(system) => {
                self.change(|machine| power::status_of(machine).system = Some(system.clone())).await?;
                Ok(Ok(()))
            }
            // The power is read next, and says what else is wrong.
            Err(error @ BmcError::Refused { .. }) => {
                self.failed(&error).await?;
                Ok(Err(contact(&error)))
            }
            Err(_) => Ok(Ok(())),
        }
    }

    /// The BMC has refused the account, and is not asked with it again.
    async fn is_refused(&self, version: Version, found: &Documents) -> Result<Contact, Problem> {
        let stored =
            found.bmc().refused.filter(|refused| Some(refused.address.base()) == self.address().map(BmcAddress::base));
        if stored.is_none_or(|refused| (refused.secret_uid, refused.version) != version) {
            self.note_refused(version).await?;
        }
        let why = "the BMC has refused this account; it is tried again once the Secret or the address changes";
        Ok(Contact::Refused(why.to_owned()))
    }

    /// Stored before any other login: a restart must not try the account again.
    async fn note_refused(&self, (secret_uid, version): Version) -> Result<(), Problem> {
        let Some(address) = self.control.address().cloned() else { return Ok(()) };
        let refused = RefusedLogin { address, secret_uid, version, at: self.shared.fleet.now() };
        self.change(|machine| power::status_of(machine).refused = Some(refused.clone())).await?;
        self.shared.logins.at(&refused.address.base()).await.is_stored((secret_uid, version), &self.machine);
        Ok(())
    }

    /// A machine that reads off for a while does not act on its lease any more.
    async fn note_off(&mut self, read: &Contact, found: &Documents) -> Result<(), Problem> {
        if *read != Contact::Reads(Some(PowerState::Off)) {
            self.off_since = None;
            return Ok(());
        }
        let so_long = self.off_since.get_or_insert_with(Instant::now).elapsed();
        // An outlet may be one of two that the machine has.
        let is_sure = !self.is_webhook();
        if so_long >= OFF_FOR && found.may_act && is_sure {
            tracing::info!(machine = self.machine, "the machine has no power; nothing acts on its lease any more");
            self.shared.steps.hand_in(&self.machine, Input::ReadsOff(so_long)).await?;
        }
        Ok(())
    }

    /// Changes the machine's status. What was read of a BMC that its document does not name any more is dropped.
    pub(super) async fn change(&self, change: impl Fn(&mut Machine) + Send) -> Result<(), Problem> {
        let address = self.address().cloned();
        let change = move |machine: &mut Machine| {
            if machine.spec.bmc.as_ref().map(|bmc| &bmc.address) == address.as_ref() {
                change(machine)
            }
        };
        self.shared.fleet.mutate_machine(&self.machine, change).await.map(drop)
    }

    /// Reads what the BMC says of the computer once more: some list its ports, or all of them, only when it was on.
    async fn read_again(&mut self, found: &Documents) -> Result<(), Problem> {
        let is_awaited = !found.connected && found.workflow.as_deref().is_some_and(is_open);
        let is_late = self.listed.is_none_or(|listed| listed.elapsed() >= LIST_AGAIN);
        let is_known = !found.machine.macs().is_empty();
        if is_known && (!is_awaited || !is_late) {
            return Ok(());
        }
        self.listed = Some(Instant::now());
        if let Some(open) = &mut self.open
            && let Ok(system) = open.bmc.inventory().await
        {
            self.change(|machine| power::status_of(machine).system = Some(system.clone())).await?;
        }
        Ok(())
    }
}
