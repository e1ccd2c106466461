//! A real Redfish server (OpenStack's sushy-emulator) on the lab's network.
//!
//! Its driver (`tests/qemu/redfish/driver.py`) asks the lab.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bmc::Systems;
use crate::{Firmware, LabError, Log, Machine, Mark, Network, Process};

/// How long the server may take to start: Python reads some hundred files.
const START_LIMIT: Duration = Duration::from_secs(120);
/// What turns the server's own driver into the lab's.
const DRIVER: &str = include_str!("../../redfish/driver.py");
/// [`Redfish::PASSWORD`] as bcrypt, the only digest that the server takes, of the least cost: it is computed at each request.
const PASSWORD_DIGEST: &str = "$2b$04$FIje4JdJkKeXG0Fk.95MbucseYUOLNTgvBpHum/eY7IC2CHdSF2Y6";

/// A Redfish server and its machines. They are off at first, and start from their disks alone unless a client wants otherwise.
#[derive(Debug)]
pub struct Redfish {
    // Dropped in this order: no request is under way when the machines end.
    _process: Process,
    systems: Systems,
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
        let config = dir.join("redfish.conf");
        let log = Log::open(&dir.join("redfish.log"))?;
        let text = configuration(&machines, dir)?;
        let systems = Systems::start(machines, dir, &log)?;
        let text = format!("{text}LAB_SOCKET = {}\n{DRIVER}", json!(systems.socket()));
        std::fs::write(&config, text).map_err(LabError::file("cannot write", &config))?;
        let mut command = network.command("sushy-emulator");
        command.arg("--fake").arg("--config").arg(&config).env("PYTHONUNBUFFERED", "1").env("NO_COLOR", "1");
        // It fetches boot media from the coordinator.
        command.env("NO_PROXY", "*");
        let mut process = Process::spawn("sushy-emulator", command, log)?;
        process.wait_stderr(Mark::default(), "Running on http", START_LIMIT).await?;
        Ok(Self { _process: process, systems })
    }

    /// The URL of a machine, by its place in those that were given.
    pub fn url(&self, index: usize) -> String {
        format!("http://{}:{}/redfish/v1/Systems/{}", Network::ADDRESS, Self::PORT, self.systems.uuid(index))
    }

    /// The machines.
    pub fn systems(&self) -> &Systems {
        &self.systems
    }
}

/// The server's configuration, but for the driver, is a program in Python. JSON's strings, numbers, lists and objects are Python's too.
fn configuration(machines: &[Machine], dir: &Path) -> Result<String, LabError> {
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
    ];
    Ok(settings.iter().map(|(name, value)| format!("{name} = {value}\n")).collect())
}
