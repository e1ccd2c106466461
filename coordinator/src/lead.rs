//! What one of several coordinators with one database does alone: BMCs, pools, addresses by DHCP, the directory of manifests, and the
//! machines of coordinators that are gone. A coordinator that has its store alone does it from the start.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use landfall_boot::Dhcp;
use landfall_coordinator::config::ManifestsConfig;
use landfall_coordinator::state::Coordinator;
use landfall_coordinator::{manifest_dir, notify};
use landfall_edge::metrics::metrics;
use landfall_store::{Lead, PostgresOptions, There};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// What was not done for a fault of the store is tried again after so long.
const AGAIN: Duration = Duration::from_secs(1);
/// One that cannot lead tries again after so long.
const PAUSE: Duration = Duration::from_secs(5);
/// What one alone does ends within this; a request to a BMC that takes longer is given up.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// What is done alone.
#[derive(Clone)]
pub(crate) struct Duties {
    pub(crate) coordinator: Arc<Coordinator>,
    /// Where one coordinator alone gives addresses.
    pub(crate) dhcp: Option<Dhcp>,
    pub(crate) manifests: watch::Receiver<ManifestsConfig>,
}

impl Duties {
    /// Does them until `stop`, or until one ends: then the others are of no use. `takes_over`: another coordinator did them until now.
    ///
    /// # Errors
    /// A port that cannot be had, or a service that failed.
    pub(crate) async fn perform(self, takes_over: bool, stop: CancellationToken) -> Result<()> {
        let (mut all, engine) = (JoinSet::<Result<()>>::new(), self.coordinator.engine.clone());
        if let Some(dhcp) = &self.dhcp {
            // It asks for other servers, for 3 s.
            let Some(started) = stop.run_until_cancelled(dhcp.start(takes_over)).await else { return Ok(()) };
            let (dhcp, until) = (started?, stop.clone());
            all.spawn(async move { Ok(dhcp.run(until).await?) });
        }
        let (power, until) = (engine.clone(), stop.clone());
        all.spawn(async move {
            power.power().run(until).await;
            Ok(())
        });
        let until = stop.clone();
        all.spawn(async move {
            engine.pools().run(until).await;
            Ok(())
        });
        let until = stop.clone();
        all.spawn(async move {
            manifest_dir::run(self.coordinator, self.manifests, until).await;
            Ok(())
        });
        let first = all.join_next().await;
        let is_asked = stop.is_cancelled();
        stop.cancel();
        if timeout(ENDS_WITHIN, all.join_all()).await.is_err() {
            tracing::warn!("what only one coordinator does did not end in time, and was given up");
        }
        match first {
            Some(Ok(outcome)) if is_asked => outcome,
            Some(Ok(Err(error))) => Err(error),
            Some(Err(panic)) => Err(panic.into()),
            _ => Err(anyhow::anyhow!("a service ended; the log has the reason")),
        }
    }
}

/// Serves ProxyDHCP beside other coordinators until `stop`. Where it fails, others serve it, and this one has its agents all the same.
pub(crate) async fn serve_beside(dhcp: Dhcp, stop: CancellationToken) -> Result<()> {
    loop {
        let served = async { dhcp.start(true).await?.run(stop.clone()).await };
        match served.await {
            Ok(()) => return Ok(()),
            Err(error) => {
                let error = anyhow::Error::new(error);
                tracing::error!(
                    error = format!("{error:#}"),
                    "this coordinator cannot serve ProxyDHCP; it tries again"
                );
            }
        }
        if stop.run_until_cancelled(sleep(PAUSE)).await.is_none() {
            return Ok(());
        }
    }
}

