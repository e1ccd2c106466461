//! A session that is open: one request after the other.

use std::io;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::channel::Channel;
use super::line::{Line, MAX_PACKET, TRIES};
use super::message::{Answer, Command, answer, request};
use super::packet::kind;
use super::random::random;

/// "Node busy" (table 5-2) is asked again so often.
const BUSY_TRIES: u32 = 5;
/// After so long.
const BUSY_WAIT: Duration = Duration::from_millis(500);
/// A BMC ends a session after 60 s without a packet, give or take three (6.12.15); none is used that is close to it.
const IDLE: Duration = Duration::from_secs(45);

/// A session that is open.
pub(super) struct Session {
    line: Line,
    channel: Channel,
    /// Of the newest request.
    sequence: u8,
    heard: Instant,
}

impl Session {
    pub(super) fn new(line: Line, channel: Channel) -> Self {
        Self { line, channel, sequence: 0, heard: Instant::now() }
    }

    /// Whether the BMC may have ended it.
    pub(super) fn is_stale(&self) -> bool {
        self.heard.elapsed() > IDLE
    }

    /// One request and its answer. Why there is none, otherwise.
    pub(super) async fn ask(&mut self, command: Command, data: &[u8]) -> Result<Answer, String> {
        let mut busy = 0;
        loop {
            let answer = self.exchange(command, data).await?;
            if answer.code != 0xc0 || busy == BUSY_TRIES {
                return Ok(answer);
            }
            busy += 1;
            sleep(BUSY_WAIT).await;
        }
    }

    async fn exchange(&mut self, command: Command, data: &[u8]) -> Result<Answer, String> {
        // Sent again it keeps its number, by which the BMC knows the copy (5.8); the session's number is always new.
        self.sequence = (self.sequence + 1) & 0x3f;
        let sequence = self.sequence;
        let message = request(command, sequence, data);
        let found = self
            .line
            .ask(
                TRIES,
                &mut self.channel,
                |channel| channel.seal(&message, random()),
                |channel, bytes| answer(&channel.open(bytes)?).filter(|answer| answer.is_to(command, sequence)),
            )
            .await?;
        self.heard = Instant::now();
        Ok(found)
    }

    /// The session's id at the BMC.
    pub(super) const fn id(&self) -> u32 {
        self.channel.there()
    }

    /// When the BMC was last heard.
    pub(super) const fn heard(&self) -> Instant {
        self.heard
    }

    /// Sends a payload of that type, and awaits nothing.
    pub(super) async fn send(&mut self, kind: u8, payload: &[u8]) {
        let packet = self.channel.seal_as(kind, payload, random());
        self.line.tell(&packet).await;
    }

    /// Sends a request whose answer [`Session::receive`] has.
    pub(super) async fn tell(&mut self, command: Command, data: &[u8]) {
        self.sequence = (self.sequence + 1) & 0x3f;
        let message = request(command, self.sequence, data);
        self.send(kind::MESSAGE, &message).await;
    }

    /// Waits for a packet: its type and its payload; absent: it is not of this session. May be cut off: no packet is lost by it.
    ///
    /// # Errors
    /// Those of the socket, but not that a packet before was not taken.
    pub(super) async fn receive(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        let mut buffer = [0; MAX_PACKET];
        let length = match self.line.receive(&mut buffer).await {
            Ok(length) => length,
            // "Port unreachable": the BMC starts. Whether it stays silent shows later.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => return Ok(None),
            Err(error) => return Err(error),
        };
        let opened = self.channel.open_any(buffer.get(..length).unwrap_or_default());
        if opened.is_some() {
            self.heard = Instant::now();
        }
        Ok(opened)
    }

    /// Ends it, as far as one packet does that: one that the BMC has ended is not answered.
    pub(super) async fn close(mut self) {
        self.sequence = (self.sequence + 1) & 0x3f;
        let message = request(Command::CLOSE, self.sequence, &self.channel.there().to_le_bytes());
        let packet = self.channel.seal(&message, random());
        self.line.tell(&packet).await;
    }
}
