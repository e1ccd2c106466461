//! `landfall console`: a machine's serial console through its BMC, at this terminal.

mod escape;
mod terminal;
mod typing;

use std::pin::Pin;
use std::time::Duration;

use futures::StreamExt as _;
use landfall_api::{ConsoleLine, ConsoleRequest, ErrorCode};
use landfall_client::{Client, ClientError, Lines};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep, sleep, timeout};
use uuid::Uuid;

use crate::args::Console;
use crate::failure::Failure;
use crate::output::Out;
use escape::{Escape, HELP, Typed};
use terminal::Raw;
use typing::Typing;

/// Waits between attempts to reach the coordinator again: from the first, doubling, to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(10);
/// A coordinator away for longer than this ends the command.
const GIVE_UP: Duration = Duration::from_secs(600);

/// A coordinator that was killed leaves its session at the BMC, and the console with it, for about a minute (IPMI 2.0, 6.12.15).
const HELD: Duration = Duration::from_secs(180);
/// For what was typed just before the end.
const LAST: Duration = Duration::from_secs(2);

type Opening = Pin<Box<dyn Future<Output = Result<Lines<ConsoleLine>, ClientError>>>>;

/// How the console is connected.
enum Link {
    Opening(Opening),
    Open(Lines<ConsoleLine>),
    /// The coordinator does not answer; it is tried again then.
    Away(Pin<Box<Sleep>>),
}

/// What comes of the connection.
enum News {
    Opened(Result<Lines<ConsoleLine>, ClientError>),
    Line(Option<Result<ConsoleLine, ClientError>>),
    Again,
}

impl Link {
    /// May be cut off: nothing is lost by it.
    async fn next(&mut self) -> News {
        match self {
            Self::Opening(opening) => News::Opened(opening.await),
            Self::Open(lines) => News::Line(lines.next().await),
            Self::Away(over) => {
                over.await;
                News::Again
            }
        }
    }
}

pub(crate) async fn run(args: &Console, client: &Client, out: &mut Out) -> Result<(), Failure> {
    let name = super::machines::name(&args.machine)?;
    let request = ConsoleRequest { take_over: args.take_over, instead_of: None };
    // What is refused is said before the terminal is changed.
    let lines = client.open_console(name, &request).await?;
    let (mut interrupted, mut ended, mut hung_up) =
        (on(SignalKind::interrupt())?, on(SignalKind::terminate())?, on(SignalKind::hangup())?);
    let is_person = terminal::is_there();
    if is_person {
        terminal::say(false, &[&format!("console of {name}: ~. after Enter ends it, ~? shows more")]);
    }
    let mut session = Session {
        client,
        name,
        out,
        link: Link::Open(lines),
        console: None,
        away_since: None,
        wait: FIRST_WAIT,
        typing: Typing::new(client, name),
        escape: Escape::default(),
        raw: is_person.then(Raw::enter).transpose().map_err(|error| failed("cannot set up the terminal", error))?,
    };
    let outcome = tokio::select! {
        outcome = session.run(is_person.then(terminal::keys)) => outcome,
        _ = interrupted.recv() => Ok(()),
        _ = ended.recv() => Ok(()),
        _ = hung_up.recv() => Ok(()),
    };
    let was_raw = session.raw.take().is_some();
    if was_raw {
        // The prompt of the shell begins a line.
        crate::output::to_stderr("");
    }
    outcome
}

fn failed(what: &str, error: std::io::Error) -> Failure {
    Failure::local(what, error, "")
}

fn on(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| failed("cannot await signals", error))
}

/// One console, from its first line to its end.
struct Session<'a> {
    client: &'a Client,
    name: &'a str,
    out: &'a mut Out,
    link: Link,
    /// The newest id.
    console: Option<Uuid>,
    /// Since when the coordinator has not answered.
    away_since: Option<Instant>,
    wait: Duration,
    typing: Typing,
    escape: Escape,
    raw: Option<Raw>,
}

