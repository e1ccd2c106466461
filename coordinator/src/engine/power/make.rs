//! The steps that the BMC makes, and what is noted of them.

use std::time::Duration;

use landfall_api::{BootMedium, BootWay, Machine, Problem};
use landfall_bmc::{BmcError, PowerChange};
use landfall_machine::power::{self, Outcome, Step};
use tokio::time::Instant;

use super::boot::{self, Made, medium_of};
use super::documents::Documents;
use super::driver::{AGAIN, Driver, SWITCHING};

/// Between two magic packets of a machine that does not come.
const WAKE_AGAIN: Duration = Duration::from_secs(60);

impl Driver {
    /// The URL of the boot medium, where the way is from it; or why there is none.
    pub(super) fn medium_for(&self, found: &Documents, way: BootWay) -> Result<Option<String>, String> {
        let is_from_it = way == BootWay::VirtualMedia;
        is_from_it.then(|| medium_of(&found.machine, &self.shared.fleet.settings())).transpose()
    }

    /// Wakes a machine once more: it may have been on its way down, or its switch's port closed, when it was woken first.
    pub(super) async fn wake_again(&mut self) {
        if self.on_since.is_some_and(|since| since.elapsed() < WAKE_AGAIN)
            || self.shared.fleet.is_sure_to_lead().is_err()
        {
            return;
        }
        self.on_since = Some(Instant::now());
        if let Some(bmc) = self.connection.bmc()
            && let Err(error) = bmc.change_power(PowerChange::On).await
        {
            tracing::warn!(machine = self.machine, %error, "the machine is not woken again");
        }
    }

    /// What the BMC says of a machine that did not come, behind a semicolon; or nothing.
    pub(super) async fn signs(&mut self, found: &Documents) -> Result<String, Problem> {
        let on_at = found.bmc().attempts.last().and_then(|attempt| attempt.on_at);
        let (Some(since), Some(bmc)) = (on_at, self.connection.bmc()) else { return Ok(String::new()) };
        match bmc.signs(since, self.shared.fleet.now()).await {
            Ok(signs) if signs.is_empty() => Ok(String::new()),
            Ok(signs) => Ok(format!("; its BMC says: {}", signs.join("; "))),
            Err(error) => {
                self.connection.failed(&error).await?;
                Ok(String::new())
            }
        }
    }

    /// Has the BMC make a step.
    pub(super) async fn make(&mut self, step: &Step, found: &Documents) -> Result<Option<Duration>, Problem> {
        let medium = match step {
            Step::SetBoot(way) => self.medium_for(found, *way),
            _ => Ok(None),
        };
        let medium = match medium {
            Ok(medium) => medium,
            Err(why) => {
                self.end(Outcome::Failed(why)).await?;
                return Ok(None);
            }
        };
        if *step == Step::On {
            let apart = self.shared.fleet.settings().power_on_interval;
            if let Err(left) = self.shared.starts.take_turn(apart) {
                return Ok(Some(left.min(SWITCHING)));
            }
            self.on_since.get_or_insert_with(Instant::now);
        }
        if let Some(url) = &medium {
            self.connection.change(|machine| power::gives(power::status_of(machine), url)).await?;
            let given = BootMedium { url: url.clone(), drive: None, eject_since: None, not_ejected: None };
            self.medium = Some(given);
        }
        if matches!(step, Step::Shutdown | Step::Off) {
            // A workflow may have begun through another coordinator.
            if self.shared.fleet.hear_others().await.is_err() {
                return Ok(Some(SWITCHING));
            }
            match self.documents().await? {
                Some(newest) if self.next(&newest) == *step => {}
                _ => return Ok(None),
            }
        }
        let Some(bmc) = self.connection.bmc() else { return Ok(Some(AGAIN)) };
        self.shared.fleet.is_sure_to_lead()?;
        tracing::info!(machine = self.machine, ?step, "the machine's BMC is asked");
        let made = boot::make(bmc.as_mut(), step, &found.machine, medium.as_deref()).await;
        let now = self.shared.fleet.now();
        let (mut drive, mut left) = (None, None);
        match made {
            Ok(Made::AsAsked) => {}
            Ok(Made::Inserted(path)) => drive = Some(path),
            Ok(Made::NotEjected(error)) => {
                tracing::warn!(machine = self.machine, %error, "the boot medium is not ejected");
                let mut status = found.bmc();
                if error.is_passing() && power::asks_again_to_eject(&mut status, now) {
                    let changed = |machine: &mut Machine| {
                        power::asks_again_to_eject(power::status_of(machine), now);
                    };
                    self.connection.change(changed).await?;
                    self.connection.failed(&error).await?;
                    return Ok(Some(self.again_without_place()));
                }
                left = Some(error.to_string());
            }
            // A system that cannot be asked is switched off later.
            Err(error) if *step == Step::Shutdown && (!error.is_passing() || error.is_of_the_state()) => {
                tracing::warn!(machine = self.machine, %error, "the machine's system cannot be asked to shut down");
            }
            Err(error) => {
                self.connection.failed(&error).await?;
                let limit = self.shared.fleet.limits().netboot_deadline;
                let open = found.bmc().attempts.pop().filter(|attempt| attempt.ended.is_none());
                let is_login = matches!(error, BmcError::Refused { .. } | BmcError::Untrusted { .. });
                // The wait for its turn is not the BMC's.
                let is_asked = self.on_since.is_some_and(|since| since.elapsed() < limit);
                let may_pass = |open| error.is_passing() && (is_asked || power::has_time(&open, limit, now));
                if is_login || open.is_none_or(may_pass) {
                    tracing::warn!(machine = self.machine, %error, "the BMC is asked again");
                    let is_cleared = *step == Step::ClearBoot;
                    return Ok(Some(if is_cleared { self.again_without_place() } else { self.backoff() }));
                }
                self.end(Outcome::Failed(error.to_string())).await?;
                return Ok(Some(SWITCHING));
            }
        }
        self.connection
            .change(|machine| {
                let status = power::status_of(machine);
                match step {
                    Step::ClearBoot => power::cleared(status, left.clone()),
                    step => power::note(status, step, now),
                }
                if let Some(drive) = &drive {
                    power::holds(status, drive);
                }
                power::show_medium(machine, now);
            })
            .await?;
        Ok(if matches!(step, Step::SetBoot(_) | Step::ClearBoot) { None } else { Some(SWITCHING) })
    }
}
