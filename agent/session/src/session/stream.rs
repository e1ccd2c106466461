//! One connection of the session: hello, welcome, then both directions until it ends.
//!
//! Nothing here waits for the other side to take something: what is to be sent is decided anew each time the stream has
//! room, most urgent first, so that a slow stream never delays reading acks, a fence or a cancel.

use std::{sync::Arc, time::Duration};

use landfall_api::message::{
    Ack, ActionRef, Assignment, DiskReport, EventBody, Hello, Refusal, ToAgent, ToCoordinator, Vitals, Welcome,
};
use landfall_api::{ErrorCode, MachineFacts, Problem};
use landfall_proto::convert::named_attempt;
use landfall_proto::revision::DISK_REPORTS;
use landfall_proto::v1::agent_service_client::AgentServiceClient;
use landfall_proto::{ConvertError, PROTOCOL, v1};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout, timeout_at};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming, transport::Channel};

use super::looks::Look;
use super::{Deaf, Instructions, Outcome, Runner, Seen};
use crate::connect::connect;
use crate::enroll::renew;
use crate::{ConnectError, Connection, Credentials, Instruction, Validity, wire_status};

/// From the call to the welcome.
const WELCOME_LIMIT: Duration = Duration::from_secs(30);
/// Between tries to renew a certificate, at least; and how soon after a connection the first one is.
const RENEW_RETRY: Duration = Duration::from_secs(5);
/// A fenced agent's work must have stopped by then, or the fence stays unanswered.
const FENCE_LIMIT: Duration = Duration::from_secs(60);
/// Last acks after our last word.
const FAREWELL_LIMIT: Duration = Duration::from_secs(3);
/// Heartbeats are kept within this, whatever the coordinator asks.
const HEARTBEAT: std::ops::RangeInclusive<Duration> = Duration::from_millis(50)..=Duration::from_secs(60);
/// Messages handed to HTTP/2 but not yet sent.
const IN_FLIGHT: usize = 16;

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A welcomed stream.
struct Open<'a> {
    runner: &'a Runner,
    agent: &'a Instructions,
    inbound: Streaming<v1::SessionResponse>,
    epoch: u64,
    facts: Option<Box<MachineFacts>>,
    report: Option<DiskReport>,
    /// Later looks at the machine.
    looks: mpsc::Receiver<Look>,
    heartbeat_due: bool,
    fence: Option<Fence>,
}

/// A welcomed stream and what goes on beside it.
struct Opened<'a> {
    open: Open<'a>,
    /// The way up.
    out: mpsc::Sender<v1::SessionRequest>,
    /// Between heartbeats.
    beat: Duration,
    /// What the hello said of the disks.
    seen: Seen,
    /// Takes later looks; `None` where the coordinator does not know reports of disks.
    looks: Option<mpsc::Sender<Look>>,
    _telemetry: AbortOnDrop,
    client: AgentServiceClient<Channel>,
}

struct Fence {
    epoch: u64,
    give_up: Instant,
}

impl Runner {
    pub(super) async fn connection(
        &self, credentials: &Credentials, closing: &CancellationToken, agent: &Instructions,
    ) -> Outcome {
        let opened = tokio::select! {
            biased;
            () = closing.cancelled() => return Outcome::Closed,
            opened = self.open(credentials, agent) => opened,
        };
        match opened {
            Err(outcome) => {
                self.config.target.pass_on();
                outcome
            }
            Ok(Opened { open, out, beat, seen, looks, _telemetry, client }) => tokio::select! {
                outcome = open.run(out, beat, closing) => outcome,
                // What is not acknowledged is kept and sent again over the next connection.
                renewed = self.renewed(client, credentials) => Outcome::Renewed(renewed),
                never = self.follow_disks(seen, looks) => match never {},
            },
        }
    }

