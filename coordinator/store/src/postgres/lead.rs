//! Of several coordinators with one database, one leads. The others wait, and the one that leads says which of them are there.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tokio_postgres::Client;

use super::connect::{Link, within};
use super::error::PostgresError;
use super::options::PostgresOptions;
use super::presence::{self, Holder, IS_THERE, LEADS, MIGRATION, NAME, SILENT};
use super::tenure::{Tenure, since_boot};

/// How often one that waits looks.
const LOOK: Duration = Duration::from_millis(200);
/// How often the one that leads asks: each answer confirms that it does.
const ASK: Duration = Duration::from_millis(500);
/// One that is not there gets so long to come back: all lose their sessions where the server restarts.
const COMES_BACK: Duration = Duration::from_secs(5);
/// Between two tries to connect.
const PAUSE: Duration = Duration::from_secs(1);

/// The coordinators that are there, by what each is called.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct There(HashSet<String>);

impl There {
    /// Whether that coordinator is.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name.get(..NAME).unwrap_or(name))
    }

    /// Those that are none of these.
    pub fn beside<'n>(&self, known: impl IntoIterator<Item = &'n str>) -> Vec<&str> {
        let known: HashSet<_> = known.into_iter().map(|name| name.get(..NAME).unwrap_or(name)).collect();
        self.0.iter().map(String::as_str).filter(|name| !known.contains(name)).collect()
    }
}

impl<S: Into<String>> FromIterator<S> for There {
    fn from_iter<I: IntoIterator<Item = S>>(names: I) -> Self {
        Self(names.into_iter().map(Into::into).collect())
    }
}

/// This coordinator leads, until the session that says so is lost.
pub struct Lead {
    tenure: Arc<Tenure>,
    there: watch::Receiver<Option<There>>,
    keeper: JoinHandle<()>,
}

impl Lead {
    /// Waits until no other one leads. `leads` hears the name of each that does meanwhile. One that has been silent for 5 s leads no more.
    ///
    /// # Errors
    /// [`PostgresError`]: the server is not fit for a store, or does not show who leads. One that cannot be reached is waited for.
    pub async fn wait(options: PostgresOptions, mut leads: impl FnMut(&str)) -> Result<Self, PostgresError> {
        let link = Link::new(options);
        let mut lost: Option<String> = None;
        loop {
            let error = match link.checked(Arc::default()).await {
                Ok(client) => match in_line(&client, &mut leads).await {
                    Ok(()) => return Ok(Self::begin(client)),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            if !error.may_pass() {
                return Err(error);
            }
            let reason = error.to_string();
            if lost.as_ref() != Some(&reason) {
                tracing::warn!(error = reason, "cannot see which coordinator leads; trying again");
                lost = Some(reason);
            }
            sleep(PAUSE).await;
        }
    }

    fn begin(client: Client) -> Self {
        let tenure = Arc::new(Tenure::new(since_boot()));
        let (says, there) = watch::channel(None);
        let kept = tenure.clone();
        let keeper = tokio::spawn(async move {
            let Err(error) = keep(&client, &kept, says).await;
            tracing::warn!(%error, "this coordinator does not lead any more");
            kept.lost();
        });
        Self { tenure, there, keeper }
    }

    /// For how long nothing has confirmed that this coordinator leads.
    pub fn unconfirmed(&self) -> impl Fn() -> Duration + Send + Sync + use<> {
        let tenure = self.tenure.clone();
        move || tenure.unconfirmed()
    }

    /// Waits until this one does not lead any more.
    pub async fn lost(&self) {
        let mut there = self.there.clone();
        while there.changed().await.is_ok() {}
    }

    /// Which coordinators are there, when that has changed. `None`: this one does not lead any more.
    pub async fn there(&mut self) -> Option<There> {
        loop {
            self.there.changed().await.ok()?;
            if let Some(there) = self.there.borrow_and_update().clone() {
                return Some(there);
            }
        }
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        // Its session ends with its connection.
        self.keeper.abort();
        self.tenure.end();
    }
}

async fn in_line(client: &Client, leads: &mut impl FnMut(&str)) -> Result<(), PostgresError> {
    let mut name = None;
    loop {
        match within(presence::lead(client)).await {
            Err(PostgresError::InUse { by }) => {
                if name.as_ref() != Some(&by) {
                    leads(&by);
                    name = Some(by);
                }
            }
            taken_or_failed => return taken_or_failed,
        }
        for holder in within(presence::holders(client, LEADS)).await? {
            if holder.silent.is_none() {
                return Err(PostgresError::Unwatched { by: holder.name });
            }
            end_if_silent(client, &holder).await?;
        }
        sleep(LOOK).await;
    }
}

/// Whether it was silent: then its session is ended.
async fn end_if_silent(client: &Client, holder: &Holder) -> Result<bool, PostgresError> {
    let silent = holder.silent.filter(|silent| *silent > SILENT && holder.name != MIGRATION);
    if let Some(silent) = silent {
        let name = &holder.name;
        tracing::warn!(coordinator = name, ?silent, "a coordinator is silent: its session with the database is ended");
        within(holder.backend.end(client)).await?;
    }
    Ok(silent.is_some())
}

/// Asks who is there, until the session is lost.
async fn keep(
    client: &Client, tenure: &Tenure, says: watch::Sender<Option<There>>,
) -> Result<std::convert::Infallible, PostgresError> {
    let (begun, mut seen, mut unwatched) = (Instant::now(), HashMap::new(), HashSet::new());
    let mut every = interval(ASK);
    every.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let asked = since_boot();
        let found = within(presence::holders(client, IS_THERE)).await?;
        tenure.confirmed(asked);
        for holder in found {
            if holder.silent.is_none() && unwatched.insert(holder.name.clone()) {
                let error = PostgresError::Unwatched { by: holder.name.clone() };
                tracing::error!(%error, "the machines of a coordinator that hangs would stay there");
            }
            if !end_if_silent(client, &holder).await? {
                seen.insert(holder.name, Instant::now());
            }
        }
        seen.retain(|_, at| at.elapsed() < COMES_BACK);
        // Those that came before may not have come back yet.
        if begun.elapsed() >= COMES_BACK {
            let there: There = seen.keys().cloned().collect();
            says.send_if_modified(|said| said.replace(there.clone()).as_ref() != Some(&there));
        }
    }
}
