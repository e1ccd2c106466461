//! Virtual media: a boot medium is put into one of the BMC's virtual drives, and taken out.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use super::field::{link, links, members};
use super::slot::{self, Holds, Slot};
use super::{READ_BACK, READ_BACK_EVERY, Redfish};
use crate::Inserted;
use crate::error::BmcError;

/// For all of an insertion: a BMC may fetch the whole medium first.
const INSERT: Duration = Duration::from_secs(120);
/// From the request to the medium in the drive.
const SHOWN: Duration = Duration::from_secs(90);
/// For all of an ejection.
const EJECT: Duration = Duration::from_secs(60);
/// Drives that are read: BMCs have two to four.
const MAX_DRIVES: usize = 8;
/// Managers of a system that are read.
const MAX_MANAGERS: usize = 4;
/// The managers' collection (DSP0266, 6.2), where a system does not say who manages it.
const MANAGERS: &str = "/redfish/v1/Managers";

impl Redfish {
    /// See [`crate::Bmc::insert`].
    pub(super) async fn insert_medium(&mut self, url: &str) -> Result<Inserted, BmcError> {
        let path = self.system.clone();
        let late = || {
            let what = format!("the medium {url} within {} s", INSERT.as_secs());
            self.client.not_kept(&path, what, "nothing yet".to_owned())
        };
        let late = late();
        timeout(INSERT, self.insert_now(url)).await.unwrap_or(Err(late))
    }

    /// See [`crate::Bmc::eject`].
    pub(super) async fn eject_medium(&mut self, url: &str, drive: Option<&str>) -> Result<(), BmcError> {
        let late = BmcError::Unreachable {
            url: format!("{}{}", self.client.base(), self.system),
            why: format!("it did not eject the medium within {} s", EJECT.as_secs()),
        };
        let eject = async {
            for slot in self.slots().await? {
                if slot.has(url, drive) {
                    self.eject_from(&slot).await?;
                }
            }
            Ok(())
        };
        timeout(EJECT, eject).await.unwrap_or(Err(late))
    }

    async fn insert_now(&mut self, url: &str) -> Result<Inserted, BmcError> {
        let found = self.slots().await?;
        let are_taken = found.iter().any(|slot| slot.holds == Holds::Persons);
        let Some(slot) = slot::choose(found, url) else {
            let what = if are_taken {
                "one more virtual medium: persons use its virtual drives, from the BMC's own page"
            } else {
                "virtual media"
            };
            return Err(self.client.unsupported(&self.system, what));
        };
        let inserted = Inserted { device: slot.device, drive: slot.path.clone() };
        if slot.shows(url) {
            // From a request that was answered too late, or not ejected the last time.
            return Ok(inserted);
        }
        if slot.holds == Holds::Medium {
            self.eject_from(&slot).await?;
        }
        let until = Instant::now() + SHOWN;
        let task = match self.ask_to_insert(&slot, url).await {
            Ok(task) => task,
            // Some answer when they have fetched all of it.
            Err(BmcError::Unreachable { .. }) => None,
            Err(error) => return Err(error),
        };
        loop {
            let error = match self.client.get(&slot.path).await.map(|answer| slot::read(&slot.path, &answer.body)) {
                Ok(Some(read)) if read.has(url, Some(&slot.path)) => return Ok(inserted),
                Ok(read) => {
                    let read = read.map_or_else(|| "no drive".to_owned(), |read| read.describe());
                    self.client.not_kept(&slot.path, format!("the medium {url}"), read)
                }
                Err(error) if error.is_passing() => error,
                Err(error) => return Err(error),
            };
            if let Some(path) = &task
                && let Some(why) = self.failure_of(path).await
            {
                return Err(self.client.not_kept(&slot.path, format!("the medium {url}"), format!("no medium: {why}")));
            }
            if Instant::now() >= until {
                return Err(error);
            }
            sleep(READ_BACK_EVERY).await;
        }
    }

    /// Why a task has failed; absent: it has not, or does not say.
    async fn failure_of(&self, task: &str) -> Option<String> {
        match self.client.get(task).await {
            Ok(answer) => slot::failure_of(&answer.body),
            // A monitor answers as the request would have; one that is gone has nothing to say.
            Err(error @ BmcError::Failed { status: 400 | 405..=499 | 500, .. }) => Some(error.to_string()),
            Err(_) => None,
        }
    }