    /// Waits until the certificate should be renewed, and renews it over the connection that it opened.
    async fn renewed(&self, client: AgentServiceClient<Channel>, credentials: &Credentials) -> Credentials {
        let mut wait = credentials.renew_in().max(RENEW_RETRY);
        loop {
            tokio::time::sleep(wait).await;
            if self.shared.lock().fenced {
                // What is left of this session is its answer to the fence.
                return std::future::pending().await;
            }
            match renew(client.clone(), &self.config, credentials).await {
                Ok(_) if self.shared.lock().fenced => return std::future::pending().await,
                Ok(renewed) => return renewed,
                Err(error) => {
                    tracing::warn!(problem = %error.problem, "the certificate was not renewed; the agent tries again");
                    wait = (credentials.renew_in() / 4).max(RENEW_RETRY);
                }
            }
        }
    }

    async fn open<'a>(&'a self, credentials: &Credentials, agent: &'a Instructions) -> Result<Opened<'a>, Outcome> {
        let target = &self.config.target;
        let works = self.shared.lock().holds.is_some();
        let seen = if works { self.host.glance() } else { self.host.look() }.await;
        let hello = self.hello(&seen);
        let channel = connect(&*self.world.dial, target, Validity::Now, Some(credentials)).await.map_err(|error| {
            let problem = error.to_problem(target);
            match error {
                ConnectError::CredentialsRefused { .. } | ConnectError::Credentials(_) => {
                    Outcome::Refused(problem, None)
                }
                _ => Outcome::Lost(problem),
            }
        })?;
        let mut client = AgentServiceClient::new(channel);
        let (out, requests) = mpsc::channel(IN_FLIGHT);
        // The channel is empty and its other end at hand: this cannot fail.
        drop(out.try_send(to_wire(ToCoordinator::Hello(hello))?));
        let welcome = async {
            let mut inbound = client.session(ReceiverStream::new(requests)).await?.into_inner();
            let first = inbound.message().await?;
            Ok::<_, Status>((inbound, first))
        };
        let (inbound, first) = match timeout(WELCOME_LIMIT, welcome).await {
            Ok(Ok(opened)) => opened,
            // The alert that says so may be lost on the way; the certificate's own dates are not.
            Ok(Err(_)) if credentials.have_expired() => {
                let problem = Problem::new(ErrorCode::Unauthenticated, "this machine's certificate has expired")
                    .hint("the agent enrols again; if that fails, restart the machine")
                    .at(target.to_string());
                return Err(Outcome::Refused(problem, None));
            }
            Ok(Err(status)) => return Err(self.broken(&status)),
            Err(_) => {
                let problem = Problem::new(ErrorCode::SourceUnreachable, "the coordinator does not answer the hello")
                    .hint("the connection works: read the coordinator's log to see what it waits for")
                    .at(target.to_string());
                return Err(Outcome::Lost(problem));
            }
        };
        let first = first.ok_or_else(|| invalid(&ConvertError::missing("welcome")))?;
        let welcome: Welcome = match ToAgent::try_from(first).map_err(|error| invalid(&error))? {
            ToAgent::Welcome(welcome) => *welcome,
            ToAgent::Refused(refused) => return Err(refusal(*refused)),
            _ => return Err(invalid(&ConvertError::missing("welcome"))),
        };
        // Not by itself solved by trying again, but the coordinator may be upgraded at any time.
        wire_status::check_versions(target, &welcome).map_err(Outcome::Lost)?;
        let beat = welcome.heartbeat_interval;
        target.learn(&welcome.others);
        {
            let mut state = self.shared.lock();
            state.epoch = welcome.epoch;
            state.outbox.reconnected();
        }
        self.shared.connection.send_replace(Connection::Connected { epoch: welcome.epoch });
        tracing::info!(epoch = welcome.epoch, %target, "welcomed by the coordinator");
        let telemetry = tokio::spawn(Arc::clone(&self.shared.telemetry).run(client.clone(), self.world.clone()));
        let (tell, looks) = mpsc::channel(1);
        let open = Open {
            runner: self,
            agent,
            inbound,
            epoch: welcome.epoch,
            facts: Some(Box::new(seen.facts.clone())),
            report: None,
            looks,
            heartbeat_due: false,
            fence: None,
        };
        Ok(Opened {
            open,
            out,
            beat: beat.clamp(*HEARTBEAT.start(), *HEARTBEAT.end()),
            seen,
            looks: (welcome.protocol >= DISK_REPORTS).then_some(tell),
            _telemetry: AbortOnDrop(telemetry.abort_handle()),
            client,
        })
    }

