//! One console from its first login to its end: it passes on both directions, and opens it again where the BMC has ended it.

use std::sync::Arc;
use std::time::Duration;

use landfall_api::{ConsoleInput, ErrorCode, Problem};
use landfall_bmc::{BmcError, Console, ConsoleEvent};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::output::Output;
use super::seats::Held;
use super::sign_in::{Failed, SignIn};

/// Between two logins of a console that was lost: from the first, doubled up to the longest.
const AGAIN: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);
/// A BMC that restarts is back within it.
const AWAY: Duration = Duration::from_secs(600);
/// A BMC that lost its network holds the session that was lost, and the console with it, for about a minute (IPMI 2.0, 6.12.15).
const HELD: Duration = Duration::from_secs(150);

/// For the BMC to take what was typed just before the end.
const LAST: Duration = Duration::from_secs(1);

/// Why a console is not passed on any more.
enum End {
    /// The reader has gone; or the coordinator stops, and the reader comes back to the next one.
    Reader,
    /// It is to end, for this reason.
    Asked(String),
    /// The BMC.
    Lost(BmcError),
}

/// One console.
pub(super) struct Task {
    pub(super) sign_in: SignIn,
    pub(super) held: Arc<Held>,
    pub(super) inputs: mpsc::Receiver<ConsoleInput>,
    pub(super) output: Output,
    pub(super) stop: CancellationToken,
}

impl Task {
    /// Opens it, says so once, and runs it until its end.
    pub(super) async fn run(mut self, take_over: bool, first: oneshot::Sender<Result<(), Problem>>) {
        let mut console = match self.sign_in.open(take_over).await {
            Ok(console) => console,
            Err(failure) => {
                // The person may have gone.
                drop(first.send(Err(self.sign_in.problem(failure))));
                return;
            }
        };
        let machine = self.sign_in.machine.clone();
        tracing::info!(machine, person = self.held.person, "the machine's console is open");
        let mut end = match first.send(Ok(())) {
            Ok(()) => self.pass(&mut console).await,
            Err(_) => End::Reader,
        };
        loop {
            console.close().await;
            let lost = match end {
                End::Reader => break,
                End::Asked(why) => {
                    self.output.end(ended(&machine, &why)).await;
                    break;
                }
                End::Lost(error) => error,
            };
            tracing::warn!(machine, error = %lost, "the machine's console was lost");
            self.output.notice(format!("the console was lost: {lost}; it is opened again"));
            console = match self.reopen(&lost).await {
                Ok(console) => console,
                Err(Some(problem)) => {
                    self.output.end(problem).await;
                    break;
                }
                Err(None) => break,
            };
            self.output.notice("the console is open again; what was typed meanwhile was not sent");
            end = self.pass(&mut console).await;
        }
        tracing::info!(machine, person = self.held.person, "the machine's console is closed");
    }

    /// Passes on both directions, until one of the two ends.
    async fn pass(&mut self, console: &mut Console) -> End {
        loop {
            tokio::select! {
                event = console.next() => match event {
                    Ok(event) => self.show(event),
                    Err(error) => return End::Lost(error),
                },
                Some(input) = self.inputs.recv(), if console.has_room() => {
                    type_in(console, &input);
                }
                () = self.output.closed() => {
                    // What was typed before is meant for the machine.
                    drop(timeout(LAST, self.flush(console)).await);
                    return End::Reader;
                }
                () = self.held.ends.cancelled() => return self.asked(),
            }
        }
    }

    /// Sends what was typed, without a reader for what comes of it.
    async fn flush(&mut self, console: &mut Console) -> Result<(), BmcError> {
        while let Ok(input) = self.inputs.try_recv() {
            type_in(console, &input);
        }
        // The last packet is on its way until something comes back, and that may be the acknowledgement alone.
        console.drain().await
    }

    fn asked(&self) -> End {
        if self.stop.is_cancelled() {
            return End::Reader;
        }
        End::Asked(self.held.why())
    }

    fn show(&mut self, event: ConsoleEvent) {
        match event {
            ConsoleEvent::Output(bytes) => self.output.characters(bytes),
            ConsoleEvent::Unavailable => {
                self.output.notice("the BMC does not reach the serial port: the machine has no power, or starts");
            }
            ConsoleEvent::Available => self.output.notice("the BMC reaches the serial port again"),
            ConsoleEvent::Overrun => self.output.notice("the BMC lost some of what the machine wrote"),
            ConsoleEvent::Break => self.output.notice("the machine sent a break"),
            ConsoleEvent::Unsent(bytes) => {
                self.output.notice(format!("the BMC does not take what is typed; {bytes} bytes were not sent"));
            }
        }
    }

    /// Opens it again. `Err(None)`: the reader has gone; else why it cannot be opened.
    async fn reopen(&mut self, lost: &BmcError) -> Result<Console, Option<Problem>> {
        let (begun, mut wait) = (Instant::now(), AGAIN);
        loop {
            self.wait(wait).await?;
            let opened = {
                // Not to be cut off; and what is typed at a screen that stands still must not reach another prompt.
                let mut opening = std::pin::pin!(self.sign_in.open(false));
                loop {
                    tokio::select! {
                        opened = &mut opening => break opened,
                        Some(_) = self.inputs.recv() => {}
                    }
                }
            };
            while self.inputs.try_recv().is_ok() {}
            let failure = match opened {
                Ok(console) => return Ok(console),
                Err(failure) => failure,
            };
            let limit = match &failure {
                // Another program has taken it over: it is theirs.
                Failed::Bmc(BmcError::ConsoleBusy { .. }) if matches!(lost, BmcError::ConsoleEnded { .. }) => {
                    Duration::ZERO
                }
                Failed::Bmc(BmcError::ConsoleBusy { .. }) => HELD,
                Failed::Bmc(error) if error.is_passing() => AWAY,
                _ => Duration::ZERO,
            };
            if begun.elapsed() >= limit {
                return Err(Some(self.sign_in.problem(failure)));
            }
            wait = (wait * 2).min(LONGEST);
        }
    }

    /// Waits; what is typed meanwhile goes nowhere.
    async fn wait(&mut self, time: Duration) -> Result<(), Option<Problem>> {
        let mut over = std::pin::pin!(sleep(time));
        loop {
            tokio::select! {
                () = &mut over => return Ok(()),
                Some(_) = self.inputs.recv() => {}
                () = self.output.closed() => return Err(None),
                () = self.held.ends.cancelled() => match self.asked() {
                    End::Asked(why) => return Err(Some(ended(&self.sign_in.machine, &why))),
                    End::Reader | End::Lost(_) => return Err(None),
                },
            }
        }
    }
}

fn type_in(console: &mut Console, input: &ConsoleInput) {
    console.type_in(&input.characters.0);
    if input.send_break {
        console.send_break();
    }
}

/// It was ended from here.
fn ended(machine: &str, why: &str) -> Problem {
    Problem::new(ErrorCode::Conflict, format!("the console of machine \"{machine}\" has ended: {why}"))
        .at(format!("Machine/{machine}"))
        .hint(format!("landfall console {machine} opens it again"))
}
