//! A console's login at its BMC: in turn with those of the power, and never with an account that was refused there.

use std::sync::Arc;

use landfall_api::{BmcAddress, BmcSpec, BmcStatus, ErrorCode, Machine, Problem, RefusedLogin};
use landfall_bmc::{BmcError, Console};
use landfall_machine::power;

use super::super::super::secrets::Version;
use super::super::Shared;
use super::super::request::failed;

/// Why there is no console.
pub(super) enum Failed {
    /// The BMC.
    Bmc(BmcError),
    /// The account, or the store.
    Problem(Problem),
}

impl From<Problem> for Failed {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Where the console is, and with which account.
pub(super) struct SignIn {
    pub(super) shared: Arc<Shared>,
    pub(super) machine: String,
    pub(super) spec: Arc<BmcSpec>,
    pub(super) address: BmcAddress,
}

impl SignIn {
    /// One login, and one activation. Not to be cut off: half a login is a session of the BMC that stays open.
    pub(super) async fn open(&self, take_over: bool) -> Result<Console, Failed> {
        let (account, version) = self.shared.vault.bmc_account(&self.spec.credentials, &self.address).await?;
        let mut login = self.shared.logins.at(&self.address.base()).await;
        let status = self.shared.fleet.described(&self.machine).await?.status.as_ref().and_then(|s| s.bmc.clone());
        let status = status.unwrap_or_default();
        let stored = [status.refused, status.console_refused];
        // By the host: the account is the same for its other protocol.
        let here = stored.iter().flatten().filter(|refused| refused.address.host() == self.address.host());
        if login.is_refused(version, &self.machine, here) {
            drop(login);
            let why = "it has refused this account; it is tried again once the Secret or the address changes";
            return Err(failed(&self.machine, why).into());
        }
        match Console::open(&self.address, account, take_over).await {
            Ok(console) => {
                drop(login);
                // The power's own is cleared with its next reading.
                let cleared = match &stored {
                    [_, Some(_)] => self.change(|status| status.console_refused = None).await,
                    _ => Ok(()),
                };
                if let Err(problem) = cleared {
                    console.close().await;
                    return Err(problem.into());
                }
                Ok(console)
            }
            Err(error) => {
                if matches!(error, BmcError::Refused { .. }) {
                    login.refused(version);
                    drop(login);
                    self.note_refused(version).await?;
                }
                Err(Failed::Bmc(error))
            }
        }
    }

    /// Stored before any other login: a restart must not try the account again.
    async fn note_refused(&self, (secret_uid, version): Version) -> Result<(), Problem> {
        let refused = RefusedLogin { address: self.address.clone(), secret_uid, version, at: self.shared.fleet.now() };
        // Not where the power's is: a session of the power that is open still would clear it.
        self.change(|status| status.console_refused = Some(refused.clone())).await?;
        self.shared.logins.at(&refused.address.base()).await.is_stored((secret_uid, version), &self.machine);
        Ok(())
    }

    async fn change(&self, change: impl Fn(&mut BmcStatus) + Send + Sync) -> Result<(), Problem> {
        let change = |machine: &mut Machine| change(power::status_of(machine));
        self.shared.fleet.mutate_machine(&self.machine, change).await.map(drop)
    }

    /// As the reader of the console learns it.
    pub(super) fn problem(&self, failure: Failed) -> Problem {
        match failure {
            Failed::Problem(problem) => problem,
            Failed::Bmc(error @ BmcError::ConsoleBusy { .. }) => {
                let hint = format!("landfall console {} --take-over ends the other one", self.machine);
                Problem::new(ErrorCode::MachineBusy, error.to_string())
                    .at(format!("Machine/{}", self.machine))
                    .hint(hint)
            }
            Failed::Bmc(error) => {
                let what = format!("the console of machine \"{}\" cannot be opened: {error}", self.machine);
                Problem::new(ErrorCode::SourceUnreachable, what)
                    .at(format!("Machine/{}", self.machine))
                    .hint("docs/power.md, \"Console\", says what the BMC needs")
            }
        }
    }
}
