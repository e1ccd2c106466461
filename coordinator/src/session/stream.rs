//! One session, from hello to its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt as _;
use landfall_api::{ErrorCode, Problem};
use landfall_proto::v1::{self, SessionRequest, SessionResponse, session_request::Message};
use tokio::{
    sync::{Semaphore, mpsc},
    time::timeout,
};
use tonic::{Status, Streaming};
use uuid::Uuid;

use super::{access, convert, status};
use crate::{
    engine::{Engine, Opened, ToAgent},
    tls::{MachineCert, Peer},
    workflow::EventRecord,
};
use landfall_edge::metrics::{metrics, refused};

/// The hello is an agent's first message.
const HELLO_LIMIT: Duration = Duration::from_secs(30);
/// One message onto the connection; one that takes longer is dead.
const SEND_LIMIT: Duration = Duration::from_secs(30);
/// A session that is not heard for so many heartbeats is over. Its lease runs on.
const DEAD_AFTER: u32 = 12;
/// Events made durable together.
const GROUP: usize = 64;
/// Sessions whose hello or events are worked on at once: as many as one commit takes. The others wait with their message
/// in hand, and not with copies of their documents: after an outage everybody comes at the same moment.
pub(super) const TURNS: usize = 256;
/// A fenced agent has so long to acknowledge.
const FENCE_LIMIT: Duration = Duration::from_secs(30);

type Down = mpsc::Sender<Result<SessionResponse, Status>>;

pub(super) async fn run(
    engine: Engine,
    turns: Arc<Semaphore>,
    certificate: MachineCert,
    address: String,
    mut up: Streaming<SessionRequest>,
    down: Down,
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
    let mut session = Session { engine: engine.clone(), turns, certificate, machine, epoch, down, fenced: false };
    let why = match session.serve(opened, &mut up).await {
        Ok(why) => why,
        Err(problem) => {
            tracing::warn!(epoch, %problem, "a session ends");
            let why = problem.message.clone();
            refuse(&session.down, problem).await;
            why
        }
    };
    if let Err(problem) = Box::pin(engine.close_session(machine, epoch, &why)).await {
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
    engine: &Engine,
    turns: &Semaphore,
    certificate: &MachineCert,
    address: String,
    up: &mut Streaming<SessionRequest>,
    down: &Down,
) -> Result<Option<Opened>, Problem> {
    let first = timeout(HELLO_LIMIT, up.message()).await;
    let Ok(Ok(Some(SessionRequest { message: Some(Message::Hello(hello)) }))) = first else {
        return Err(unexpected("the session's first message was not a hello"));
    };
    let hello = convert::hello(hello, address.clone())?;
    let machine = certificate.uid;
    let opened = {
        let _turn = turns.acquire().await;
        Box::pin(engine.open_session(machine, hello)).await
    };
    let answer = match opened {
        Ok(opened) => {
            // Revoked between the call's beginning and now: what is open is cut only where it is known to be open.
            if let Err(problem) = engine.check_certificate(certificate) {
                engine.close_session(machine, opened.epoch, "its certificate was revoked").await?;
                return Err(problem);
            }
            let welcome = convert::welcome(opened.epoch, opened.time, opened.heartbeat);
            return match send(down, welcome).await {
                Ok(()) => Ok(Some(opened)),
                Err(why) => {
                    engine.close_session(machine, opened.epoch, why).await?;
                    Ok(None)
                }
            };
        }
        Err(refusal) => {
            tracing::warn!(%machine, problem = %refusal.problem, "a session was refused");
            refused("session", refusal.problem.code);
            let peer = Peer::Machine(certificate.clone());
            access::refused(engine, "Session", &peer, Some(address), &refusal.problem).await;
            convert::refused(refusal)
        }
    };
    // Whether it was read or not, the agent asks again.
    let _gone = send(down, answer).await;
    Ok(None)
}

async fn send(down: &Down, message: SessionResponse) -> Result<(), &'static str> {
    match timeout(SEND_LIMIT, down.send(Ok(message))).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(_)) => Err("the agent closed the connection"),
        Err(_) => Err("the agent does not read"),
    }
}

