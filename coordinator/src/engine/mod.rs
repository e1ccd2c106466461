//! The engine: the only writer of status. It applies the pure state machine to stored documents, one machine at a
//! time, and carries out what it asks for.
//!
//! Everything that changes a machine or its run happens under that machine's lock, in one order: the event is made
//! durable, the state machine steps, the new status is stored by compare-and-swap, and only then effects go out. A
//! crash between any two of these is mended at the start by replaying the log from where the status stands.

mod assign;
mod authority;
mod boot;
mod derive;
mod documents;
mod drive;
mod enroll;
mod events;
mod index;
mod live;
mod provision;
mod secret;
mod sessions;
mod source;
mod telemetry;
#[cfg(test)]
mod tests;
mod ticker;
mod types;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use jiff::Timestamp;
use landfall_api::{Problem, WorkflowPhase};

pub use authority::{CertificateAuthority, IssuedCertificate};
pub use sessions::Opened;
pub use source::{HttpSources, SourceChecker, Wanted};
pub use types::*;

use crate::{config::Config, store::Store, workflow::Context};
use index::Index;
use live::Machines;
use telemetry::Logs;

/// Where the engine reads the time; a test's own clock stands in for it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What of the configuration the engine goes by.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long an agent may act unheard.
    pub lease: Duration,
    /// Between heartbeats.
    pub heartbeat: Duration,
    /// From the boot script to the enrolment.
    pub boot_token_ttl: Duration,
    /// How long a machine's certificate is good for.
    pub certificate_ttl: Duration,
    /// From the reboot to the phone-home, where the template names none.
    pub phone_home_deadline: Duration,
    /// Where installed systems phone home.
    pub phone_home_url: String,
}

impl Settings {
    /// As configured.
    pub fn from_config(config: &Config) -> Self {
        Self {
            lease: config.limits.lease.get(),
            heartbeat: config.limits.heartbeat.get(),
            boot_token_ttl: config.limits.boot_token_ttl.get(),
            certificate_ttl: config.limits.certificate_ttl.get(),
            phone_home_deadline: config.limits.phone_home_deadline.get(),
            phone_home_url: format!("{}/phone-home", config.tls_url()),
        }
    }
}

/// The engine. Cloning it shares it.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    settings: Settings,
    clock: Clock,
    authority: Arc<dyn CertificateAuthority>,
    sources: Arc<dyn SourceChecker>,
    index: Mutex<Index>,
    machines: Machines,
    logs: Logs,
    started: Timestamp,
}

impl Engine {
    /// An engine over a store; replays what a crash left between the log and the statuses.
    ///
    /// # Errors
    /// [`Problem`] if the store cannot be read.
    pub async fn start(
        store: Store,
        settings: Settings,
        clock: Clock,
        authority: Arc<dyn CertificateAuthority>,
        sources: Arc<dyn SourceChecker>,
    ) -> Result<Self, Problem> {
        let mut index = Index::default();
        for machine in store.machines().await? {
            index.put_machine(&machine);
        }
        let workflows = store.workflows().await?;
        for workflow in &workflows {
            index.put_workflow(workflow);
        }
        let started = clock();
        let engine = Self {
            inner: Arc::new(Inner {
                store,
                settings,
                clock,
                authority,
                sources,
                index: Mutex::new(index),
                machines: Machines::default(),
                logs: Logs::default(),
                started,
            }),
        };
        for workflow in workflows {
            let terminal = workflow.status.as_ref().is_none_or(|s| s.phase.is_terminal());
            if !terminal && workflow.status.as_ref().is_some_and(|s| s.phase != WorkflowPhase::Pending) {
                engine.replay(&workflow).await?;
            }
        }
        Ok(engine)
    }

    fn now(&self) -> Timestamp {
        (self.inner.clock)()
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        // Every change of the index is a single insertion or removal, so a poisoned lock is still good.
        self.inner.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn context(&self, workflow_uid: uuid::Uuid) -> Context {
        Context {
            workflow_uid,
            lease: self.inner.settings.lease,
            phone_home_deadline: self.inner.settings.phone_home_deadline,
        }
    }

    /// The settings it goes by.
    pub fn settings(&self) -> &Settings {
        &self.inner.settings
    }
}
