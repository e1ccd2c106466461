//! Drivers by modalias: every device names what could drive it, the index says which module that is.
//!
//! Loading a driver uncovers new devices behind it (a PCI bridge, a virtio bus, a SCSI host). The kernel announces
//! each, and the notice says what could drive it, so the buses are read once and not again; the agent follows
//! the notices for ever, because a disk or a NIC may be plugged in while it waits. Ports come first: the machine can
//! reach its coordinator while disk controllers are still being probed.

mod loads;
mod missing;
mod notice;
mod options;
mod outcome;
mod uevent;

use std::collections::BTreeSet;
use std::ffi::{CString, OsStr};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use landfall_api::{ModuleIndex, ModuleName};
use nix::errno::Errno;
use nix::kmod::{ModuleInitFlags, finit_module, init_module};

use crate::thread::on_thread;

pub(crate) use self::loads::hiding_disks;
use self::loads::{Purpose, State};
pub(crate) use self::notice::{Storage, announces, storage};
use self::options::{is_blocked, options};
use self::outcome::Outcome;
pub(crate) use self::outcome::{Undriven, why_undriven};
pub(crate) use self::uevent::Uevents;

/// Where the tools layer is mounted once it is there. It carries modules too.
pub(crate) const TOOLS_ROOT: &str = "/run/landfall/tools";
/// Quiet for this long: the buses have been probed.
const QUIET: Duration = Duration::from_millis(200);
/// The longest that [`Drivers::settle`] waits for quiet.
pub(crate) const SETTLE_LIMIT: Duration = Duration::from_secs(10);
/// A driver whose probe takes longer is loaded beside the others. Those of virtual machines take milliseconds; a port with firmware of
/// its own takes a second or two, a RAID controller with many disks half a minute.
const PATIENCE: Duration = Duration::from_secs(3);
/// A module that is asked for by name is needed at once: the longest wait for it, in each place that has it.
const NEEDED: Duration = Duration::from_secs(60);
/// Time between scans if the kernel's notices are not available.
const BLIND_RESCAN: Duration = Duration::from_secs(5);

/// Loads modules, each once.
pub(crate) struct Drivers {
    directory: PathBuf,
    index: ModuleIndex,
    tried: BTreeSet<ModuleName>,
    /// For what is asked for by name, and not for the machine's devices.
    by_name: bool,
    /// Modules that the kernel's command line keeps from being loaded for a device, as it is.
    command_line: String,
    seen: BTreeSet<String>,
    /// What was seen and not looked up yet, by rank.
    queue: BTreeSet<(Rank, String)>,
}

/// What is looked up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// A network port, or the bus device that hides one.
    Port,
    /// Anything else.
    Other,
    /// A BMC: its driver may wait for it for many seconds, so it is loaded beside the others, and nothing waits for it.
    Bmc,
}

/// The file by which a BMC is asked; no device names it.
const BMC_FILE: &str = "ipmi_devintf";

impl Rank {
    fn of(alias: &str) -> Self {
        // Class 02 of PCI is "network controller"; device 1 of virtio is a port.
        let pci = alias.starts_with("pci:") && alias.contains("bc02");
        // As ACPI, SMBIOS and PCI name one (the class is 0c07).
        let bmc = ["acpi:IPI0001", "platform:dmi-ipmi"].iter().any(|name| alias.starts_with(name));
        if pci || alias.starts_with("virtio:d00000001v") {
            Self::Port
        } else if bmc || (alias.starts_with("pci:") && alias.contains("bc0Csc07")) {
            Self::Bmc
        } else {
            Self::Other
        }
    }
}

impl Drivers {
    /// Reads the index of the running kernel's modules.
    ///
    /// # Errors The kernel's release is unknown, or `modules.dep` cannot be read.
    pub(crate) fn open() -> io::Result<Self> {
        Self::open_in(Path::new("/"), false)
    }

    /// The same for modules that are in this root, such as those of the tools layer.
    fn open_in(root: &Path, by_name: bool) -> io::Result<Self> {
        let directory = directory(root)?;
        let read = |name: &str| fs::read_to_string(directory.join(name));
        let dep = read("modules.dep").map_err(|e| {
            io::Error::new(
                e.kind(),
                format!("{}: {e}; the boot image and its kernel do not match", directory.display()),
            )
        })?;
        // Both are optional: an image for one kind of machine may have drivers that need neither.
        let index = ModuleIndex::parse(
            &dep,
            &read("modules.alias").unwrap_or_default(),
            &read("modules.softdep").unwrap_or_default(),
        );
        let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
        let (tried, seen, queue) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Ok(Self { directory, index, tried, by_name, command_line, seen, queue })
    }