struct Session {
    engine: Engine,
    turns: Arc<Semaphore>,
    certificate: MachineCert,
    machine: Uuid,
    epoch: u64,
    down: Down,
    fenced: bool,
}

/// Why a session ended without anybody's fault.
type Ended = Option<&'static str>;

impl Session {
    async fn serve(&mut self, mut opened: Opened, up: &mut Streaming<SessionRequest>) -> Result<String, Problem> {
        loop {
            let limit = if self.fenced { FENCE_LIMIT } else { opened.heartbeat * DEAD_AFTER };
            let ended = tokio::select! {
                // Cancel and fence go out before anything that came in is looked at.
                biased;
                message = opened.to_agent.recv(), if !self.fenced => match message {
                    Some(message) => self.tell(message).await,
                    None => {
                        // The reason, where there is one to tell.
                        self.engine.check_certificate(&self.certificate)?;
                        Some("the coordinator ended it")
                    }
                },
                message = timeout(limit, up.message()) => match message {
                    Err(_) => Some("the agent has not been heard"),
                    Ok(Err(_)) => Some("the connection broke"),
                    Ok(Ok(None)) => Some("the agent closed it"),
                    Ok(Ok(Some(message))) => {
                        self.engine.check_certificate(&self.certificate)?;
                        Box::pin(self.take(message, up)).await?
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
        send(&self.down, convert::response(message)).await.err()
    }

    async fn take(&mut self, message: SessionRequest, up: &mut Streaming<SessionRequest>) -> Result<Ended, Problem> {
        let mut next = Some(message);
        while let Some(message) = next.take() {
            match message.message.ok_or_else(|| unexpected("a session message is of an unknown kind"))? {
                Message::Event(event) => {
                    let came = Instant::now();
                    let mut group = vec![convert::event(event)?];
                    // Whatever has arrived already is made durable with it.
                    while group.len() < GROUP
                        && let Some(Ok(Some(message))) = up.message().now_or_never()
                    {
                        match message.message {
                            Some(Message::Event(event)) => group.push(convert::event(event)?),
                            other => {
                                next = Some(SessionRequest { message: other });
                                break;
                            }
                        }
                    }
                    if let Some(why) = self.events(group).await? {
                        return Ok(Some(why));
                    }
                    metrics().ack_seconds.took(came.elapsed());
                }
                Message::Heartbeat(beat) => {
                    self.engine.heartbeat(self.machine, self.epoch, beat.peak_rss_bytes).await?;
                }
                Message::Facts(facts) => {
                    self.engine.facts(self.machine, self.epoch, convert::facts(&facts)?).await?;
                }
                Message::FenceAck(ack) => {
                    self.engine.fence_acknowledged(self.machine, ack.epoch).await?;
                    return Ok(Some("it was fenced"));
                }
                Message::Hello(_) => return Err(unexpected("a session's hello came twice")),
            }
        }
        Ok(None)
    }

    /// Durable first, then acknowledged: the last of each attempt stands for all before it.
    async fn events(&mut self, group: Vec<EventRecord>) -> Result<Ended, Problem> {
        let mut acks: Vec<v1::Ack> = Vec::new();
        for event in &group {
            let ack = v1::Ack {
                workflow_uid: event.workflow_uid.to_string(),
                action_index: event.action_index,
                attempt: event.attempt,
                seq: event.seq,
            };
            let same = |a: &&mut v1::Ack| {
                (&a.workflow_uid, a.action_index, a.attempt) == (&ack.workflow_uid, ack.action_index, ack.attempt)
            };
            match acks.iter_mut().find(same) {
                Some(known) => known.seq = known.seq.max(ack.seq),
                None => acks.push(ack),
            }
        }
        {
            let _turn = self.turns.acquire().await;
            Box::pin(self.engine.agent_events(self.machine, self.epoch, group)).await?;
        }
        for ack in acks {
            let message = SessionResponse { message: Some(v1::session_response::Message::Ack(ack)) };
            if let Err(why) = send(&self.down, message).await {
                return Ok(Some(why));
            }
        }
        Ok(None)
    }
}