    /// The virtual drives that a medium may be in: those of the system, or where it has none, of its managers.
    async fn slots(&mut self) -> Result<Vec<Slot>, BmcError> {
        let system = self.read().await?.body;
        let of_system = self.slots_of(&system).await?;
        if !of_system.is_empty() {
            return Ok(of_system);
        }
        let mut managers = links(&system, &["Links", "ManagedBy"], MAX_MANAGERS);
        if managers.is_empty() {
            managers = members(&self.present(MANAGERS).await?, MAX_MANAGERS);
            // Which of several it is does not show.
            managers.truncate(if managers.len() == 1 { 1 } else { 0 });
        }
        let mut found = Vec::new();
        for path in managers {
            let manager = self.present(&path).await?;
            // The drives of a chassis are another computer's too.
            if links(&manager, &["Links", "ManagerForServers"], 2).len() < 2 {
                found.extend(self.slots_of(&manager).await?);
            }
        }
        Ok(found)
    }

    async fn slots_of(&self, resource: &Value) -> Result<Vec<Slot>, BmcError> {
        let Some(path) = link(resource, &["VirtualMedia"]) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        for path in members(&self.present(&path).await?, MAX_DRIVES) {
            found.extend(slot::read(&path, &self.present(&path).await?));
        }
        Ok(found)
    }

    /// A resource that may not be there: null then. One that cannot be read now is another matter.
    pub(super) async fn present(&self, path: &str) -> Result<Value, BmcError> {
        match self.client.get(path).await {
            Ok(answer) => Ok(answer.body),
            Err(BmcError::Failed { status: 404 | 405 | 410 | 501, .. }) => Ok(Value::Null),
            Err(error) => Err(error),
        }
    }

    /// The path of the task that does it, if it takes a while.
    async fn ask_to_insert(&self, slot: &Slot, url: &str) -> Result<Option<String>, BmcError> {
        let mut refused: Option<BmcError> = None;
        for request in slot.insert.iter().flat_map(|action| slot::requests(url).map(|request| (action, request))) {
            let (action, request) = request;
            match self.client.post(action, &request).await {
                // The action is named and not there.
                Err(BmcError::Failed { status: 404 | 405, .. }) if refused.is_none() => break,
                Err(error @ BmcError::Failed { status: 400 | 404 | 405 | 422 | 501, .. }) => {
                    // What is wrong with the medium says more than what is wrong with the request.
                    if refused.as_ref().is_none_or(slot::is_of_the_request) {
                        refused = Some(error);
                    }
                }
                outcome => return outcome,
            }
        }
        match refused {
            Some(error) => Err(error),
            None => self.change(slot, slot::inserted(url)).await.map(|()| None),
        }
    }

    async fn eject_from(&self, slot: &Slot) -> Result<(), BmcError> {
        match &slot.eject {
            // Some refuse a request without a body (HPE).
            Some(action) => drop(self.client.post(action, &json!({})).await?),
            None => self.change(slot, slot::ejected()).await?,
        }
        let mut looks = 0;
        loop {
            let read = slot::read(&slot.path, &self.client.get(&slot.path).await?.body);
            looks += 1;
            match read {
                Some(read) if read.holds != Holds::Nothing && looks == READ_BACK => {
                    return Err(self.client.not_kept(&slot.path, "to eject its medium".to_owned(), read.describe()));
                }
                Some(read) if read.holds != Holds::Nothing => sleep(READ_BACK_EVERY).await,
                _ => return Ok(()),
            }
        }
    }

    /// Changes a drive's resource; in the other form where the BMC refuses the first.
    async fn change(&self, slot: &Slot, [first, other]: [Value; 2]) -> Result<(), BmcError> {
        let etag = self.client.get(&slot.path).await?.etag;
        match self.client.patch(&slot.path, &first, etag.as_deref()).await {
            Err(BmcError::Failed { status: 400, .. }) => self.client.patch(&slot.path, &other, etag.as_deref()).await,
            outcome => outcome,
        }
    }
}