    fn hello(&self, seen: &Seen) -> Hello {
        let state = self.shared.lock();
        Hello {
            software: self.config.software.clone(),
            protocol: PROTOCOL,
            identity: self.config.identity.clone(),
            boot_id: self.config.boot_id.clone(),
            disks: seen.disks.disks.clone(),
            receipts: seen.disks.receipts.clone(),
            unreadable: seen.disks.unreadable.clone(),
            scanning: seen.scanning,
            last_epoch: state.epoch,
            running: state.running.first().copied(),
            enrolled_boottime_ms: u64::try_from(self.config.enrolled_at.as_millis()).unwrap_or(u64::MAX),
            holds: state.holds,
            boottime: self.world.clock.now(),
        }
    }

    fn broken(&self, status: &Status) -> Outcome {
        let problem = wire_status::problem_of(&self.config.target, status);
        if wire_status::retryable(status) { Outcome::Lost(problem) } else { Outcome::Refused(problem, None) }
    }
}

fn refusal(refused: Refusal) -> Outcome {
    Outcome::Refused(refused.problem, refused.retry_after)
}

/// A message that is none to this agent. Not by itself solved by trying again, but either side may be upgraded.
fn invalid(error: &ConvertError) -> Outcome {
    Outcome::Lost(wire_status::invalid(error))
}

fn to_wire(message: ToCoordinator) -> Result<v1::SessionRequest, Outcome> {
    message.try_into().map_err(|error: ConvertError| {
        let problem = Problem::new(ErrorCode::Internal, "a message to the coordinator cannot be written");
        Outcome::Lost(problem.caused_by(&error))
    })
}

