//! Redfish (DSP0266): everything is found by reading links, and unknown fields are ignored.

mod boot;
mod client;
mod field;
mod media;
mod reset;
mod signs;
mod slot;
mod system;

use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use landfall_api::{BmcSpec, BmcSystem, PowerState};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use self::client::{Answer, Client};
use self::field::{at, link, links, members};
use crate::error::BmcError;
use crate::log::{Entry, Span, newest};
use crate::{Account, Bmc, BootOverride, Inserted, PowerChange};

/// Systems that a message names, and ports that are read.
const MAX_MEMBERS: usize = 32;
/// Characters of paths in a message.
const MAX_SHOWN: usize = 500;
/// A boot device is read back so often before it counts as not kept: some BMCs show it after a moment.
const READ_BACK: u32 = 5;
/// Between two of those looks.
const READ_BACK_EVERY: Duration = Duration::from_secs(1);
/// For the parts of an inventory; what takes longer stays empty.
const INVENTORY: Duration = Duration::from_secs(120);
/// For reading all logs; what takes longer is left out.
const LOGS: Duration = Duration::from_secs(30);
/// Logs that are read, of the system and of its manager each.
const MAX_LOGS: usize = 4;

/// A computer's system, through its BMC.
pub(crate) struct Redfish {
    client: Client,
    /// The path of its resource.
    system: String,
    /// The resource as it was read last.
    last: Value,
}

impl Redfish {
    /// Reaches the BMC, logs in, and finds the system.
    pub(crate) async fn connect(spec: &BmcSpec, account: Account) -> Result<Self, BmcError> {
        let (mut client, root) = Client::connect(spec, account).await?;
        let found = if spec.address.path().is_empty() {
            find_system(&client, &root).await
        } else {
            Ok(spec.address.path().to_owned())
        };
        // Read at once: of a BMC without sessions this is the login.
        let read = match &found {
            Ok(system) => client.get(system).await,
            Err(error) => Err(error.clone()),
        };
        match (found, read) {
            (Ok(system), Ok(read)) => Ok(Self { client, system, last: read.body }),
            (_, Err(error)) | (Err(error), _) => {
                client.close().await;
                Err(error)
            }
        }
    }

    async fn read(&mut self) -> Result<Answer, BmcError> {
        let answer = self.client.get(&self.system).await?;
        if !answer.body.is_object() {
            return Err(self.client.invalid(&self.system, "it is not a system"));
        }
        self.last.clone_from(&answer.body);
        Ok(answer)
    }

    /// A part of the inventory; null where it cannot be read. A login that is refused ends the whole.
    async fn part(&self, path: &str) -> Result<Value, BmcError> {
        match self.client.get(path).await {
            Ok(answer) => Ok(answer.body),
            Err(error @ BmcError::Refused { .. }) => Err(error),
            Err(_) => Ok(Value::Null),
        }
    }

    /// Adds the entries of the logs in that time.
    async fn read_logs(
        &self, system: &Value, since: Timestamp, now: Timestamp, entries: &mut Vec<Entry>,
    ) -> Result<(), BmcError> {
        let manager = match links(system, &["Links", "ManagedBy"], 1).first() {
            Some(path) => self.present(path).await?,
            None => Value::Null,
        };
        let span = Span { since, now, ahead: signs::ahead(&manager, now) };
        for (of_manager, resource) in [(false, system), (true, &manager)] {
            let Some(services) = link(resource, &["LogServices"]) else { continue };
            for path in members(&self.present(&services).await?, MAX_LOGS) {
                let service = self.present(&path).await?;
                let log = link(&service, &["Entries"]).filter(|_| signs::is_of_hardware(&path, &service, of_manager));
                if let Some(log) = log {
                    self.read_log(&log, span, entries).await?;
                }
            }
        }
        Ok(())
    }

    async fn read_log(&self, path: &str, span: Span, entries: &mut Vec<Entry>) -> Result<(), BmcError> {
        // One that is longer than an answer may be is left out.
        let mut log = match self.client.get(path).await {
            Ok(answer) => answer.body,
            Err(BmcError::Invalid { .. } | BmcError::Failed { .. }) => return Ok(()),
            Err(error) => return Err(error),
        };
        if let Some(rest) = signs::rest(path, &log) {
            log = self.present(&rest).await?;
        }
        entries.extend(signs::entries(&log, span));
        for path in signs::linked(&log) {
            entries.extend(signs::entry(&self.present(&path).await?, span));
        }
        Ok(())
    }

    /// Where the boot device is changed: in the system itself, or in its settings, which AMI's firmware has at `/SD` and applies at the
    /// next start.
    async fn boot_resource(&mut self) -> Result<(String, Answer), BmcError> {
        let answer = self.read().await?;
        if let Some(path) = link(&answer.body, &["@Redfish.Settings", "SettingsObject"]) {
            let settings = self.client.get(&path).await?;
            if at(&settings.body, &["Boot"]).is_some() {
                return Ok((path, settings));
            }
        }
        Ok((self.system.clone(), answer))
    }
}

