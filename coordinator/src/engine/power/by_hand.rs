//! A machine's power as a person asks for it.

use std::time::Duration;

use landfall_api::{PowerAction, PowerRequest, PowerState, Problem};
use landfall_bmc::{BmcError, PowerChange};
use landfall_machine::power::Contact;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::driver::Driver;
use super::request::{busy, failed, is_as_asked, may_change};

/// A person waits so long for a change of power to be read: some BMCs lag by 30 s.
const SWITCHED: Duration = Duration::from_secs(35);
/// A person waits so long for the machine's turn to be switched on: sixteen of them a second apart, as `landfall power` asks for.
const TURN: Duration = Duration::from_secs(20);
/// A coordinator that stops waits no longer for the power to read off. What one alone does ends within 10 s.
const ENDS: Duration = Duration::from_secs(5);
/// What other coordinators have stored is waited for so often, 2 s each.
const HEARS: usize = 4;
/// Between readings meanwhile.
const POLL: Duration = Duration::from_secs(1);

impl Driver {
    /// Does what a person asked for, and reads the power until it is so, or for a while.
    pub(super) async fn perform(
        &mut self, request: PowerRequest, stop: &CancellationToken,
    ) -> Result<Option<PowerState>, Problem> {
        let changes: &[PowerChange] = match request.action {
            PowerAction::Status => &[],
            PowerAction::On => &[PowerChange::On],
            PowerAction::Off => &[PowerChange::Off],
            PowerAction::Shutdown => &[PowerChange::Shutdown],
            PowerAction::Cycle => &[PowerChange::Off, PowerChange::On],
        };
        let mut power = self.reads().await?;
        let reads_power = self.connection.address().is_some();
        // Before its power is cut, where it is to be switched on afterwards.
        if changes.contains(&PowerChange::On) && (changes.len() > 1 || power != Some(PowerState::On)) {
            self.wait_for_turn().await?;
        }
        for (n, change) in changes.iter().enumerate() {
            let is_last = n + 1 == changes.len();
            // Also where the request has waited, and a workflow has begun meanwhile, at another coordinator too.
            if n == 0 && !request.force {
                self.hear_others().await?;
            }
            let Some(found) = self.documents().await? else { break };
            may_change(&found, request)?;
            let Some(bmc) = self.connection.bmc() else { break };
            // Once: a machine that was switched off for it must not stay so.
            if n == 0 {
                self.shared.fleet.is_sure_to_lead()?;
            }
            if let Err(error) = bmc.change_power(*change).await {
                if !matches!(error, BmcError::Unsupported { .. }) {
                    self.connection.failed(&error).await?;
                }
                return Err(failed(&self.machine, &error.to_string()));
            }
            tracing::info!(machine = self.machine, ?change, "a person had the machine's power changed");
            if !reads_power {
                continue;
            }
            let mut until = Instant::now() + SWITCHED;
            power = self.reads_after(is_last).await?;
            while !is_as_asked(power, *change) && Instant::now() < until {
                if stop.run_until_cancelled(sleep(POLL)).await.is_none() {
                    until = until.min(Instant::now() + ENDS);
                    sleep(POLL).await;
                }
                power = self.reads_after(is_last).await?;
            }
            if !is_as_asked(power, *change) && !is_last {
                let waited = match stop.is_cancelled() {
                    true => "before this coordinator stops".to_owned(),
                    false => format!("{} s after it was switched off", SWITCHED.as_secs()),
                };
                let why = format!("the power does not read off {waited}; the machine is not switched on again");
                return Err(failed(&self.machine, &why));
            }
        }
        Ok(power)
    }

    /// Takes in what other coordinators have stored, though they are slow.
    async fn hear_others(&self) -> Result<(), Problem> {
        for _ in 1..HEARS {
            if self.shared.fleet.hear_others().await.is_ok() {
                return Ok(());
            }
        }
        self.shared.fleet.hear_others().await
    }

    /// Waits until one more machine may be switched on.
    async fn wait_for_turn(&self) -> Result<(), Problem> {
        let until = Instant::now() + TURN;
        while let Err(left) = self.shared.starts.take_turn(self.shared.fleet.settings().power_on_interval) {
            if Instant::now() + left > until {
                return Err(busy(&self.machine));
            }
            sleep(left.min(POLL)).await;
        }
        Ok(())
    }

    /// The power, read now. Where a change is to follow, no fault prevents it: the machine would stay off.
    async fn reads_after(&mut self, is_last: bool) -> Result<Option<PowerState>, Problem> {
        if is_last {
            return self.reads().await;
        }
        if let Some(bmc) = self.connection.bmc()
            && let Ok(power) = bmc.power().await
        {
            return Ok(power);
        }
        Ok(self.reads().await.unwrap_or_default())
    }

    /// The power, read now.
    async fn reads(&mut self) -> Result<Option<PowerState>, Problem> {
        let Some(found) = self.documents().await? else { return Ok(None) };
        self.read = Some(Instant::now());
        match self.connection.read(&found).await? {
            Contact::Reads(power) => Ok(power),
            Contact::Silent(why)
            | Contact::Untrusted(why)
            | Contact::Refused(why)
            | Contact::Forbidden(why)
            | Contact::Invalid(why)
            | Contact::NoAccount(why) => Err(failed(&self.machine, &why)),
        }
    }
}