/// Performs them whenever this coordinator leads, until `stop`.
pub(crate) async fn whenever(duties: Duties, options: PostgresOptions, stop: CancellationToken) -> Result<()> {
    let (engine, mut has_led) = (duties.coordinator.engine.clone(), false);
    loop {
        let mut takes_over = has_led;
        let leads = |name: &str| {
            takes_over = true;
            // PostgreSQL keeps the beginning of a long name.
            let known = duties.coordinator.config.others.iter().find(|other| other.starts_with(name));
            let url = known.map_or(name, String::as_str);
            tracing::info!(leads = url, "another coordinator leads");
            engine.fleet().beside().set_led_by(Some(url.to_owned()));
            notify::led_by(url);
        };
        let lead = async {
            // The session that leads is another one than the one that writes: it may be had where the other is refused.
            while engine.fleet().has_lost_store() {
                sleep(AGAIN).await;
            }
            Lead::wait(options.clone(), leads).await
        };
        let Some(lead) = stop.run_until_cancelled(lead).await else { return Ok(()) };
        let outcome = match lead {
            Ok(lead) => {
                let outcome = lead_while_it_lasts(&duties, lead, takes_over, &stop).await;
                has_led |= outcome.is_ok();
                outcome
            }
            Err(error) => Err(error.into()),
        };
        metrics().active.set(0);
        engine.cease_to_lead();
        if stop.is_cancelled() {
            return Ok(());
        }
        // Another one may be able to; this one has its machines all the same.
        if let Err(error) = outcome {
            tracing::error!(error = format!("{error:#}"), "this coordinator cannot lead; it tries again");
            stop.run_until_cancelled(sleep(PAUSE)).await;
        }
    }
}

/// Leads until `stop`, or until the session that says so is lost.
///
/// # Errors
/// As [`Duties::perform`]; a fault of the store.
async fn lead_while_it_lasts(
    duties: &Duties, mut lead: Lead, takes_over: bool, stop: &CancellationToken,
) -> Result<()> {
    let engine = &duties.coordinator.engine;
    engine.fleet().beside().set_led_by(None);
    tokio::select! {
        begun = engine.begin_to_lead(Arc::new(lead.unconfirmed()), takes_over) => begun?,
        () = lead.lost() => return Ok(()),
        () = stop.cancelled() => return Ok(()),
    }
    metrics().active.set(1);
    tracing::info!("this coordinator leads");
    notify::leads();
    let until = stop.child_token();
    let mut performed = tokio::spawn(duties.clone().perform(takes_over, until.clone()));
    let ended = tokio::select! {
        ended = &mut performed => Some(ended),
        () = follow_those_there(&duties.coordinator, &mut lead) => None,
        () = lose_store(&duties.coordinator) => None,
    };
    engine.cease_to_lead();
    until.cancel();
    // No other one leads before it has ended here, unless the session is lost.
    match ended {
        Some(outcome) => outcome?,
        None => performed.await?,
    }
}

/// Waits until this coordinator cannot read and write its store any more.
async fn lose_store(coordinator: &Coordinator) {
    while !coordinator.engine.fleet().has_lost_store() {
        sleep(AGAIN).await;
    }
    tracing::error!("this coordinator has lost its store, and gives up the lead");
}

/// Takes over the machines of those that are gone, until this one does not lead any more.
async fn follow_those_there(coordinator: &Coordinator, lead: &mut Lead) {
    let mut left: Option<There> = None;
    loop {
        tokio::select! {
            there = lead.there() => match there {
                Some(there) => {
                    let (own, others) = (coordinator.engine.fleet().own(), &coordinator.config.others);
                    for stranger in there.beside(own.as_deref().into_iter().chain(others.iter().map(String::as_str))) {
                        tracing::warn!(
                            coordinator = stranger,
                            "a coordinator has this database that `others` does not name: machines and people are not sent to it"
                        );
                    }
                    left = Some(there);
                }
                None => return,
            },
            () = sleep(AGAIN), if left.is_some() => {}
        }
        if let Some(there) = left.take()
            && let Err(problem) = coordinator.engine.others().take_over(&|url| there.has(url)).await
        {
            tracing::error!(%problem, "not every machine of a coordinator that is gone was taken over; it is tried again");
            left = Some(there);
        }
    }
}
