//! One session, from hello to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use landfall_api::message::{Ack, EventRecord, ToAgent, ToCoordinator, Welcome};
use landfall_api::{ErrorCode, Problem};
use landfall_proto::v1::SessionRequest;
use landfall_proto::{ConvertError, PROTOCOL};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tonic::{Status, Streaming};
use uuid::Uuid;

use super::{access, bounds, facts::Facts, status};
use crate::engine::{Engine, Opened};
use crate::tls::{MachineCert, Peer};
use landfall_edge::metrics::{metrics, refused};

/// The hello is an agent's first message.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// One message onto the connection; one that takes longer is dead.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// A session that is not heard for so many heartbeats is over. Its lease runs on.
const DEAD_AFTER: u32 = 12;
/// Events made durable together.
const GROUP: usize = 64;
/// Answers that may wait for facts: more than people ask for at once.
const ANSWERS: usize = 16;
/// Sessions whose hello or events are worked on at once: as many as one commit takes. The others wait with their message
/// in hand, and not with copies of their documents: after an outage everybody comes at the same moment.
pub(super) const TURNS: usize = 256;
/// A fenced agent has so long to acknowledge.
const FENCE_LIMIT: Duration = Duration::from_secs(30);

type Down = mpsc::Sender<Result<ToAgent, Status>>;

pub(super) async fn run(
    engine: Engine, turns: Arc<Semaphore>, facts: Facts, certificate: MachineCert, address: String,
    mut up: Streaming<SessionRequest>, down: Down,
) {
    let machine = certificate.uid;
    // What is done now and then is boxed while it is done: ten thousand of these wait most of the time, and each would
    // hold room for the longest of its steps all along.
    let opened = match Box::pin(hello(&engine, &turns, &certificate, address, &mut up, &down)).await {
        Ok(Some(opened)) => opened,
        Ok(None) => return,
        Err(end) => return refuse(&down, end).await,
    };
    let epoch = opened.epoch;
    metrics().sessions_opened.add(1);
    let _counted = metrics().sessions.hold();
    let mut session = Session {
        engine: engine.clone(),
        turns,
        facts,
        certificate,
        machine,
        epoch,
        down,
        fenced: false,
        answers: Vec::new(),
    };
    let why = match session.serve(opened, &mut up).await {
        Ok(why) => why,
        Err(problem) => {
            tracing::warn!(epoch, %problem, "a session ends");
            let why = problem.message.clone();
            refuse(&session.down, problem).await;
            why
        }
    };
    if let Err(problem) = Box::pin(engine.sessions().close_session(machine, epoch, &why)).await {
        tracing::error!(%problem, "cannot store the end of a session");
    }
}

async fn refuse(down: &Down, problem: Problem) {
    // The reader may have gone; then the message is dropped.
    let _gone = timeout(SEND_LIMIT, down.send(Err(status::of(problem)))).await;
}

fn unexpected(what: &str) -> Problem {
    Problem::new(ErrorCode::VersionSkew, what).hint("build the boot image and the coordinator from one release")
}

