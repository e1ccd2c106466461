//! The machines behind a BMC, and the socket at which its hook asks the lab for them.
//!
//! A hook (a driver in Python, a program that is run) writes a line of JSON and reads one; so what a BMC reads back is what is so,
//! and a client waits on the machine and not on a pretence.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::MutexGuard;
use tokio::task::JoinSet;

use super::system::System;
use crate::{LabError, Log, Machine};

/// How long a hook may take to ask; one question is answered after another.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);

/// Machines that only a BMC switches. They are off at first, and start from their disks alone unless a client wants otherwise.
#[derive(Debug)]
pub struct Systems {
    systems: Arc<Vec<System>>,
    socket: PathBuf,
    _tasks: JoinSet<()>,
}

impl Systems {
    /// Takes the machines, and answers at `<dir>/bmc.sock`. What happens to them goes to this log.
    pub(super) fn start(machines: Vec<Machine>, dir: &Path, log: &Log) -> Result<Self, LabError> {
        let socket = dir.join("bmc.sock");
        let listener = UnixListener::bind(&socket).map_err(LabError::file("cannot listen at", &socket))?;
        let mut tasks = JoinSet::new();
        let systems: Vec<_> = machines.into_iter().map(|machine| System::new(machine, log, &mut tasks)).collect();
        let systems = Arc::new(systems);
        tasks.spawn(answer(listener, Arc::clone(&systems), log.clone()));
        Ok(Self { systems, socket, _tasks: tasks })
    }

    /// Where hooks ask.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The UUID of a machine, by its place in those that were given: its name for hooks.
    pub(super) fn uuid(&self, index: usize) -> &str {
        self.systems[index].uuid()
    }

    /// Whether a machine is on.
    pub(super) fn is_on(&self, index: usize) -> bool {
        self.systems[index].is_on()
    }

    /// Passes a wish for the power switch on; why not, otherwise.
    pub(super) fn reset(&self, index: usize, kind: &str) -> Result<(), String> {
        self.systems[index].reset(kind)
    }

    /// What the next start, or each, begins with.
    pub(super) fn override_boot(&self, index: usize, target: &str, enabled: &str) -> Result<(), String> {
        self.systems[index].override_boot(target, enabled)
    }

    /// A machine, to look at its disks and to speak with it. The BMC does not switch it meanwhile: waits belong elsewhere, on its
    /// [`Machine::serial`].
    pub async fn machine(&self, index: usize) -> MutexGuard<'_, Machine> {
        self.systems[index].machine().await
    }

    /// Waits until a machine is on or off, as the BMC reads it. `limit` is the whole of it, on any host.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the end of the BMC's log.
    pub async fn wait_power(&self, index: usize, on: bool, limit: Duration) -> Result<(), LabError> {
        self.systems[index].wait_power(on, limit).await
    }
}

/// Answers hooks' questions, one a connection.
async fn answer(listener: UnixListener, systems: Arc<Vec<System>>, log: Log) {
    while let Ok((stream, _)) = listener.accept().await {
        let answered = tokio::time::timeout(QUESTION_LIMIT, answer_one(stream, &systems, &log)).await;
        // The hook gives up by itself, and the BMC's client sees an error.
        if let Err(error) = answered.unwrap_or_else(|late| Err(late.into())) {
            log.append(format!("lab: no answer to the BMC: {error}\n").as_bytes());
        }
    }
}

async fn answer_one(mut stream: UnixStream, systems: &[System], log: &Log) -> std::io::Result<()> {
    let mut question = String::new();
    BufReader::new(&mut stream).read_line(&mut question).await?;
    let question: Value = serde_json::from_str(&question)?;
    let word = |name: &str| question[name].as_str();
    let answer = match systems.iter().find(|system| Some(system.uuid()) == word("system")) {
        None => Err(format!("there is no system {}", question["system"])),
        Some(system) => match (word("reset"), word("boot"), word("enabled"), question.get("medium")) {
            (Some(reset), ..) => system.reset(reset),
            (_, Some(target), Some(enabled), _) => system.override_boot(target, enabled),
            (.., Some(medium)) => {
                system.insert(medium.as_str());
                Ok(())
            }
            _ => Ok(()),
        }
        .map(|()| system.read()),
    };
    let answer = answer.unwrap_or_else(|refused| json!({ "refused": refused }));
    // Reads are without number.
    if question.as_object().is_some_and(|question| question.len() > 1) {
        log.append(format!("lab: {question} was answered {answer}\n").as_bytes());
    }
    stream.write_all(format!("{answer}\n").as_bytes()).await
}
