//! Machines behind a BMC: a real Redfish server (OpenStack's sushy-emulator) on the lab's network, whose power switch and boot
//! device are those of the lab's machines.
//!
//! The server's driver (`tests/qemu/redfish/driver.py`) asks the lab over a Unix socket, a line of JSON each way; so what the
//! server reads back is what is so, and a client waits on the machine and not on a pretence.

mod system;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::MutexGuard;
use tokio::task::JoinSet;

use self::system::System;
use crate::{Firmware, LabError, Log, Machine, Mark, Network, Process};

/// How long the server may take to start: Python reads some hundred files.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long the driver may take to ask; one question is answered after another.
const QUESTION_LIMIT: Duration = Duration::from_secs(10);
/// What turns the server's own driver into the lab's.
const DRIVER: &str = include_str!("../../redfish/driver.py");
/// [`Redfish::PASSWORD`] as bcrypt, the only digest that the server takes, of the least cost: it is computed at each request.
const PASSWORD_DIGEST: &str = "$2b$04$FIje4JdJkKeXG0Fk.95MbucseYUOLNTgvBpHum/eY7IC2CHdSF2Y6";

/// A Redfish server and its machines. They are off at first, and start from their disks alone unless a client wants otherwise.
#[derive(Debug)]
pub struct Redfish {
    // Dropped in this order: no request is under way when the machines end.
    _process: Process,
    _tasks: JoinSet<()>,
    systems: Arc<Vec<System>>,
}

impl Redfish {
    /// Its port at [`Network::ADDRESS`]; HTTP.
    pub const PORT: u16 = 8000;
    /// Who may use it, with HTTP's Basic authentication; there are no sessions.
    pub const USERNAME: &str = "lab";
    /// Their password.
    pub const PASSWORD: &str = "power of the lab";

    /// Starts the server beside the coordinator, in front of these machines; its log goes to `<dir>/redfish.log`.
    ///
    /// # Errors
    /// [`LabError`] if sushy-emulator is missing (`scripts/test` fetches it) or does not start.
    pub async fn start(machines: Vec<Machine>, network: &Network, dir: &Path) -> Result<Self, LabError> {
        let (socket, config) = (dir.join("redfish.sock"), dir.join("redfish.conf"));
        let log = Log::open(&dir.join("redfish.log"))?;
        std::fs::write(&config, configuration(&machines, &socket, dir)?)
            .map_err(LabError::file("cannot write", &config))?;
        let listener = UnixListener::bind(&socket).map_err(LabError::file("cannot listen at", &socket))?;
        let mut tasks = JoinSet::new();
        let systems: Vec<_> = machines.into_iter().map(|machine| System::new(machine, &log, &mut tasks)).collect();
        let systems = Arc::new(systems);
        tasks.spawn(answer(listener, Arc::clone(&systems), log.clone()));
        let mut command = network.command("sushy-emulator");
        command.arg("--fake").arg("--config").arg(&config).env("PYTHONUNBUFFERED", "1").env("NO_COLOR", "1");
        let mut process = Process::spawn("sushy-emulator", command, log)?;
        process.wait_stderr(Mark::default(), "Running on http", START_LIMIT).await?;
        Ok(Self { _process: process, _tasks: tasks, systems })
    }

    /// The URL of a machine, by its place in those that were given.
    pub fn url(&self, index: usize) -> String {
        format!("http://{}:{}{}", Network::ADDRESS, Self::PORT, self.systems[index].path())
    }

    /// A machine, to look at its disks and to speak with it. The server does not switch it meanwhile: waits belong elsewhere, on its
    /// [`Machine::serial`].
    pub async fn machine(&self, index: usize) -> MutexGuard<'_, Machine> {
        self.systems[index].machine().await
    }

    /// Waits until a machine is on or off, as the server reads it. `limit` is the whole of it, on any host.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the end of the server's log.
    pub async fn wait_power(&self, index: usize, on: bool, limit: Duration) -> Result<(), LabError> {
        self.systems[index].wait_power(on, limit).await
    }
}

/// The server's configuration is a program in Python. JSON's strings, numbers, lists and objects are Python's too.
fn configuration(machines: &[Machine], socket: &Path, dir: &Path) -> Result<String, LabError> {
    let users = dir.join("redfish.users");
    std::fs::write(&users, format!("{}:{PASSWORD_DIGEST}\n", Redfish::USERNAME))
        .map_err(LabError::file("cannot write", &users))?;
    let systems: Vec<Value> = machines
        .iter()
        .map(|machine| {
            let spec = machine.spec();
            let nics: Vec<_> = spec.nics.iter().map(|nic| json!({ "mac": nic.mac })).collect();
            let mode = if spec.firmware == Firmware::Uefi { "UEFI" } else { "Legacy" };
            json!({ "uuid": spec.uuid, "name": spec.name, "power_state": "Off", "boot_mode": mode, "nics": nics })
        })
        .collect();
    let settings = [
        ("SUSHY_EMULATOR_LISTEN_IP", json!(Network::ADDRESS)),
        ("SUSHY_EMULATOR_LISTEN_PORT", json!(Redfish::PORT)),
        ("SUSHY_EMULATOR_AUTH_FILE", json!(users)),
        // Its folder by default is one for all, and keeps the systems of an earlier server.
        ("SUSHY_EMULATOR_STATE_DIR", json!(dir.join("redfish.state"))),
        ("SUSHY_EMULATOR_FAKE_SYSTEMS", json!(systems)),
        ("LAB_SOCKET", json!(socket)),
    ];
    let lines: String = settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
    Ok(lines + DRIVER)
}

/// Answers the driver's questions, one a connection.
async fn answer(listener: UnixListener, systems: Arc<Vec<System>>, log: Log) {
    while let Ok((stream, _)) = listener.accept().await {
        let answered = tokio::time::timeout(QUESTION_LIMIT, answer_one(stream, &systems, &log)).await;
        // The driver gives up by itself, and its client sees an error.
        if let Err(error) = answered.unwrap_or_else(|late| Err(late.into())) {
            log.append(format!("lab: no answer to the driver: {error}\n").as_bytes());
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
        Some(system) => match (word("reset"), word("boot"), word("enabled")) {
            (Some(reset), ..) => system.reset(reset),
            (_, Some(target), Some(enabled)) => system.override_boot(target, enabled),
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
