//! A serial console that is open: Serial over LAN in a session of its own.

use std::time::Duration;

use landfall_api::BmcAddress;
use tokio::time::{Instant, sleep_until, timeout};

use super::message::{Answer, Command, answer};
use super::packet::kind;
use super::session::Session;
use super::sign_in::Host;
use super::sol;
use super::sol_link::Link;
use crate::error::BmcError;
use crate::{Account, ConsoleEvent};

/// The BMC is asked for an answer so often: it ends a session after 60 s without a packet (6.12.15), and for some, such as ipmi_sim,
/// those of Serial over LAN do not count.
const EVERY: Duration = Duration::from_secs(20);
/// It is asked so often …
const PROBES: u32 = 5;
/// … each time waiting so long.
const PROBE: Duration = Duration::from_secs(1);
/// For the answer to each request that ends something: a BMC that is silent ends it by itself.
const CLOSE: Duration = Duration::from_millis(1200);

/// A computer's serial console, through its BMC, in a session of its own. It is to be closed: a BMC has one console, and few sessions.
pub struct Console {
    url: String,
    session: Session,
    link: Link,
    /// Probes since the BMC was last heard, and when the next one is due.
    probes: u32,
    probe_at: Instant,
    /// The session that has the console, as the BMC first said it: some say it by the id that we gave. `Some(None)`: none.
    owner: Option<Option<u32>>,
}

impl Console {
    /// Logs in once, and activates Serial over LAN. `take_over`: also where another session has it, which loses it. Nothing of the BMC's
    /// configuration is changed.
    ///
    /// # Errors
    /// [`BmcError`]; `Refused`: the account is wrong, and asking again with it may lock it out; `ConsoleBusy`, `ConsoleOff`.
    pub async fn open(address: &BmcAddress, account: Account, take_over: bool) -> Result<Self, BmcError> {
        let mut host = Host::connect(address, account).await?;
        match activate(&mut host, take_over).await {
            Ok(chunk) => {
                let (url, link) = (host.url().to_owned(), Link::new(chunk));
                let session = host.into_session()?;
                // At once: who has it now is this session.
                let probe_at = Instant::now();
                Ok(Self { url, session, link, probes: 0, probe_at, owner: None })
            }
            Err(error) => {
                host.close().await;
                Err(error)
            }
        }
    }

    /// Whether more may be typed now: a BMC passes on few characters a second.
    pub fn has_room(&self) -> bool {
        self.link.has_room()
    }

    /// Sends characters to the computer, from the next call of [`Console::next`] on.
    pub fn type_in(&mut self, bytes: &[u8]) {
        self.link.type_in(bytes);
    }

    /// Sends a break to the computer, behind the characters before.
    pub fn send_break(&mut self) {
        self.link.send_break();
    }

    /// Waits for what comes from the computer, and sends what was typed meanwhile. May be cut off: nothing is lost by it.
    ///
    /// # Errors
    /// [`BmcError::Unreachable`]: the BMC is silent; `ConsoleEnded`: it says that this is the end.
    pub async fn next(&mut self) -> Result<ConsoleEvent, BmcError> {
        loop {
            if let Some(event) = self.step().await? {
                return Ok(event);
            }
        }
    }

    /// Sends what was typed; what comes from the computer meanwhile is dropped.
    ///
    /// # Errors
    /// As [`Console::next`].
    pub async fn drain(&mut self) -> Result<(), BmcError> {
        while !self.link.is_idle() {
            self.step().await?;
        }
        Ok(())
    }

    /// An event that there is; or one packet, or one wait.
    async fn step(&mut self) -> Result<Option<ConsoleEvent>, BmcError> {
        if let Some(packet) = self.link.due(Instant::now()) {
            self.session.send(kind::SOL, &packet).await;
        }
        if let Some(event) = self.link.event() {
            return Ok(Some(event));
        }
        if self.link.has_ended() {
            return Err(BmcError::ConsoleEnded { url: self.url.clone() });
        }
        let wakes = self.link.wakes().map_or(self.probe_at, |at| at.min(self.probe_at));
        tokio::select! {
            received = self.session.receive() => match received {
                Ok(Some((received, payload))) => {
                    if self.probes > 0 {
                        (self.probes, self.probe_at) = (0, self.session.heard() + EVERY);
                    }
                    let answer = if received == kind::SOL { self.link.take(&payload, Instant::now()) } else { None };
                    if received == kind::MESSAGE && self.is_anothers(&payload) {
                        return Err(BmcError::ConsoleEnded { url: self.url.clone() });
                    }
                    if let Some(answer) = answer {
                        self.session.send(kind::SOL, &answer).await;
                    }
                }
                Ok(None) => {}
                Err(error) => return Err(self.silent(error.to_string())),
            },
            () = sleep_until(wakes) => self.probe().await?,
        }
        Ok(None)
    }