async fn find_system(client: &Client, root: &Value) -> Result<String, BmcError> {
    let path = link(root, &["Systems"]).unwrap_or_else(|| "/redfish/v1/Systems".to_owned());
    let collection = client.get(&path).await?.body;
    let mut found = members(&collection, MAX_MEMBERS);
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            found.push(last);
            let all: String = found.join(", ").chars().take(MAX_SHOWN).collect();
            Err(client.invalid(
                &path,
                format!("it has several systems; write the path of one behind spec.bmc.address: {all}"),
            ))
        }
        (None, _) => Err(client.invalid(&path, "it has no system")),
    }
}

#[async_trait]
impl Bmc for Redfish {
    async fn power(&mut self) -> Result<Option<PowerState>, BmcError> {
        Ok(system::power(&self.read().await?.body))
    }

    async fn inventory(&mut self) -> Result<BmcSystem, BmcError> {
        let until = Instant::now() + INVENTORY;
        let read = self.read().await?.body;
        let mut found = system::describe(&read);
        if let Some(path) = links(&read, &["Links", "ManagedBy"], 1).first() {
            let manager = self.part(path).await?;
            found.bmc_firmware = field::text(&manager, &["FirmwareVersion"]).unwrap_or_default();
        }
        let ports = match link(&read, &["EthernetInterfaces"]) {
            Some(path) => members(&self.part(&path).await?, MAX_MEMBERS),
            None => Vec::new(),
        };
        for path in ports {
            match self.present(&path).await {
                Err(error @ BmcError::Refused { .. }) => return Err(error),
                Ok(port) if Instant::now() <= until => found.macs.extend(system::mac(&port)),
                // The machine may be recognised by them: all or none.
                _ => {
                    found.macs.clear();
                    break;
                }
            }
        }
        found.macs.sort_unstable();
        found.macs.dedup();
        Ok(found)
    }

    async fn set_boot(&mut self, boot: BootOverride) -> Result<(), BmcError> {
        let (path, answer) = self.boot_resource().await?;
        if let Some(what) = boot::lacks(&answer.body, boot) {
            return Err(self.client.unsupported(&path, what));
        }
        let body = boot::body(&answer.body, boot);
        match (self.client.patch(&path, &body, answer.etag.as_deref()).await, boot::without_mode(&body)) {
            // The mode may be what it refuses.
            (Err(BmcError::Failed { status: 400, .. }), Some(body)) => {
                let etag = self.client.get(&path).await?.etag;
                self.client.patch(&path, &body, etag.as_deref()).await?;
            }
            (outcome, _) => outcome?,
        }
        let mut looks = 0;
        loop {
            let read = self.client.get(&path).await?.body;
            looks += 1;
            match boot::differs(&read, boot) {
                None => return Ok(()),
                Some(read) if looks == READ_BACK => {
                    return Err(self.client.not_kept(&path, boot::describe(boot), read));
                }
                Some(_) => sleep(READ_BACK_EVERY).await,
            }
        }
    }

    async fn insert(&mut self, url: &str) -> Result<Inserted, BmcError> {
        self.insert_medium(url).await
    }

    async fn eject(&mut self, url: &str, drive: Option<&str>) -> Result<(), BmcError> {
        self.eject_medium(url, drive).await
    }

    async fn change_power(&mut self, change: PowerChange) -> Result<(), BmcError> {
        // As the caller read it a moment ago: a look between its decision and the deed would only make that older.
        // "Off" is an error of a computer that is off.
        if reset::is_done(system::power(&self.last), change) {
            return Ok(());
        }
        let Some(kind) = reset::choose(&self.last, change) else {
            return Err(self.client.unsupported(&self.system, format!("a reset for {change:?}")));
        };
        let target = reset::target(&self.last, &self.system);
        let asked = self.client.post(&target, &json!({ "ResetType": kind })).await.map(drop);
        match asked {
            // It may have changed between the two requests.
            Err(BmcError::Failed { .. }) if reset::is_done(self.power().await?, change) => Ok(()),
            outcome => outcome,
        }
    }

    async fn signs(&mut self, since: Timestamp, now: Timestamp) -> Result<Vec<String>, BmcError> {
        let system = self.read().await?.body;
        let mut entries = Vec::new();
        // What was read until then is shown.
        let outcome = timeout(LOGS, self.read_logs(&system, since, now, &mut entries)).await;
        if let Ok(Err(error @ BmcError::Refused { .. })) = outcome {
            return Err(error);
        }
        // That of the last start otherwise.
        let is_on = system::power(&system) != Some(PowerState::Off);
        let progress = signs::progress(&system).filter(|_| is_on);
        Ok(progress.into_iter().chain(newest(entries)).collect())
    }

    async fn close(&mut self) {
        self.client.close().await;
    }
}
