//! The load on the coordinator until its power is cut, from a separate thread inside the lab's network.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use landfall_api::{Role, TokenIssued, TokenRequest};
use landfall_lab::{CoordinatorProcess, Network};
use landfall_session::testing::Booted;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

use super::acks::{Acked, EVENTS_OF_AN_ATTEMPT, Stored};
use super::agent::{Agent, boot};
use super::{Dice, guest};
use crate::e2e::inside::{file_of, in_network, inside};
use crate::e2e::scene::Scene;

const API: &str = "/apis/landfall.dev/v1alpha1";
/// Machines with a workflow, and as many agents.
const AGENTS: u8 = 8;
/// Programs that apply documents.
const WRITERS: u8 = 2;
/// A workflow ends with its hundredth failure.
const ATTEMPTS: u32 = 98;
/// Writes of one document, before the next is begun.
const WRITES_OF_A_DOCUMENT: u64 = 10;
/// One request to the emulated computer.
const REQUEST: Duration = Duration::from_secs(120);

/// The target of the load.
pub(super) struct Site {
    /// The recording of the coordinator's disk.
    pub(super) recording: PathBuf,
    /// The seed of the random choices.
    pub(super) seed: u64,
    /// The programs' bearer token.
    pub(super) token: String,
    /// What the agents' boot scripts said.
    pub(super) boots: Vec<Booted>,
}

/// Describes the agents' machines and requests a workflow on each. Returns a bearer token for the programs.
pub(super) async fn prepare(scene: &Scene) -> anyhow::Result<String> {
    let image = json!({ "url": scene.image_url(), "digest": scene.image().digest });
    let write = json!({ "name": "write", "writeImage": { "image": image }, "retry": { "maxAttempts": 100 } });
    scene.actions("patient", json!([write, { "name": "reboot", "reboot": {} }])).await?;
    let api = scene.coordinator.api();
    for n in 0..AGENTS {
        api.apply(&machine(&name(n), &mac(0, n), None)).await?;
        api.provision(&name(n), "patient", false).await?;
    }
    let token = TokenRequest { name: "writers".into(), role: Role::Operator, ttl: None };
    Ok(serde_json::from_value::<TokenIssued>(api.create_token(&token).await?)?.value)
}

fn name(n: u8) -> String {
    format!("agent{n}")
}

fn mac(kind: u8, n: u8) -> String {
    format!("52:54:01:{kind:02x}:00:{n:02x}")
}

fn machine(name: &str, mac: &str, serial: Option<u64>) -> Value {
    let mut identity = json!({ "macs": [mac] });
    if let Some(serial) = serial {
        identity["serial"] = Value::from(serial.to_string());
    }
    let metadata = json!({ "name": name });
    json!({ "apiVersion": "landfall.dev/v1alpha1", "kind": "Machine", "metadata": metadata, "spec": { "identity": identity } })
}

/// The load while it goes on; it ends when this is dropped.
pub(super) struct Load {
    acks: mpsc::Receiver<Acked>,
    received: Vec<Acked>,
    ended: oneshot::Receiver<anyhow::Result<()>>,
}

impl Load {
    /// Starts it in this network namespace.
    pub(super) fn start(namespace: &str, site: Site) -> anyhow::Result<Self> {
        let (notes, acks) = mpsc::channel(256);
        let (end, ended) = oneshot::channel();
        let namespace = file_of(namespace);
        let work = move || {
            let load = async {
                tokio::select! {
                    ended = everybody(site, notes.clone()) => ended,
                    () = notes.closed() => Ok(()),
                }
            };
            drop(end.send(inside(&namespace, load)));
        };
        std::thread::Builder::new().name("load".into()).spawn(work)?;
        Ok(Self { acks, received: Vec::new(), ended })
    }

    /// Waits for so many acknowledgements; the load goes on.
    pub(super) async fn until(&mut self, wanted: usize) -> anyhow::Result<()> {
        while self.received.len() < wanted {
            match self.acks.recv().await {
                Some(ack) => self.received.push(ack),
                None => {
                    (&mut self.ended).await??;
                    bail!("the load ended with {} acknowledgements of {wanted}", self.received.len());
                }
            }
        }
        Ok(())
    }