impl Session<'_> {
    async fn run(&mut self, keys: Option<mpsc::Receiver<Vec<u8>>>) -> Result<(), Failure> {
        let mut resumed = on(SignalKind::from_raw(SIGCONT))?;
        let (_open, none) = mpsc::channel(1);
        let mut keys = keys.unwrap_or(none);
        loop {
            tokio::select! {
                news = self.link.next() => self.take(news)?,
                typed = keys.recv(), if self.typing.has_room() => match typed {
                    Some(typed) => if self.typed(&typed) {
                        // What was typed before the end is meant for the machine: `exit`, for one.
                        drop(timeout(LAST, self.typing.flush()).await);
                        return Ok(());
                    },
                    // The terminal is gone.
                    None => return Ok(()),
                },
                error = self.typing.send(), if matches!(self.link, Link::Open(_)) => {
                    self.say(&format!("what was typed was not sent: {error}"));
                }
                _ = resumed.recv() => if let Some(raw) = &self.raw {
                    raw.again().map_err(|error| failed("cannot set up the terminal", error))?;
                },
            }
        }
    }

    /// Takes what was typed; whether that is the end.
    fn typed(&mut self, keys: &[u8]) -> bool {
        for typed in self.escape.read(keys) {
            match typed {
                Typed::Characters(characters) => self.typing.characters(&characters),
                Typed::Break => self.typing.send_break(),
                Typed::Help => terminal::say(self.raw.is_some(), HELP),
                Typed::End => return true,
            }
        }
        false
    }

    fn take(&mut self, news: News) -> Result<(), Failure> {
        match news {
            News::Line(Some(Ok(line))) => self.line(line)?,
            News::Line(Some(Err(error))) => self.lost(error)?,
            News::Line(None) => {
                let what = "the coordinator ended the connection".into();
                self.lost(ClientError::Unreachable { what, causes: Vec::new(), hint: String::new() })?;
            }
            News::Opened(Ok(lines)) => self.link = Link::Open(lines),
            News::Opened(Err(error)) => self.lost(error)?,
            News::Again => {
                let (client, name) = (self.client.clone(), self.name.to_owned());
                let request = ConsoleRequest { take_over: false, instead_of: self.console };
                self.link = Link::Opening(Box::pin(async move { client.open_console(&name, &request).await }));
            }
        }
        Ok(())
    }

    fn line(&mut self, line: ConsoleLine) -> Result<(), Failure> {
        match line {
            ConsoleLine::Opened(console) => {
                if self.away_since.take().is_some() {
                    self.say("the console is open again; what was typed meanwhile was not sent");
                }
                self.wait = FIRST_WAIT;
                self.console = Some(console);
                self.typing.begin(console);
            }
            ConsoleLine::Output(characters) => self.out.bytes(&characters.0)?,
            ConsoleLine::Notice(text) => self.say(&text),
            ConsoleLine::Ended(problem) => return Err(problem.into()),
        }
        Ok(())
    }

    /// The coordinator is away, and tried again; or it refuses, and that is the end.
    fn lost(&mut self, error: ClientError) -> Result<(), Failure> {
        let since = *self.away_since.get_or_insert_with(Instant::now);
        let limit = match &error {
            ClientError::Unreachable { .. } => GIVE_UP,
            // The one that has the consoles is gone, and another one takes its place.
            ClientError::Problem(problem) if problem.code == ErrorCode::StoreUnavailable => GIVE_UP,
            ClientError::Problem(problem) if problem.code == ErrorCode::MachineBusy => HELD,
            _ => Duration::ZERO,
        };
        if since.elapsed() > limit {
            return Err(error.into());
        }
        if self.wait == FIRST_WAIT {
            self.say(&format!("{error}; trying again"));
        }
        self.link = Link::Away(Box::pin(sleep(self.wait)));
        self.wait = (self.wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    fn say(&self, text: &str) {
        terminal::say(self.raw.is_some(), &[text]);
    }
}

/// "Continue", after a stop (signal(7)): tokio has no name for it.
const SIGCONT: i32 = 18;