impl Open<'_> {
    async fn run(
        mut self, out: mpsc::Sender<v1::SessionRequest>, beat: Duration, closing: &CancellationToken,
    ) -> Outcome {
        let mut beat = tokio::time::interval(beat);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let end = loop {
            let fence_ends = self.fence.as_ref().map_or_else(Instant::now, |fence| fence.give_up);
            tokio::select! {
                // In an order of its own, so that a simulated run is the same each time. None starves another: the rare
                // ones come first, and a coordinator says little.
                biased;
                () = self.agent.0.closed() => return Outcome::Closed,
                () = closing.cancelled() => break Outcome::Closed,
                () = sleep_until(fence_ends), if self.fence.is_some() => {
                    tracing::warn!("the workflow did not stop in time; the fence is not acknowledged");
                    return Outcome::Fenced;
                }
                _ = beat.tick() => self.heartbeat_due = true,
                Some(look) = self.looks.recv() => match look {
                    Look::Whole { seen, answers } => {
                        self.facts = Some(Box::new(seen.facts));
                        self.report = Some(seen.disks);
                        let mut state = self.runner.shared.lock();
                        state.inspections.retain(|uid| !answers.contains(uid));
                        state.checked.extend(answers.into_iter().map(|uid| (uid, None)));
                    }
                    Look::News(facts) => self.facts = Some(Box::new(facts)),
                },
                message = self.inbound.message() => match message {
                    Ok(Some(response)) => if let Err(outcome) = self.take(response) { return outcome },
                    Ok(None) if self.fence.is_some() => return Outcome::Fenced,
                    Ok(None) => return Outcome::Lost(self.went_away()),
                    Err(_) if self.fence.is_some() => return Outcome::Fenced,
                    Err(status) => return self.left(&status),
                },
                permit = out.reserve(), if self.has_something() => match permit {
                    Ok(permit) => {
                        let next = self.next_up();
                        let last = matches!(next, Some(ToCoordinator::FenceAck { .. }));
                        if let Some(message) = next {
                            match to_wire(message) {
                                Ok(message) => permit.send(message),
                                Err(outcome) => return outcome,
                            }
                        }
                        if last {
                            break Outcome::Fenced;
                        }
                    }
                    // HTTP/2 gave the stream up; reading says why, now or soon.
                    Err(_) => return match timeout(FAREWELL_LIMIT, self.inbound.message()).await {
                        Ok(Err(status)) => self.left(&status),
                        Ok(_) => Outcome::Lost(self.went_away()),
                        Err(_) => {
                            self.runner.config.target.pass_on();
                            Outcome::Lost(self.went_away())
                        }
                    },
                },
                () = self.runner.shared.wake.notified() => {}
            }
        };
        drop(out);
        self.farewell().await;
        end
    }

    /// Our side is done: takes what the coordinator still says, for a bounded time.
    async fn farewell(self) {
        let Self { runner, mut inbound, .. } = self;
        let until = Instant::now() + FAREWELL_LIMIT;
        while let Ok(Ok(Some(response))) = timeout_at(until, inbound.message()).await {
            if let Ok(ToAgent::Ack(ack)) = ToAgent::try_from(response) {
                take_ack(runner, ack);
            }
        }
    }

    /// The session has ended. Where the connection broke, or its coordinator fell silent, the next one begins with another coordinator, if
    /// there is one: this one would take the time of a handshake. After one that its coordinator ended, the agent comes back.
    fn left(&self, status: &Status) -> Outcome {
        if !wire_status::is_said(status) {
            self.runner.config.target.pass_on();
        }
        self.runner.broken(status)
    }

    fn went_away(&self) -> Problem {
        Problem::new(ErrorCode::SourceUnreachable, "the coordinator ended the session")
            .hint("it may be restarting; the agent tries again")
            .at(self.runner.config.target.to_string())
    }

    fn has_something(&self) -> bool {
        let state = self.runner.shared.lock();
        self.facts.is_some()
            || self.report.is_some()
            || self.heartbeat_due
            || state.outbox.has_unsent()
            || !state.checked.is_empty()
            || (self.fence.is_some() && state.is_still())
    }

    /// What to send next: heartbeats keep the session alive, facts are said once, events in their order, disks
    /// after the receipts that events report, and the answer to a fence only when nothing runs and every event has left.
    fn next_up(&mut self) -> Option<ToCoordinator> {
        if std::mem::take(&mut self.heartbeat_due) {
            // By the clock of the leases, which count from it.
            let vitals = Vitals { uptime: self.runner.world.clock.now(), ..self.runner.host.vitals() };
            return Some(ToCoordinator::Heartbeat(vitals));
        }
        if let Some(facts) = self.facts.take() {
            return Some(ToCoordinator::Facts(facts));
        }
        let mut state = self.runner.shared.lock();
        if let Some(event) = state.outbox.next_unsent() {
            return Some(ToCoordinator::Event(event));
        }
        if let Some((list_uid, problem)) = state.checked.pop_front() {
            return Some(ToCoordinator::Checked { list_uid, problem });
        }
        if let Some(report) = self.report.take() {
            return Some(ToCoordinator::Disks(report));
        }
        self.fence.as_ref().filter(|_| state.is_still()).map(|fence| ToCoordinator::FenceAck { epoch: fence.epoch })
    }

    /// Takes one message. An `Err` ends the connection.
    fn take(&mut self, response: v1::SessionResponse) -> Result<(), Outcome> {
        let named = named_attempt(&response);
        let message = match ToAgent::try_from(response) {
            Ok(message) => message,
            // The reason must reach the person: as that workflow's failure, where the message at least names the workflow.
            Err(error) => {
                return match named {
                    Some(action) => self.refuse(action, &error),
                    None => Err(invalid(&error)),
                };
            }
        };
        match message {
            ToAgent::Welcome(_) => Err(invalid(&ConvertError::new("welcome", "it came twice"))),
            ToAgent::Refused(refused) => Err(refusal(*refused)),
            ToAgent::Assign(assignment) => self.assignment(assignment),
            ToAgent::Check(list) => self.give(Instruction::Check(list)),
            ToAgent::Inspect(uid) => {
                self.runner.shared.lock().inspect(uid);
                self.runner.shared.inspect.notify_one();
                Ok(())
            }
            ToAgent::Ack(ack) => {
                take_ack(self.runner, ack);
                Ok(())
            }
            ToAgent::LeaseRenewal { epoch, lease, counts_from } => {
                if epoch != self.epoch || self.fence.is_some() {
                    tracing::warn!(epoch, "a lease renewal for another session is ignored");
                } else if !self.runner.shared.lock().lease.renew(lease, counts_from) {
                    tracing::debug!("a lease renewal came without a lease");
                }
                Ok(())
            }
            ToAgent::Cancel { workflow_uid, reason } => self.give(Instruction::Cancel { workflow_uid, reason }),
            ToAgent::Fenced { epoch, reason } => {
                {
                    let mut state = self.runner.shared.lock();
                    state.lease.revoke();
                    state.fenced = true;
                }
                tracing::warn!(reason, "fenced by a newer session of this machine");
                self.fence = Some(Fence { epoch, give_up: Instant::now() + FENCE_LIMIT });
                self.give(Instruction::Fenced { reason })
            }
            ToAgent::Control { workflow_uid, control } => self.give(Instruction::Control { workflow_uid, control }),
            ToAgent::Idle { boot_disk, ended } => self.give(Instruction::Idle { boot_disk, ended }),
        }
    }

    fn assignment(&self, assignment: Box<Assignment>) -> Result<(), Outcome> {
        if assignment.epoch != self.epoch {
            let what = format!("{} is not this session's", assignment.epoch);
            let first = ActionRef {
                workflow_uid: assignment.workflow_uid,
                action_index: assignment.start_index,
                attempt: assignment.start_attempt,
            };
            return self.refuse(first, &ConvertError::new("assignment.epoch", what));
        }
        if self.fence.is_some() {
            return Ok(());
        }
        let lease = {
            let mut state = self.runner.shared.lock();
            state.assigned += 1;
            state.lease.grant(assignment.lease, assignment.counts_from)
        };
        self.give(Instruction::Assign { assignment, lease })
    }

    /// Reports an assignment that cannot be taken as the failure of the attempt it starts with.
    fn refuse(&self, action: ActionRef, error: &ConvertError) -> Result<(), Outcome> {
        let problem = wire_status::invalid(error);
        tracing::error!(%problem, "an assignment is refused");
        let failed = EventBody::Failed { problem: problem.clone(), retryable: false };
        let kept = self.runner.shared.lock().outbox.report(action, crate::clock::wall_time(), failed);
        self.runner.shared.publish_unacked();
        kept.map(drop).map_err(|_| Outcome::Lost(problem))
    }

    fn give(&self, instruction: Instruction) -> Result<(), Outcome> {
        self.agent.give(instruction).map_err(|deaf| match deaf {
            Deaf::Gone => Outcome::Closed,
            Deaf::Full => {
                Outcome::Lost(Problem::new(ErrorCode::LimitReached, "the agent does not read its instructions"))
            }
        })
    }
}

fn take_ack(runner: &Runner, ack: Ack) {
    let taken = runner.shared.lock().outbox.ack(ack.action, ack.seq);
    match taken {
        Ok(()) => runner.shared.publish_unacked(),
        // Nothing is dropped on such an ack, so nothing can be lost by it.
        Err(error) => tracing::warn!(%error, "an ack is ignored"),
    }
}
