//! A machine: firmware, disks, ports, a power switch and a serial console.

mod arguments;
mod chips;
mod fault;
mod kinds;
mod plug;
mod spec;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;

use crate::process::Outputs;
use crate::{Accel, DiskImage, LabError, Line, Log, Mark, Network, Process, Qmp};

pub use chips::{BMC_ADDRESS, BMC_MAC, endorsement_key};
pub use fault::{DiskErrors, DiskFault};
pub use kinds::{Board, Card, DiskBus, Medium, Processors};
pub(crate) use plug::set_cd;
pub use plug::{plug_nic, put_first, set_netboot};
pub use spec::{Cable, DiskSpec, Extra, MachineBuilder, MachineSpec, NicSpec, Plug};

/// How long QEMU has to open its control socket.
const START_LIMIT: Duration = Duration::from_secs(120);
/// How long firmware may show nothing on the console under KVM: it writes within a second or two.
const SILENCE_LIMIT: Duration = Duration::from_secs(20);

/// A machine of the lab. It is off until [`Machine::power_on`]; its disks and firmware variables survive power cuts,
/// and its serial log continues over them.
#[derive(Debug)]
pub struct Machine {
    spec: MachineSpec,
    dir: PathBuf,
    accel: Accel,
    namespace: String,
    taps: Vec<String>,
    disks: Vec<DiskImage>,
    serial: Log,
    qemu_log: Log,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    process: Process,
    qmp: Qmp,
    /// Its TPM and its BMC: they end with it.
    _chips: Vec<Process>,
}

impl Machine {
    /// A machine with one port and nothing else; see [`MachineBuilder`].
    pub fn builder(name: &str) -> MachineBuilder {
        MachineBuilder::new(name)
    }