    /// How many modules the boot image carries.
    pub(crate) fn available(&self) -> usize {
        self.index.count()
    }

    /// Reads the buses and queues what is new on them.
    fn scan(&mut self) {
        for alias in modaliases(Path::new("/sys")) {
            self.note(alias);
        }
    }

    /// Queues a device by what it names, if it is new.
    fn note(&mut self, alias: String) {
        if self.seen.insert(alias.clone()) {
            self.queue.insert((Rank::of(&alias), alias));
        }
    }

    /// Works through the queue until one device got a driver; returns how many modules that took, `None` once the queue
    /// is empty.
    fn load_next(&mut self) -> Option<usize> {
        while let Some((rank, alias)) = self.queue.pop_first() {
            if rank == Rank::Bmc {
                load_beside(alias);
                continue;
            }
            let loaded = self.load_for(alias);
            if loaded > 0 {
                return Some(loaded);
            }
        }
        None
    }

    /// Loads the modules that fit a device; returns how many were loaded now.
    fn load_for(&mut self, alias: String) -> usize {
        let (mut loaded, mut outcomes) = (0, Vec::new());
        let purpose = Purpose { device: true, disks: notice::leads_to_disks(&alias) };
        let purpose = if self.by_name { Purpose::default() } else { purpose };
        for module in self.index.for_device(&alias) {
            let blocked = is_blocked(&module, &self.command_line);
            if !blocked {
                loaded += self.load(&module, purpose);
            }
            outcomes.push(Outcome { module, blocked });
        }
        outcome::note(alias, outcomes);
        loaded
    }

    /// Loads a module and what it needs. Returns how many were loaded now; a failure is logged and not retried.
    fn load(&mut self, name: &ModuleName, purpose: Purpose) -> usize {
        let order: Vec<ModuleName> = self.index.load_order(name).into_iter().cloned().collect();
        let patience = if self.by_name { NEEDED } else { PATIENCE };
        let mut loaded = 0;
        for (at, module) in order.iter().enumerate() {
            let Some(path) = self.index.get(module).map(|m| self.directory.join(&m.path)) else { continue };
            if !self.tried.insert(module.clone()) {
                loads::serves(module, purpose);
                continue;
            }
            let file = path.clone();
            match loads::load(module, purpose, &order[..at], patience, move || insert(&file)) {
                State::Loaded { new: true } => {
                    tracing::debug!(module = module.as_str(), "driver loaded");
                    loaded += 1;
                }
                State::Loaded { new: false } => {}
                State::Loading => tracing::warn!(
                    "driver {} is still being loaded after {} s; the others are loaded meanwhile",
                    module.as_str(),
                    patience.as_secs()
                ),
                State::Crashed => tracing::error!(
                    "driver {} crashed while it was loaded; the kernel's log says where. The others are loaded all the same",
                    module.as_str()
                ),
                State::Refused(why) => {
                    tracing::warn!("cannot load driver {} ({}): {why}", module.as_str(), path.display());
                }
            }
        }
        loaded
    }

    /// Loads what the kernel requests: a module's name or an alias (`fs-ext4`, `crypto-crc32c`).
    fn load_request(&mut self, request: &str) -> usize {
        let name = ModuleName::new(request);
        if self.index.get(&name).is_some() {
            return self.load(&name, Purpose::default());
        }
        self.load_for(request.to_owned())
    }