async fn hello(
    engine: &Engine, turns: &Semaphore, certificate: &MachineCert, address: String, up: &mut Streaming<SessionRequest>,
    down: &Down,
) -> Result<Option<Opened>, Problem> {
    let first = timeout(HELLO_LIMIT, up.message()).await;
    let no_hello = || unexpected("the session's first message was not a hello");
    let Ok(Ok(Some(first))) = first else { return Err(no_hello()) };
    let ToCoordinator::Hello(hello) = taken(first).map_err(|error| status::invalid(&error))? else {
        return Err(no_hello());
    };
    let machine = certificate.uid;
    let opened = {
        let _turn = turns.acquire().await;
        Box::pin(engine.sessions().open_session(machine, hello, address.clone())).await
    };
    let answer = match opened {
        Ok(opened) => {
            // Revoked between the call's beginning and now: what is open is cut only where it is known to be open.
            if let Err(problem) = engine.certificates().check_certificate(certificate) {
                engine.sessions().close_session(machine, opened.epoch, "its certificate was revoked").await?;
                return Err(problem);
            }
            let welcome = Welcome {
                epoch: opened.epoch,
                time: opened.time,
                heartbeat_interval: opened.heartbeat,
                software: env!("CARGO_PKG_VERSION").to_owned(),
                protocol: PROTOCOL,
                others: engine.fleet().settings().others.clone(),
            };
            return match send(down, ToAgent::Welcome(Box::new(welcome))).await {
                Ok(()) => Ok(Some(opened)),
                Err(why) => {
                    engine.sessions().close_session(machine, opened.epoch, why).await?;
                    Ok(None)
                }
            };
        }
        Err(refusal) => {
            tracing::warn!(%machine, problem = %refusal.problem, "a session was refused");
            refused("session", refusal.problem.code);
            let peer = Peer::Machine(certificate.clone());
            access::refused(engine, "Session", &peer, Some(address), &refusal.problem).await;
            ToAgent::Refused(Box::new(refusal))
        }
    };
    // Whether it was read or not, the agent asks again.
    let _gone = send(down, answer).await;
    Ok(None)
}

/// A message of an agent, within its bounds.
fn taken(message: SessionRequest) -> Result<ToCoordinator, ConvertError> {
    ToCoordinator::try_from(message).and_then(bounds::to_coordinator)
}

async fn send(down: &Down, message: ToAgent) -> Result<(), &'static str> {
    match timeout(SEND_LIMIT, down.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the agent closed the connection"),
        Err(_) => Err("the agent does not read"),
    }
}

/// Why a stream ended without an error. A connection whose pings are not answered ends in the same way as one that the agent
/// closes, but an agent that is there to close it was heard a heartbeat ago.
fn end_of_stream(quiet: Duration, heartbeat: Duration) -> String {
    if quiet < heartbeat * 2 {
        return "the agent closed it".to_owned();
    }
    format!("the connection was lost: the agent has not been heard for {} s", quiet.as_secs())
}

struct Session {
    engine: Engine,
    turns: Arc<Semaphore>,
    facts: Facts,
    certificate: MachineCert,
    machine: Uuid,
    epoch: u64,
    down: Down,
    fenced: bool,
    /// Answers to checks and inspections that are not passed on yet.
    answers: Vec<(Uuid, Option<Problem>)>,
}

/// Why a session ended without anybody's fault.
type Ended = Option<&'static str>;

impl Session {
    async fn serve(&mut self, mut opened: Opened, up: &mut Streaming<SessionRequest>) -> Result<String, Problem> {
        let mut heard = Instant::now();
        loop {
            let limit = if self.fenced { FENCE_LIMIT } else { opened.heartbeat * DEAD_AFTER };
            let ended = tokio::select! {
                // Cancel and fence go out before anything that came in is looked at.
                biased;
                message = opened.to_agent.recv(), if !self.fenced => match message {
                    Some(message) => self.tell(message).await,
                    None => {
                        // The reason, where there is one to tell.
                        self.engine.certificates().check_certificate(&self.certificate)?;
                        Some("the coordinator ended it")
                    }
                },
                message = timeout(limit, up.message()) => match message {
                    Err(_) => Some("the agent has not been heard"),
                    Ok(Err(_)) => Some("the connection broke"),
                    Ok(Ok(None)) => return Ok(end_of_stream(heard.elapsed(), opened.heartbeat)),
                    Ok(Ok(Some(message))) => {
                        self.engine.certificates().check_certificate(&self.certificate)?;
                        let ended = Box::pin(self.take(message, up)).await?;
                        heard = Instant::now();
                        ended
                    }
                },
            };
            if let Some(why) = ended {
                return Ok(why.to_owned());
            }
        }
    }

    async fn tell(&mut self, message: ToAgent) -> Ended {
        self.fenced |= matches!(message, ToAgent::Fenced { .. });
        send(&self.down, message).await.err()
    }

