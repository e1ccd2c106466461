//! What was typed, on its way to the coordinator: one request after the other, and meanwhile the rest waits.

use std::collections::VecDeque;
use std::pin::Pin;
use std::time::Duration;

use landfall_api::{Characters, ConsoleInput, MAX_CONSOLE_INPUT};
use landfall_client::{Client, ClientError};
use tokio::time::sleep;
use uuid::Uuid;

/// Characters that wait; then no more keys are read.
const MAX_WAITING: usize = 16 * 1024;
/// A request that is not answered is sent so often, as the same one.
const TRIES: u32 = 4;
/// After so long each time.
const AGAIN: Duration = Duration::from_millis(500);

type Sending = Pin<Box<dyn Future<Output = Result<(), ClientError>>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Key {
    Character(u8),
    Break,
}

/// The way to one open console.
pub(super) struct Typing {
    client: Client,
    machine: String,
    waiting: VecDeque<Key>,
    sending: Option<Sending>,
    console: Uuid,
    number: u64,
}

impl Typing {
    pub(super) fn new(client: &Client, machine: &str) -> Self {
        Self {
            client: client.clone(),
            machine: machine.to_owned(),
            waiting: VecDeque::new(),
            sending: None,
            console: Uuid::nil(),
            number: 0,
        }
    }

    /// The console is another one from now on: what was typed at the one before is not for it.
    pub(super) fn begin(&mut self, console: Uuid) {
        (self.console, self.number, self.sending) = (console, 0, None);
        self.waiting.clear();
    }

    pub(super) fn has_room(&self) -> bool {
        self.waiting.len() < MAX_WAITING
    }

    pub(super) fn characters(&mut self, characters: &[u8]) {
        self.waiting.extend(characters.iter().copied().map(Key::Character));
    }

    pub(super) fn send_break(&mut self) {
        self.waiting.push_back(Key::Break);
    }

    /// The next request: characters up to a break, and the break.
    fn take(&mut self) -> Option<ConsoleInput> {
        if self.waiting.is_empty() || self.console.is_nil() {
            return None;
        }
        let (mut characters, mut send_break) = (Vec::new(), false);
        while !send_break && characters.len() < MAX_CONSOLE_INPUT {
            match self.waiting.pop_front() {
                Some(Key::Character(byte)) => characters.push(byte),
                Some(Key::Break) => send_break = true,
                None => break,
            }
        }
        self.number += 1;
        Some(ConsoleInput {
            console: self.console,
            number: self.number,
            characters: Characters(characters),
            send_break,
        })
    }

    /// Sends the next request, if there is one, or the one that is on its way. Whether there was one; or why it was not sent. May be cut
    /// off.
    async fn step(&mut self) -> Result<bool, ClientError> {
        if self.sending.is_none()
            && let Some(input) = self.take()
        {
            self.sending = Some(Box::pin(post(self.client.clone(), self.machine.clone(), input)));
        }
        let Some(sending) = &mut self.sending else { return Ok(false) };
        let outcome = sending.await;
        self.sending = None;
        outcome.map(|()| true)
    }

    /// Sends what waits, and goes on with that for ever; returns only why something was not sent. May be cut off.
    pub(super) async fn send(&mut self) -> ClientError {
        loop {
            match self.step().await {
                Ok(true) => {}
                Ok(false) => std::future::pending().await,
                Err(error) => return error,
            }
        }
    }

    /// Sends what waits.
    pub(super) async fn flush(&mut self) {
        while let Ok(true) = self.step().await {}
    }
}

/// One request. Where its answer is lost it is sent again with its number, by which the coordinator knows the copy.
async fn post(client: Client, machine: String, input: ConsoleInput) -> Result<(), ClientError> {
    let mut tries = 1;
    loop {
        match client.type_at_console(&machine, &input).await {
            Err(ClientError::Unreachable { .. }) if tries < TRIES => {
                tries += 1;
                sleep(AGAIN).await;
            }
            outcome => return outcome.map(drop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_bound_and_breaks_keep_their_place() {
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = Client::local(std::path::Path::new("/nowhere")).unwrap();
        let mut typing = Typing::new(&client, "m1");
        typing.characters(b"early");
        assert_eq!(typing.take(), None, "there is no console yet");
        typing.begin(Uuid::from_u128(1));
        typing.characters(&[b'x'; MAX_CONSOLE_INPUT + 1]);
        typing.send_break();
        typing.characters(b"y");
        let taken: Vec<_> = std::iter::from_fn(|| typing.take())
            .map(|input| (input.number, input.characters.0.len(), input.send_break))
            .collect();
        assert_eq!(taken, [(1, MAX_CONSOLE_INPUT, false), (2, 1, true), (3, 1, false)]);
        typing.characters(&[b'x'; MAX_WAITING]);
        assert!(!typing.has_room());
    }
}