    /// Loads drivers until the buses are quiet and the kernel has answered for each, at most [`SETTLE_LIMIT`]; for those that may
    /// lead to disks however long it takes. Then a task takes over and continues for ever. Without the kernel's notices it reads the buses by time.
    pub(crate) async fn settle(self) -> usize {
        let mut uevents = match Uevents::subscribe() {
            Ok(uevents) => Some(uevents),
            Err(e) => {
                tracing::warn!(
                    "the kernel's device notices are not available ({e}); the agent scans for devices every {} s",
                    BLIND_RESCAN.as_secs()
                );
                None
            }
        };
        let end = Instant::now() + SETTLE_LIMIT;
        let (mut drivers, ()) = self.off_thread(Self::scan).await;
        let mut loaded = 0;
        loop {
            let now;
            (drivers, now) = drivers.work_off(&mut uevents).await;
            loaded += now;
            let is_late = Instant::now() >= end;
            // Before the wait: what one that ends meanwhile uncovered is announced in it, or after.
            let busy = loads::is_busy(|purpose| purpose.disks || purpose.device && !is_late);
            let quiet = drivers.wait(&mut uevents, QUIET).await.is_err();
            if (quiet || is_late) && !busy {
                break;
            }
            if uevents.is_none() {
                (drivers, ()) = drivers.off_thread(Self::scan).await;
            }
        }
        tokio::spawn(drivers.watch(uevents));
        loaded
    }

    async fn watch(mut self, mut uevents: Option<Uevents>) {
        loop {
            if self.wait(&mut uevents, Duration::MAX).await.is_err() {
                (self, ()) = self.off_thread(Self::scan).await;
            }
            let loaded;
            (self, loaded) = self.work_off(&mut uevents).await;
            if loaded > 0 {
                tracing::info!("{loaded} more drivers loaded for devices that appeared");
            }
        }
    }

    /// Empties the queue. What a driver uncovers is announced while it loads, and may go before the rest.
    async fn work_off(mut self, uevents: &mut Option<Uevents>) -> (Self, usize) {
        let mut loaded = 0;
        loop {
            while self.wait(uevents, Duration::ZERO).await.is_ok() {}
            let now;
            (self, now) = self.off_thread(Self::load_next).await;
            match now {
                Some(now) => loaded += now,
                None => return (self, loaded),
            }
        }
    }

    /// Queues what the next notice announces; `Err` when `limit` passed without one.
    async fn wait(&mut self, uevents: &mut Option<Uevents>, limit: Duration) -> Result<(), ()> {
        let Some(socket) = uevents else {
            tokio::time::sleep(limit.min(BLIND_RESCAN)).await;
            return Err(());
        };
        match tokio::time::timeout(limit, socket.next(notice::added)).await {
            Ok(Ok(Some(alias))) => self.note(alias),
            Ok(Ok(None)) => self.scan(),
            Ok(Err(e)) => {
                tracing::warn!(
                    "the kernel's device notices ended ({e}); the agent scans for devices every {} s",
                    BLIND_RESCAN.as_secs()
                );
                *uevents = None;
                return Err(());
            }
            Err(_elapsed) => return Err(()),
        }
        Ok(())
    }

    /// A driver's probe may take seconds; the runtime's threads have other work.
    async fn off_thread<T: Send + 'static>(mut self, work: impl FnOnce(&mut Self) -> T + Send + 'static) -> (Self, T) {
        let done = on_thread("drivers", move || {
            let result = work(&mut self);
            (self, result)
        });
        // The drivers went with the thread that could not be started: nothing is left that could load one.
        done.await.unwrap_or_else(|e| panic!("cannot start a thread for drivers: {e}"))
    }
}

/// Loads the drivers of a BMC on a thread of its own.
fn load_beside(alias: String) {
    let load = move || {
        load_by_name(&alias);
        load_by_name(BMC_FILE);
    };
    if let Err(e) = std::thread::Builder::new().name("bmc-driver".into()).spawn(load) {
        tracing::warn!("cannot start a thread for the driver of the BMC: {e}");
    }
}

/// Loads a module by name or alias, from the boot image or, where that has none, from the tools layer if it is mounted; a module
/// that is built in or in neither is not found, which is not an error. Blocking.
pub(crate) fn load_by_name(request: &str) {
    for root in ["/", TOOLS_ROOT] {
        let loaded = Drivers::open_in(Path::new(root), true).map(|mut drivers| drivers.load_request(request));
        match loaded {
            Ok(0) => {}
            Ok(_) => return,
            Err(e) => tracing::debug!("{request}: {e}"),
        }
    }
}

/// The name under which the kernel starts the agent when it needs a module (a file system at mount, an algorithm).
pub(crate) const MODPROBE: &str = "modprobe";

/// Answers such a request: `modprobe -q -- NAME`.
pub(crate) fn modprobe(arguments: impl Iterator<Item = String>) {
    for request in arguments.skip(1).filter(|a| !a.starts_with('-')) {
        load_by_name(&request);
    }
}