    async fn take(&mut self, message: SessionRequest, up: &mut Streaming<SessionRequest>) -> Result<Ended, Problem> {
        let invalid = |error: ConvertError| status::invalid(&error);
        let mut next = Some(taken(message).map_err(invalid)?);
        while let Some(message) = next.take() {
            match message {
                ToCoordinator::Event(event) => {
                    let came = Instant::now();
                    let mut group = vec![event];
                    let mut failed = None;
                    // Whatever has arrived already is made durable with it.
                    while group.len() < GROUP
                        && let Some(Ok(Some(message))) = up.message().now_or_never()
                    {
                        match taken(message) {
                            Ok(ToCoordinator::Event(event)) => group.push(event),
                            Ok(other) => {
                                next = Some(other);
                                break;
                            }
                            // What came before it counts.
                            Err(error) => {
                                failed = Some(error);
                                break;
                            }
                        }
                    }
                    if let Some(why) = self.events(group).await? {
                        return Ok(Some(why));
                    }
                    metrics().ack_seconds.took(came.elapsed());
                    if let Some(error) = failed {
                        return Err(invalid(error));
                    }
                }
                ToCoordinator::Heartbeat(vitals) => {
                    self.engine.sessions().heartbeat(self.machine, self.epoch, vitals).await?;
                    self.write_facts().await?;
                }
                ToCoordinator::Disks(report) => {
                    let _turn = self.turns.acquire().await;
                    Box::pin(self.engine.sessions().disks(self.machine, self.epoch, report)).await?;
                }
                ToCoordinator::Facts(facts) => {
                    self.facts.put(facts);
                    self.write_facts().await?;
                }
                ToCoordinator::Checked { list_uid, problem } => {
                    self.answers.push((list_uid, problem.map(|problem| *problem)));
                    self.write_facts().await?;
                }
                ToCoordinator::FenceAck { epoch } => {
                    self.engine.sessions().fence_acknowledged(self.machine, epoch).await?;
                    return Ok(Some("it was fenced"));
                }
                ToCoordinator::Hello(_) => return Err(unexpected("a session's hello came twice")),
            }
        }
        Ok(None)
    }

    async fn write_facts(&mut self) -> Result<(), Problem> {
        if let Some(facts) = self.facts.due() {
            Box::pin(self.engine.sessions().facts(self.machine, self.epoch, *facts)).await?;
        }
        // An answer follows the facts that it speaks of, which may wait for their turn.
        if !self.facts.is_waiting() || self.answers.len() >= ANSWERS {
            for (uid, problem) in self.answers.drain(..) {
                self.engine.inspections().ended(self.machine, uid);
                self.engine.requests().checked(self.machine, uid, problem);
            }
        }
        Ok(())
    }

    /// Durable first, then acknowledged: the last of each attempt stands for all before it.
    async fn events(&mut self, group: Vec<EventRecord>) -> Result<Ended, Problem> {
        let mut acks: Vec<Ack> = Vec::new();
        for event in &group {
            let ack = Ack { action: event.action(), seq: event.seq };
            let same = |known: &&mut Ack| known.action == ack.action;
            match acks.iter_mut().find(same) {
                Some(known) => known.seq = known.seq.max(ack.seq),
                None => acks.push(ack),
            }
        }
        {
            let _turn = self.turns.acquire().await;
            Box::pin(self.engine.sessions().agent_events(self.machine, self.epoch, group)).await?;
        }
        for ack in acks {
            if let Err(why) = send(&self.down, ToAgent::Ack(ack)).await {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_connection_is_not_an_agents_goodbye() {
        let (heartbeat, after) = (Duration::from_secs(5), Duration::from_secs);
        assert_eq!(end_of_stream(after(4), heartbeat), "the agent closed it");
        let lost = end_of_stream(after(40), heartbeat);
        assert!(lost.contains("lost") && lost.contains("40 s") && !lost.contains("closed"), "{lost}");
    }
}
