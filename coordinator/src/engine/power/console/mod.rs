//! Machines' serial consoles, each in a BMC session of its own beside the one of the power: one reader a machine, a task each.

mod output;
mod seats;
mod sign_in;
mod task;

use std::sync::Arc;
use std::time::Duration;

use landfall_api::{
    BmcSpec, ConsoleInput, ConsoleLine, ConsoleRequest, ConsoleTaken, ErrorCode, MAX_CONSOLE_INPUT, Problem,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use uuid::Uuid;

use super::Power;
use output::output;
pub(super) use seats::Seats;
use sign_in::SignIn;
use task::Task;

/// For the end of a console that another person takes over: its BMC is asked to end it, and may be silent.
const LEAVE: Duration = Duration::from_secs(10);
/// For the first login, of a person who waits; the operator's command waits for 60 s.
const OPEN: Duration = Duration::from_secs(50);
/// For input that does not find room: a BMC that takes nothing says so within 10 s.
const INPUT: Duration = Duration::from_secs(20);
/// Requests with input that wait for the BMC.
const INPUTS: usize = 4;

/// A console that a person reads. It ends when this is dropped.
pub struct OpenConsole {
    /// Its id, which its input names.
    pub id: Uuid,
    lines: mpsc::Receiver<ConsoleLine>,
}

impl OpenConsole {
    /// The next line; absent: it has ended.
    pub async fn next(&mut self) -> Option<ConsoleLine> {
        self.lines.recv().await
    }
}

impl Power {
    /// Opens a machine's serial console for a person.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (no such machine, no BMC, or none with a console in its document), `MachineBusy` (another reader has
    /// it, here or at the BMC, and the request does not say `takeOver`), `SourceUnreachable` (the BMC), `Timeout`, `StoreUnavailable` (the coordinator
    /// stops, or leads no more); of the Secret; or the store's.
    pub async fn open_console(
        &self, name: &str, person: &str, request: ConsoleRequest,
    ) -> Result<OpenConsole, Problem> {
        let machine = self.shared.fleet.described(name).await?;
        let at = format!("Machine/{name}");
        let refused = |code, what: String| Problem::new(code, what).at(&at);
        let Some(spec) = machine.spec.bmc.clone().map(Arc::new) else {
            let hint = "state spec.bmc in its document";
            return Err(refused(ErrorCode::NotFound, format!("machine \"{name}\" has no BMC")).hint(hint));
        };
        if self.seats.stop().is_cancelled() {
            return Err(stopping(name));
        }
        let Some(address) = spec.console().cloned() else { return Err(without_address(name, &spec)) };
        let (output, lines) = output();
        let (seat, inputs) = loop {
            let held = match self.seats.take(name, person, spec.clone(), output.reader(), self.shared.fleet.now()) {
                Ok(seat) => break seat,
                Err(held) => held,
            };
            let is_own = request.instead_of == Some(held.id) && held.person == person;
            // One whose reader has just gone is on its way out.
            if !request.take_over && !is_own && !held.reader.is_gone() {
                let what = format!("the console of machine \"{name}\" is open: {}, since {}", held.person, held.since);
                let hint = format!("landfall console {name} --take-over ends that one");
                return Err(refused(ErrorCode::MachineBusy, what).hint(hint));
            }
            held.end(&format!("{person} took the console over"));
            if timeout(LEAVE, held.gone.cancelled()).await.is_err() {
                let what = format!("the console of machine \"{name}\" that {} has did not end in time", held.person);
                return Err(refused(ErrorCode::Timeout, what).hint("ask again in a moment"));
            }
        };
        let id = seat.held.id;
        let (first, opened) = oneshot::channel();
        let sign_in = SignIn { shared: self.shared.clone(), machine: name.to_owned(), spec, address };
        seat.task(self.seats.tasks(), |held| {
            Task { sign_in, held, inputs, output, stop: self.seats.stop() }.run(request.take_over, first)
        });
        match timeout(OPEN, opened).await {
            Ok(Ok(outcome)) => outcome.map(|()| OpenConsole { id, lines }),
            Ok(Err(_)) => Err(stopping(name)),
            Err(_) => {
                let what = format!("the BMC of machine \"{name}\" opened no console within {} s", OPEN.as_secs());
                Err(refused(ErrorCode::Timeout, what).hint("ask again in a moment"))
            }
        }
    }

    /// Types at a console that this person has open. Answers once there is room for it: a BMC passes on few characters a second.
    ///
    /// # Errors
    /// [`Problem`] with code `NotFound` (it is not open any more), `InvalidDocument` (too many characters), `LimitReached` (the BMC does not take it in time).
    pub async fn type_at_console(
        &self, name: &str, person: &str, input: ConsoleInput,
    ) -> Result<ConsoleTaken, Problem> {
        let refused = |code, what: String| Problem::new(code, what).at(format!("Machine/{name}"));
        let length = input.characters.0.len();
        if length > MAX_CONSOLE_INPUT {
            let what = format!("one request may have {MAX_CONSOLE_INPUT} characters for a console, this has {length}");
            return Err(refused(ErrorCode::InvalidDocument, what).hint("send them in several"));
        }
        let held = self.seats.held(name, input.console).filter(|held| held.person == person).ok_or_else(|| {
            let what = format!("this console of machine \"{name}\" is not open any more");
            refused(ErrorCode::NotFound, what).hint(format!("landfall console {name} opens it again"))
        })?;
        let mut taken = held.taken.lock().await;
        let number = input.number;
        // One that is missing was given up by the sender, who sends one after the other; a late copy is not typed again.
        if number > *taken {
            match timeout(INPUT, held.input.send(input)).await {
                Ok(Ok(())) => *taken = number,
                Ok(Err(_)) => {
                    let what = format!("this console of machine \"{name}\" is not open any more");
                    return Err(
                        refused(ErrorCode::NotFound, what).hint(format!("landfall console {name} opens it again"))
                    );
                }
                Err(_) => {
                    let what = format!("the BMC of machine \"{name}\" takes no more characters");
                    return Err(refused(ErrorCode::LimitReached, what).hint("type it again in a moment"));
                }
            }
        }
        Ok(ConsoleTaken { number: *taken })
    }
}

/// The coordinator stops, or leads no more: who asks again reaches it when it has started, or the one that leads then.
fn stopping(name: &str) -> Problem {
    Problem::new(ErrorCode::StoreUnavailable, format!("the console of machine \"{name}\" did not begin"))
        .at(format!("Machine/{name}"))
        .hint("the coordinator that has the consoles is stopping; ask again in some seconds")
}

/// The document does not say where the console is.
fn without_address(machine: &str, spec: &BmcSpec) -> Problem {
    let host = spec.address.host();
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Problem::new(ErrorCode::NotFound, format!("the document of machine \"{machine}\" names no serial console"))
        .at(format!("Machine/{machine}"))
        .hint(format!(
            "Redfish has none: if the BMC has IPMI over LAN switched on, write spec.bmc.console: ipmi://{host}; \
             docs/power.md says what that costs"
        ))
}