    fn create(spec: MachineSpec, network: &Network, dir: &Path, accel: Accel) -> Result<Self, LabError> {
        let dir = dir.join(&spec.name);
        std::fs::create_dir_all(&dir).map_err(LabError::file("cannot make", &dir))?;
        if spec.tpm {
            chips::make_tpm(&dir)?;
        }
        let tap = |nic: &NicSpec| match nic.plug {
            Plug::Lab | Plug::Nothing => network.add_tap(Network::BRIDGE),
            Plug::Island => network.add_tap(Network::ISLAND),
            Plug::Cable(_) => Ok(String::new()),
        };
        let taps = spec.nics.iter().map(tap).collect::<Result<Vec<_>, _>>()?;
        let disks = spec
            .disks
            .iter()
            .enumerate()
            .map(|(i, disk)| {
                let file = dir.join(format!("disk{}.raw", disk.path_to.unwrap_or(i)));
                DiskImage::create(&file, disk.bytes)
            })
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            serial: Log::open(&dir.join("serial.log"))?,
            qemu_log: Log::open(&dir.join("qemu.log"))?,
            namespace: network.namespace().name().to_owned(),
            spec,
            dir,
            accel,
            taps,
            disks,
            running: None,
        })
    }

    /// What it is made of.
    pub fn spec(&self) -> &MachineSpec {
        &self.spec
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.spec.name
    }

    /// Its first port's MAC address, lower-case with colons; empty if it has no port.
    pub fn mac(&self) -> &str {
        self.spec.nics.first().map_or("", |nic| &nic.mac)
    }

    /// The file with its UEFI variables, for [`crate::efi_order`].
    ///
    /// # Errors
    /// [`LabError`] if the firmware is missing.
    pub fn efi_variables(&self) -> Result<PathBuf, LabError> {
        Ok(crate::firmware::edk2(&self.dir, self.spec.board == Board::Virt, self.spec.secure_boot)?.1)
    }

    /// One of its disks.
    pub fn disk(&self, index: usize) -> &DiskImage {
        &self.disks[index]
    }

    /// Where the writes of a recorded disk go, see [`DiskSpec::recorded`].
    pub fn recording(&self, index: usize) -> PathBuf {
        self.dir.join(format!("disk{index}.writes"))
    }

    /// Its serial console, over all power cycles.
    pub fn serial(&self) -> &Log {
        &self.serial
    }

    /// The tap a port is plugged into, for [`Network::set_link`]; empty for one at a cable.
    pub fn tap(&self, nic: usize) -> &str {
        &self.taps[nic]
    }

    /// Its control connection, while it is on.
    pub fn qmp(&mut self) -> Option<&mut Qmp> {
        self.running.as_mut().map(|running| &mut running.qmp)
    }

    /// The pid of its QEMU, while it is on.
    pub fn pid(&self) -> Option<u32> {
        self.running.as_ref().map(|running| running.process.pid())
    }

    /// Whether it is on: its QEMU runs.
    pub fn is_on(&mut self) -> bool {
        self.running.as_mut().is_some_and(|running| running.process.ended().is_none())
    }

    /// Switches it on and returns the place in its serial log where this power-on begins.
    ///
    /// A machine whose firmware shows nothing under KVM is started again under TCG, once, and stays there: some KVMs run
    /// one firmware and not the other. A warning and its serial log say so.
    ///
    /// # Errors
    /// [`LabError`] if firmware is missing, QEMU does not start, or the machine is on already.
    pub async fn power_on(&mut self) -> Result<Mark, LabError> {
        let mark = start(self).await?;
        if self.accel == Accel::Tcg || self.serial.wait_for(mark, "", SILENCE_LIMIT).await.is_ok() {
            return Ok(mark);
        }
        self.power_cut().await;
        let (name, seconds) = (&self.spec.name, SILENCE_LIMIT.as_secs());
        let note = format!("{name} showed nothing under KVM for {seconds} s; it is started again under TCG");
        tracing::warn!("{note}");
        self.serial.append(format!("\n---- {note} ----\n").as_bytes());
        Accel::stood_still();
        self.accel = Accel::Tcg;
        start(self).await
    }

    /// Types a line on its serial console.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if it is off, [`LabError::File`] if QEMU does not take it.
    pub async fn type_line(&mut self, line: &str) -> Result<(), LabError> {
        let message = format!("{} is off", self.spec.name);
        let off = || LabError::Qmp { command: "type".into(), message };
        let console = self.running.as_mut().and_then(|running| running.process.stdin()).ok_or_else(off)?;
        let typed = async {
            console.write_all(format!("{line}\r").as_bytes()).await?;
            console.flush().await
        };
        typed.await.map_err(LabError::file("cannot type on the serial console of", &self.dir))
    }

    /// Cuts the power: the guest gets no notice, QEMU ends at once.
    ///
    /// What the guest's kernel still held in its own memory is lost. What QEMU had completed towards the guest survives
    /// in the host's page cache, flushed or not: this is a power cut of a disk *without* a volatile cache. Which states
    /// a disk *with* one could be left in is what [`crate::blklog`] replays.
    pub async fn power_cut(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.process.kill().await;
            self.serial.append(format!("\n---- {}: power cut ----\n", self.spec.name).as_bytes());
        }
    }

    /// Ends QEMU in an orderly way (its own files, such as a recording, are closed); the guest gets no notice.
    ///
    /// # Errors
    /// [`LabError`] if QEMU does not end.
    pub async fn power_off(&mut self) -> Result<(), LabError> {
        let Some(mut running) = self.running.take() else { return Ok(()) };
        // Its answer races with its end; only the end counts.
        let _ = running.qmp.command("quit", serde_json::json!({})).await;
        running.process.wait(START_LIMIT).await.map(drop)
    }

    /// From now on, until the power is cut, a reboot by the guest ends QEMU: the disks can then be looked at as the guest
    /// left them, before firmware or an installed system changes them.
    ///
    /// # Errors
    /// [`LabError::Qmp`] if it is off.
    pub async fn off_at_reboot(&mut self) -> Result<(), LabError> {
        self.on()?.command("set-action", serde_json::json!({ "reboot": "shutdown" })).await.map(drop)
    }

    /// Waits until it is off by itself; see [`Machine::off_at_reboot`]. `limit` is what it may take under KVM.
    ///
    /// # Errors
    /// [`LabError::Timeout`]; it stays on.
    pub async fn wait_off(&mut self, limit: Duration) -> Result<(), LabError> {
        let limit = limit * self.accel.patience();
        if let Some(running) = self.running.as_mut() {
            running.process.wait(limit).await?;
        }
        self.running = None;
        Ok(())
    }

    /// Its control connection.
    fn on(&mut self) -> Result<&mut Qmp, LabError> {
        let message = format!("{} is off", self.spec.name);
        self.qmp().ok_or(LabError::Qmp { command: "any".into(), message })
    }

    /// Waits for text on the serial console since `mark`, and fails at once if QEMU ends. `limit` is what it may take
    /// under KVM; [`Accel::patience`] is applied.
    ///
    /// # Errors
    /// [`LabError::Timeout`] with the end of the console, [`LabError::Ended`].
    pub async fn wait_serial(&mut self, mark: Mark, pattern: &str, limit: Duration) -> Result<(), LabError> {
        let serial = self.serial.clone();
        while_running(self, pattern, limit, |limit| serial.wait_for(mark, pattern, limit)).await
    }

    /// [`Self::wait_serial`] for the whole line that contains `pattern`.
    ///
    /// # Errors
    /// The same.
    pub async fn wait_serial_line(&mut self, mark: Mark, pattern: &str, limit: Duration) -> Result<Line, LabError> {
        let serial = self.serial.clone();
        let line = |limit| serial.wait_line(mark, pattern, limit, |text| text.contains(pattern));
        while_running(self, pattern, limit, line).await
    }
}

