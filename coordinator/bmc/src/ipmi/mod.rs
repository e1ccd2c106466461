//! IPMI 2.0 over LAN (RMCP+), with cipher suites 17 and 3. Numbers of sections and tables are those of its specification, second
//! generation, v2.0 rev. 1.1.
//!
//! Written here: of the crates that there are one knows suite 3 alone and blocks, one falls back to no encryption, and one is GPL.

mod boot;
mod channel;
mod console;
mod errors;
mod event;
mod fru;
mod identity;
mod inventory;
mod keys;
mod line;
mod login;
mod message;
mod packet;
mod random;
mod sel;
mod session;
mod setup;
mod sign_in;
mod sol;
mod sol_link;
mod suite;
mod window;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{BmcSpec, BmcSystem, PowerState};
use tokio::time::sleep;

pub use self::console::Console;
use self::message::Command;
use self::sign_in::Host;
use crate::error::BmcError;
use crate::{Account, Bmc, BootOverride, Inserted, PowerChange};

/// A boot device is read back so often before it counts as not kept: some BMCs show it after a moment.
const READ_BACK: u32 = 5;
/// Between two of those looks.
const READ_BACK_EVERY: Duration = Duration::from_secs(1);
/// "Not supported in the present state" (table 5-2), such as off of a computer that is off.
const PRESENT_STATE: u8 = 0xd5;

/// Whether an answer says that the BMC does not have this: one that is busy, or refuses a login, says nothing of it.
fn lacks(error: &BmcError) -> bool {
    // From 80h on they are codes of requests, below statuses of logins (tables 5-2 and 13-15).
    matches!(error, BmcError::Answered { code: 0x80.., .. }) && !error.is_passing()
}

/// A computer, through its BMC.
pub(crate) struct Ipmi(Host);

impl Ipmi {
    /// Reaches the BMC and logs in.
    pub(crate) async fn connect(spec: &BmcSpec, account: Account) -> Result<Self, BmcError> {
        Host::connect(&spec.address, account).await.map(Self)
    }

    async fn is_on(&mut self) -> Result<bool, BmcError> {
        let answer = self.0.ask(Command::CHASSIS_STATUS, &[]).await?;
        // "Current power state" (28.2): the first bit.
        match answer.first() {
            Some(state) => Ok(state & 1 != 0),
            None => Err(self.0.invalid("it has no power state")),
        }
    }

    /// The boot flags; absent: they cannot be read.
    async fn flags(&mut self) -> Result<Option<[u8; 5]>, BmcError> {
        // The parameter, and no set and block of it (28.13).
        match self.0.ask(Command::GET_BOOT, &[boot::FLAGS, 0, 0]).await {
            Ok(answer) => Ok(boot::read(&answer)),
            Err(error) if lacks(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn set(&mut self, parameter: u8, value: &[u8]) -> Result<(), BmcError> {
        self.0.ask(Command::SET_BOOT, &[&[parameter], value].concat()).await.map(drop)
    }

    /// Sets a parameter that not every BMC has.
    async fn set_if_any(&mut self, parameter: u8, value: &[u8]) -> Result<(), BmcError> {
        match self.set(parameter, value).await {
            Err(error) if lacks(&error) => Ok(()),
            outcome => outcome,
        }
    }
}

#[async_trait]
impl Bmc for Ipmi {
    async fn power(&mut self) -> Result<Option<PowerState>, BmcError> {
        Ok(Some(if self.is_on().await? { PowerState::On } else { PowerState::Off }))
    }

    async fn inventory(&mut self) -> Result<BmcSystem, BmcError> {
        inventory::read(&mut self.0).await
    }

    async fn insert(&mut self, _url: &str) -> Result<Inserted, BmcError> {
        Err(self.0.unsupported("virtual media: IPMI has none".into()))
    }

    async fn eject(&mut self, _url: &str, _drive: Option<&str>) -> Result<(), BmcError> {
        Ok(())
    }

    async fn set_boot(&mut self, boot: BootOverride) -> Result<(), BmcError> {
        let was = self.flags().await?.map_or(0, |[first, ..]| first);
        let Some(flags) = boot::flags(boot, was) else {
            return Err(self.0.unsupported(boot::describe(boot)));
        };
        self.set_if_any(boot::SET_IN_PROGRESS, &[1]).await?;
        self.set_if_any(boot::VALID_CLEARING, &boot::KEEP_WITHOUT_START).await?;
        self.set_if_any(boot::ACKNOWLEDGE, &boot::NOT_BY_FIRMWARE).await?;
        let written = self.set(boot::FLAGS, &flags).await;
        // "Commit write", where a BMC has it; then "set complete", also where it refuses the flags.
        self.set_if_any(boot::SET_IN_PROGRESS, &[2]).await?;
        self.set_if_any(boot::SET_IN_PROGRESS, &[0]).await?;
        written?;
        let mut looks = 0;
        loop {
            let Some(read) = self.flags().await? else { return Ok(()) };
            looks += 1;
            match boot::differs(read, boot) {
                None => return Ok(()),
                Some(read) if looks == READ_BACK => return Err(self.0.not_kept(boot::describe(boot), read)),
                Some(_) => sleep(READ_BACK_EVERY).await,
            }
        }
    }

    async fn change_power(&mut self, change: PowerChange) -> Result<(), BmcError> {
        let wanted = change == PowerChange::On;
        if self.is_on().await? == wanted {
            return Ok(());
        }
        // Table 28-4.
        let control = match change {
            PowerChange::Off => 0x00,
            PowerChange::On => 0x01,
            PowerChange::Shutdown => 0x05,
        };
        match self.0.ask(Command::CHASSIS_CONTROL, &[control]).await {
            Ok(_) => Ok(()),
            // It may have changed between the two requests.
            Err(BmcError::Answered { code: PRESENT_STATE, .. }) if self.is_on().await? == wanted => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn signs(&mut self, since: Timestamp, now: Timestamp) -> Result<Vec<String>, BmcError> {
        sel::read(&mut self.0, since, now).await
    }

    async fn close(&mut self) {
        self.0.close().await;
    }
}

#[cfg(test)]
mod tests;
