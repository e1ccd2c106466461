//! QEMU's machine protocol: one JSON object a line over a Unix socket.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::{broadcast, oneshot};

use crate::LabError;

/// QEMU answers commands at once, but one that changes a disk after the flush under way, which waits for the host's disk; what
/// takes longer is broken.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Events a slow reader may lag behind before it loses the oldest.
const EVENTS: usize = 256;

type Waiting = Arc<Mutex<Vec<(u64, oneshot::Sender<Value>)>>>;

/// A connection to one machine.
#[derive(Debug)]
pub struct Qmp {
    writer: OwnedWriteHalf,
    waiting: Waiting,
    /// The task that reads has the sender; with it all receivers end, since QEMU is gone.
    events: broadcast::WeakSender<Value>,
    next_id: u64,
}

impl Qmp {
    /// Connects and leaves negotiation mode.
    ///
    /// # Errors [`LabError::Qmp`] if no process listens or the greeting is not QMP's.
    pub async fn connect(socket: &Path) -> Result<Self, LabError> {
        let failed = |message: String| LabError::Qmp { command: "connect".into(), message };
        let stream = UnixStream::connect(socket).await.map_err(|e| failed(format!("{}: {e}", socket.display())))?;
        let (reader, writer) = stream.into_split();
        let mut lines = BufReader::new(reader).lines();
        let greeting = tokio::time::timeout(ANSWER_LIMIT, lines.next_line()).await;
        match greeting {
            Ok(Ok(Some(line))) if line.contains("\"QMP\"") => {}
            other => return Err(failed(format!("no greeting: {other:?}"))),
        }
        let waiting = Waiting::default();
        let events = broadcast::Sender::new(EVENTS);
        let their_waiting = Arc::clone(&waiting);
        let (events, their_events) = (events.downgrade(), events);
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                let Ok(message) = serde_json::from_str::<Value>(&line) else { continue };
                if message.get("event").is_some() {
                    // Without a receiver the event is dropped.
                    let _ = their_events.send(message);
                } else if let Some(id) = message.get("id").and_then(Value::as_u64) {
                    let mut waiting = their_waiting.lock().unwrap_or_else(PoisonError::into_inner);
                    if let Some(at) = waiting.iter().position(|(waiter, _)| *waiter == id) {
                        // The waiter may have given up.
                        let _ = waiting.swap_remove(at).1.send(message);
                    }
                }
            }
            // Dropping the senders notifies every waiter that the connection is gone.
            their_waiting.lock().unwrap_or_else(PoisonError::into_inner).clear();
        });
        let mut qmp = Self { writer, waiting, events, next_id: 1 };
        qmp.command("qmp_capabilities", json!({})).await?;
        Ok(qmp)
    }

    /// Runs a command and returns what it answers.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if QEMU refuses it, does not answer, or is gone.
    pub async fn command(&mut self, command: &str, arguments: Value) -> Result<Value, LabError> {
        let failed = |message: String| LabError::Qmp { command: command.to_owned(), message };
        let id = self.next_id;
        self.next_id += 1;
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push((id, answer));
        let mut line = json!({ "execute": command, "arguments": arguments, "id": id }).to_string();
        line.push('\n');
        self.writer.write_all(line.as_bytes()).await.map_err(|e| failed(e.to_string()))?;
        let answer = tokio::time::timeout(ANSWER_LIMIT, answered)
            .await
            .map_err(|_| failed(format!("no answer within {ANSWER_LIMIT:?}")))?
            .map_err(|_| failed("QEMU is gone".into()))?;
        match answer.get("error") {
            Some(error) => Err(failed(error["desc"].as_str().unwrap_or("refused").to_owned())),
            None => Ok(answer["return"].clone()),
        }
    }

    /// `running`, `paused`, `shutdown` and so on.
    ///
    /// # Errors
    /// [`LabError::Qmp`].
    pub async fn status(&mut self) -> Result<String, LabError> {
        let answer = self.command("query-status", json!({})).await?;
        Ok(answer["status"].as_str().unwrap_or_default().to_owned())
    }

    /// Bytes that the guest has written to the disk of this number since the power-on, as QEMU counts them when a write is
    /// complete. (The room that the disk takes on the host changes by itself: the host's file system allocates later.)
    ///
    /// # Errors
    /// [`LabError::Qmp`].
    pub async fn written_bytes(&mut self, disk: usize) -> Result<u64, LabError> {
        let command = "query-blockstats";
        let answer = self.command(command, json!({})).await?;
        let device = format!("/machine/peripheral/dev{disk}/");
        let of_the_disk =
            |one: &&Value| one["qdev"].as_str().is_some_and(|path| format!("{path}/").starts_with(&device));
        let found = answer.as_array().into_iter().flatten().find(of_the_disk);
        found
            .and_then(|one| one["stats"]["wr_bytes"].as_u64())
            .ok_or_else(|| LabError::Qmp { command: command.into(), message: format!("it has no count for {device}") })
    }

    /// What the hardware clock shows, UTC: year, month, day, hour.
    ///
    /// # Errors
    /// [`LabError::Qmp`].
    pub async fn hardware_clock(&mut self) -> Result<[i64; 4], LabError> {
        let time = self.command("qom-get", json!({ "path": "/machine", "property": "rtc-time" })).await?;
        // As C's `struct tm`: years since 1900, months from 0.
        let field = |name: &str, first: i64| time[name].as_i64().map_or(-1, |number| number + first);
        Ok([field("tm_year", 1900), field("tm_mon", 1), field("tm_mday", 0), field("tm_hour", 0)])
    }

    /// Presses the reset button.
    ///
    /// # Errors
    /// [`LabError::Qmp`].
    pub async fn reset(&mut self) -> Result<(), LabError> {
        self.command("system_reset", json!({})).await.map(drop)
    }

    /// Presses keys together, by QEMU's names (`ctrl`, `alt`, `delete`, `sysrq`).
    ///
    /// # Errors
    /// [`LabError::Qmp`].
    pub async fn press(&mut self, keys: &[&str]) -> Result<(), LabError> {
        let keys: Vec<_> = keys.iter().map(|key| json!({ "type": "qcode", "data": key })).collect();
        self.command("send-key", json!({ "keys": keys })).await.map(drop)
    }

    /// Types a line and Enter, on a keyboard of the United States.
    ///
    /// # Errors
    /// [`LabError::Qmp`], also for a character that is not on it.
    pub async fn type_line(&mut self, line: &str) -> Result<(), LabError> {
        for character in line.chars() {
            let key = character.to_string();
            let key: &[&str] = match character {
                'a'..='z' | '0'..='9' => &[&key],
                ' ' => &["spc"],
                '/' => &["slash"],
                '.' => &["dot"],
                '-' => &["minus"],
                '>' => &["shift", "dot"],
                _ => return Err(LabError::Qmp { command: "send-key".into(), message: format!("no key for {key:?}") }),
            };
            self.press(key).await?;
        }
        self.press(&["ret"]).await
    }

    /// The lines of a VGA card in text mode, 80 columns each, `file` being a new one for the copy of its memory. Lines that were
    /// scrolled out are among them.
    ///
    /// # Errors
    /// [`LabError::Qmp`], or [`LabError::File`] if the copy cannot be read.
    pub async fn screen(&mut self, file: &Path) -> Result<Vec<String>, LabError> {
        // 32 KiB of characters and attributes, two bytes each.
        let copy = json!({ "val": 0xb_8000, "size": 0x8000, "filename": file });
        self.command("pmemsave", copy).await?;
        let memory = std::fs::read(file).map_err(LabError::file("cannot read", file))?;
        let line = |cells: &[u8]| cells.iter().step_by(2).map(|byte| char::from(*byte)).collect::<String>();
        Ok(memory.chunks(160).map(|cells| line(cells).trim_end().to_owned()).collect())
    }

    /// Presses the power button, as for an orderly shutdown.
    ///
    /// # Errors
    /// [`LabError::Qmp`].
    pub async fn power_button(&mut self) -> Result<(), LabError> {
        self.command("system_powerdown", json!({})).await.map(drop)
    }

    /// Every event from now on, such as `RESET` or `SHUTDOWN`.
    pub fn events(&self) -> broadcast::Receiver<Value> {
        // QEMU is gone: a channel that has ended.
        self.events.upgrade().unwrap_or_else(|| broadcast::Sender::new(1)).subscribe()
    }
}

/// Waits for an event by name among those received since `events` was subscribed.
///
/// # Errors
/// [`LabError::Timeout`], or [`LabError::Qmp`] if QEMU is gone.
pub async fn wait_event(
    events: &mut broadcast::Receiver<Value>, name: &str, limit: Duration,
) -> Result<Value, LabError> {
    let search = async {
        loop {
            match events.recv().await {
                Ok(event) if event["event"] == name => return Ok(event),
                Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => {
                    return Err(LabError::Qmp { command: format!("event {name}"), message: "QEMU is gone".into() });
                }
            }
        }
    };
    tokio::time::timeout(limit, search)
        .await
        .unwrap_or_else(|_| Err(LabError::Timeout { what: format!("QEMU's event {name}"), limit, tail: Vec::new() }))
}