    /// Ends it. Returns all that was acknowledged, in the order of `at`.
    pub(super) async fn stop(mut self) -> Vec<Acked> {
        self.acks.close();
        while let Some(ack) = self.acks.recv().await {
            self.received.push(ack);
        }
        self.received.sort_by_key(|ack| ack.at);
        self.received
    }
}

/// The agents' boot scripts, from the coordinator on this host, which knows its own address: the same on another computer
/// gives none to a neighbour that is not the machine it names.
pub(super) async fn boots(scene: &Scene) -> anyhow::Result<Vec<Booted>> {
    let http = format!("http://{}:{}", Network::ADDRESS, CoordinatorProcess::HTTP_PORT);
    let ask = async move {
        let mut boots = Vec::new();
        for n in 0..AGENTS {
            boots.push(boot(&http, &mac(0, n), &guest::https()).await?);
        }
        Ok(boots)
    };
    in_network(&scene.network, ask).await
}

async fn everybody(mut site: Site, notes: mpsc::Sender<Acked>) -> anyhow::Result<()> {
    let boots = std::mem::take(&mut site.boots);
    let site = Arc::new(site);
    let pins = boots.first().context("no agents")?.target.pins().to_vec();
    let client = landfall_session::https_client(&pins, None).map_err(|problem| anyhow!("{problem}"))?;
    let mut tasks = JoinSet::new();
    for (n, boot) in (0..AGENTS).zip(boots) {
        tasks.spawn(report(n, boot, site.clone(), notes.clone()));
    }
    for n in 0..WRITERS {
        tasks.spawn(write(n, client.clone(), site.clone(), notes.clone()));
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(())
}

/// Reports attempts without end, as a download that always breaks does; waits for the coordinator now and then.
async fn report(n: u8, boot: Booted, site: Arc<Site>, notes: mpsc::Sender<Acked>) -> anyhow::Result<()> {
    let mut dice = Dice::new(site.seed ^ u64::from(n + 1));
    let agent = Agent::start(boot, &name(n), &mac(0, n)).await?;
    for attempt in 1..=ATTEMPTS {
        for seq in 1..=EVENTS_OF_AN_ATTEMPT {
            agent.report(attempt, seq).await?;
            if dice.throw().is_multiple_of(3) || seq == EVENTS_OF_AN_ATTEMPT {
                agent.flush().await?;
                site.note(&notes, Stored::Events { run: agent.run().to_owned(), attempt, upto: seq }).await?;
            }
        }
    }
    Ok(())
}

/// Applies documents, now a new one, now a changed one, as fast as they are answered.
async fn write(n: u8, client: reqwest::Client, site: Arc<Site>, notes: mpsc::Sender<Acked>) -> anyhow::Result<()> {
    for document in 0..u8::MAX {
        let name = format!("written{n}-{document}");
        for serial in 1..=WRITES_OF_A_DOCUMENT {
            let body = machine(&name, &mac(n + 1, document), Some(serial));
            let request =
                client.post(format!("{}{API}/apply", guest::https())).bearer_auth(&site.token).timeout(REQUEST);
            let answer = request.json(&body).send().await.with_context(|| format!("apply {name}"))?;
            let status = answer.status();
            ensure!(status.is_success(), "apply {name}: {status}: {}", answer.text().await.unwrap_or_default());
            site.note(&notes, Stored::Document { name: name.clone(), serial }).await?;
        }
    }
    Ok(())
}

impl Site {
    /// Notes an acknowledgement that has just come.
    async fn note(&self, notes: &mpsc::Sender<Acked>, what: Stored) -> anyhow::Result<()> {
        let at = std::fs::metadata(&self.recording).with_context(|| self.recording.display().to_string())?.len();
        Ok(notes.send(Acked { at, what }).await?)
    }
}