/// [`Machine::power_on`] under the accelerator that it was made for, whatever it shows.
pub(crate) async fn start(machine: &mut Machine) -> Result<Mark, LabError> {
    if machine.is_on() {
        return Err(LabError::Qmp { command: "power on".into(), message: format!("{} is on", machine.spec.name) });
    }
    let arguments = arguments::qemu(&machine.spec, &machine.dir, &machine.taps, machine.accel)?;
    // A connection to the previous power-on's socket would fail.
    let socket = machine.dir.join("qmp");
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(LabError::file("cannot remove", &socket)(error));
        }
        _ => {}
    }
    let chips = chips::start(&machine.spec, &machine.dir, &machine.namespace, &machine.qemu_log).await?;
    machine.serial.append(format!("\n---- {}: power on ----\n", machine.spec.name).as_bytes());
    let mark = machine.serial.mark();
    let mut command = tokio::process::Command::new("ip");
    let program = arguments::program(machine.spec.board);
    command.args(["netns", "exec", &machine.namespace, "setpriv", "--pdeathsig", "KILL", "--", program]);
    command.args(&arguments);
    machine.qemu_log.append(format!("{program} {}\n", arguments.join(" ")).as_bytes());
    let outputs = Outputs { stdout: machine.serial.clone(), stderr: machine.qemu_log.clone() };
    let mut process = Process::spawn(&format!("qemu ({})", machine.spec.name), command, outputs)?;
    let mut qmp = connect(&socket, &machine.spec.name, &mut process).await?;
    // The firmware takes longer than this to look at its first port.
    for (i, _) in machine.spec.nics.iter().enumerate().filter(|(_, nic)| matches!(nic.plug, Plug::Nothing)) {
        qmp.command("set_link", serde_json::json!({ "name": format!("net{i}"), "up": false })).await?;
    }
    machine.running = Some(Running { process, qmp, _chips: chips });
    Ok(mark)
}

/// QEMU makes its socket some time after it was started; without a notice, so the lab checks at short intervals.
async fn connect(socket: &Path, name: &str, process: &mut Process) -> Result<Qmp, LabError> {
    let deadline = tokio::time::Instant::now() + START_LIMIT;
    loop {
        let error = match Qmp::connect(socket).await {
            Ok(qmp) => return Ok(qmp),
            Err(error) => error,
        };
        if let Some(status) = process.ended() {
            return Err(LabError::Ended {
                name: format!("qemu ({name})"),
                status: status.to_string(),
                what: "its control socket".into(),
                tail: process.stderr().tail(12),
            });
        }
        if tokio::time::Instant::now() > deadline {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits on a machine's console, and fails at once if its QEMU ends. `limit` is what it may take under KVM.
async fn while_running<T, F>(
    machine: &mut Machine, pattern: &str, limit: Duration, wait: impl Fn(Duration) -> F,
) -> Result<T, LabError>
where
    F: Future<Output = Result<T, LabError>>,
{
    let limit = limit * machine.accel.patience();
    let Some(running) = machine.running.as_mut() else {
        return wait(Duration::ZERO).await;
    };
    let ended = |status: String| LabError::Ended {
        name: format!("qemu ({})", machine.spec.name),
        status,
        what: format!("\"{pattern}\" on the serial console"),
        tail: machine.serial.tail(12),
    };
    tokio::select! {
        found = wait(limit) => found,
        status = running.process.wait(limit) => {
            let status = status?.to_string();
            // It may have ended right after the text.
            wait(Duration::ZERO).await.map_err(|_| ended(status))
        }
    }
}