/// Where the running kernel's modules are in this root.
fn directory(root: &Path) -> io::Result<PathBuf> {
    let release = nix::sys::utsname::uname().map_err(io::Error::from)?;
    Ok(root.join("lib/modules").join(release.release()))
}

/// Hands a module file to the kernel. False: it was there already.
fn insert(path: &Path) -> io::Result<bool> {
    let file = File::open(path)?;
    let command_line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let options = options(path, &command_line);
    if !options.is_empty() {
        tracing::info!("{} is loaded with {options}", path.display());
    }
    let options = CString::new(options)?;
    let inserted = match path.extension().and_then(OsStr::to_str) {
        // As landfall-image packs them. Kernels that can decompress modules themselves are few, and Debian's is not one.
        Some("zst") => init_module(&zstd::decode_all(file)?, &options),
        Some("ko") => finit_module(&file, &options, ModuleInitFlags::empty()),
        // MODULE_INIT_COMPRESSED_FILE (include/uapi/linux/module.h, since 5.17), which nix does not name.
        _ => finit_module(&file, &options, ModuleInitFlags::from_bits_retain(4)),
    };
    match inserted {
        Ok(()) => Ok(true),
        Err(Errno::EEXIST) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// What names a driver and is on no bus: the processor, for its instructions, and the board.
const OFF_BUS: [&str; 2] = ["devices/system/cpu/modalias", "devices/virtual/dmi/id/modalias"];

/// The `modalias` of every device, from the lists that the buses keep. The device tree itself has four times as many
/// directories, and the agent starts no sooner than they are read.
fn modaliases(sys: &Path) -> BTreeSet<String> {
    // A device may vanish while it is being looked at.
    let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let on_buses = entries(sys.join("bus")).flat_map(|bus| entries(bus.join("devices"))).map(|d| d.join("modalias"));
    let files = on_buses.chain(OFF_BUS.map(|path| sys.join(path)));
    let aliases = files.filter_map(|file| fs::read_to_string(file).ok());
    aliases.map(|alias| alias.trim().to_owned()).filter(|alias| !alias.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_looked_up_before_anything_else() {
        let port = "pci:v00001AF4d00001041sv00001AF4sd00001100bc02sc00i00";
        assert_eq!(Rank::of(port), Rank::Port);
        assert_eq!(Rank::of("virtio:d00000001v00001AF4"), Rank::Port);
        assert_eq!(Rank::of("virtio:d00000002v00001AF4"), Rank::Other);
        assert_eq!(Rank::of("pci:v00008086d00002922sv00001AF4sd00001100bc01sc06i01"), Rank::Other);
        for bmc in ["acpi:IPI0001:", "platform:dmi-ipmi-si", "pci:v0000103Cd0000121Asv0000sd0000bc0Csc07i01"] {
            assert_eq!(Rank::of(bmc), Rank::Bmc);
        }
        assert!((Rank::Port, "virtio") < (Rank::Other, "acpi") && Rank::Other < Rank::Bmc);
    }

    #[test]
    fn every_bus_and_the_processor_name_their_drivers() {
        let sys = tempfile::tempdir().unwrap();
        let alias = |device: &str, text: &str| {
            fs::create_dir_all(sys.path().join(device)).unwrap();
            fs::write(sys.path().join(device).join("modalias"), text).unwrap();
        };
        alias("devices/pci0000:00/0000:00:03.0/virtio0", "virtio:d00000001v00001AF4\n");
        alias("devices/system/cpu", "cpu:type:x86,ven0000\n");
        alias("bus/pci/devices/0000:00:03.0", "pci:v00001AF4\n");
        alias("bus/pci/devices/0000:00:04.0", "\n");
        fs::create_dir_all(sys.path().join("bus/virtio/devices")).unwrap();
        fs::create_dir_all(sys.path().join("bus/cpu/devices/cpu0")).unwrap();
        let link = sys.path().join("bus/virtio/devices/virtio0");
        std::os::unix::fs::symlink("../../../devices/pci0000:00/0000:00:03.0/virtio0", link).unwrap();
        let expected = ["cpu:type:x86,ven0000", "pci:v00001AF4", "virtio:d00000001v00001AF4"];
        assert_eq!(modaliases(sys.path()).into_iter().collect::<Vec<_>>(), expected);
    }
}