    /// Asks whether the BMC is there, if it is time.
    async fn probe(&mut self) -> Result<(), BmcError> {
        if Instant::now() < self.probe_at {
            return Ok(());
        }
        if self.probes == PROBES {
            return Err(self.silent("it has ended the session, or has no network".into()));
        }
        (self.probes, self.probe_at) = (self.probes + 1, Instant::now() + PROBE);
        self.session.tell(Command::INSTANCE, &sol::INSTANCE).await;
        Ok(())
    }

    /// Whether the answer to a probe says that another session has the console: the packet that says so may be lost, and some send none.
    fn is_anothers(&mut self, payload: &[u8]) -> bool {
        let Some(found) = answer(payload).filter(|found| found.is_of(Command::INSTANCE) && found.code == 0) else {
            return false;
        };
        let owner = sol::owner(&found.data);
        match self.owner {
            Some(Some(first)) => owner != Some(first) && owner != Some(self.session.id()),
            // One that said of none at first may say it late.
            _ => {
                self.owner = Some(owner);
                false
            }
        }
    }

    fn silent(&self, why: String) -> BmcError {
        BmcError::Unreachable { url: self.url.clone(), why }
    }

    /// Ends Serial over LAN, if this session has it still, and the session. Of a silent BMC it takes 1.2 s.
    pub async fn close(mut self) {
        let id = self.session.id();
        // A request to end it ends it for whichever session has it: another one may have taken it over.
        let mut requests = vec![(Command::CLOSE, id.to_le_bytes().to_vec())];
        let is_taken = self.link.has_ended()
            || match self.ask(Command::INSTANCE, &sol::INSTANCE).await {
                // Whose it is where the BMC does not say is not known: the end of the session frees it.
                Some(answer) => {
                    let owner = sol::owner(&answer.data);
                    answer.code != 0 || owner != Some(id) && Some(owner) != self.owner
                }
                None => {
                    self.session.close().await;
                    return;
                }
            };
        if !is_taken {
            requests.insert(0, (Command::DEACTIVATE, sol::deactivate()));
        }
        for (command, data) in requests {
            self.ask(command, &data).await;
        }
    }

    /// A request at the end, where no answer is no error.
    async fn ask(&mut self, command: Command, data: &[u8]) -> Option<Answer> {
        let answer = timeout(CLOSE, self.session.ask(command, data)).await.ok().and_then(Result::ok);
        if answer.is_none() {
            tracing::debug!(url = self.url, command = command.name, "the BMC did not answer at the console's end");
        }
        answer
    }
}

/// Activates Serial over LAN: how many characters a packet may have.
async fn activate(host: &mut Host, take_over: bool) -> Result<usize, BmcError> {
    let mut may_deactivate = true;
    loop {
        let code = match host.ask(Command::ACTIVATE, &sol::activate()).await {
            Ok(answer) => return sol::chunk(&answer).ok_or_else(|| host.invalid("Activate Payload is too short")),
            Err(BmcError::Answered { code, .. }) if matches!(code, sol::BUSY | sol::OFF | sol::LIMIT) => code,
            Err(error) => return Err(error),
        };
        let url = host.url().to_owned();
        if code == sol::OFF {
            return Err(BmcError::ConsoleOff { url });
        }
        // A request that is sent again, for its answer was lost, finds the console in use: by this session.
        if !may_deactivate || !(take_over || is_ours(host).await?) {
            return Err(BmcError::ConsoleBusy { url });
        }
        may_deactivate = false;
        match host.ask(Command::DEACTIVATE, &sol::deactivate()).await {
            Ok(_) | Err(BmcError::Answered { code: sol::INACTIVE, .. }) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether the console is this session's own. A BMC that does not say has another's.
async fn is_ours(host: &mut Host) -> Result<bool, BmcError> {
    match host.ask(Command::INSTANCE, &sol::INSTANCE).await {
        Ok(answer) => Ok(sol::owner(&answer).is_some_and(|owner| owner == host.session_id())),
        Err(BmcError::Answered { .. } | BmcError::Forbidden { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
