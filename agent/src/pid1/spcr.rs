//! The serial port that the firmware names as the machine's console, which is what a BMC shows of it (serial over LAN). On x86 Linux
//! prints nothing there unless its command line says so: where it has no console, a thread copies the kernel's log to it.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::termios::{ControlModes, OptionalActions, tcdrain, tcgetattr, tcsetattr};

use super::records::Records;

/// ACPI's Serial Port Console Redirection table, as the kernel shows it.
const TABLE: &str = "/sys/firmware/acpi/tables/SPCR";
/// Of a table that leaves the speed as it was, and nothing tells which: most BMCs' default.
const USUAL_BAUD: u32 = 115_200;
/// The port's driver may be a module: it is looked for so often, a second apart.
const TRIES: u32 = 15;

/// A thread that copies the log.
pub(super) struct Copier(Arc<Shared>);

struct Shared {
    /// How often it was asked to finish what is in the log, and how often it did; never less than it is asked for once it has ended.
    flushes: Mutex<(u64, u64)>,
    changed: Condvar,
    /// Wakes it.
    wake: UnixStream,
}

impl Copier {
    /// Begins to copy, if the firmware names a port.
    pub(super) fn start() -> Option<Self> {
        let named = Named::of(&fs::read(TABLE).ok()?)?;
        let (wake, woken) = UnixStream::pair()
            .and_then(|(wake, woken)| {
                wake.set_nonblocking(true)?;
                woken.set_nonblocking(true)?;
                Ok((wake, woken))
            })
            .inspect_err(|error| tracing::warn!("the firmware's console is not used: {error}"))
            .ok()?;
        let shared = Arc::new(Shared { flushes: Mutex::default(), changed: Condvar::new(), wake });
        let copier = Self(shared.clone());
        thread::spawn(move || {
            if let Err(error) = copy_to(&named, &shared, woken) {
                tracing::warn!("nothing more is copied to the firmware's console: {error}");
            }
            shared.flushes().1 = u64::MAX;
            shared.changed.notify_all();
        });
        Some(copier)
    }

    /// Waits until the port has sent all that is in the log now, at most `limit`.
    pub(super) fn flush(&self, limit: Duration) {
        let mut flushes = self.0.flushes();
        flushes.0 += 1;
        let asked = flushes.0;
        // Full: it is woken already.
        (&self.0.wake).write_all(&[0]).unwrap_or_default();
        // What a slow port has not sent by then is lost.
        drop(self.0.changed.wait_timeout_while(flushes, limit, |flushes| flushes.1 < asked));
    }
}

impl Shared {
    fn flushes(&self) -> MutexGuard<'_, (u64, u64)> {
        self.flushes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Finds the port and copies to it, for ever. It ends well if the kernel prints there itself.
fn copy_to(named: &Named, shared: &Shared, woken: UnixStream) -> io::Result<()> {
    let find = |nth| {
        if nth > 0 {
            thread::sleep(Duration::from_secs(1));
        }
        terminal(Path::new("/sys/class/tty"), named)
    };
    let name = (0..TRIES).find_map(find).ok_or_else(|| io::Error::other(format!("no serial port is at {named}")))?;
    if prints_on(&fs::read_to_string("/proc/consoles")?, &name) {
        return Ok(());
    }
    let port = open(&Path::new("/dev").join(&name), named.baud)?;
    tracing::info!("{name} is the firmware's console: the log is copied to it");
    copy(port, shared, woken)
}

/// The port of a table.
#[derive(Debug, PartialEq, Eq)]
struct Named {
    address: u64,
    /// Its registers are in memory, not among the ports of x86.
    in_memory: bool,
    /// Bits per second.
    baud: u32,
}

impl Named {
    /// Reads a table (Microsoft, "Serial Port Console Redirection Table"; its revisions only add fields).
    fn of(table: &[u8]) -> Option<Self> {
        // The register's address is a Generic Address Structure of ACPI at 40: kind, three bytes of its shape, the address.
        let kind = *table.get(40)?;
        let address = u64::from_le_bytes(table.get(44..52)?.try_into().ok()?);
        let named = match table.get(58)? {
            3 => 9600,
            4 => 19_200,
            6 => 57_600,
            _ => USUAL_BAUD,
        };
        // Revision 4 has the speed itself at 80; zero: it does not say it.
        let precise = table.get(80..84).filter(|_| table[8] >= 4).and_then(|field| field.try_into().ok());
        let baud = precise.map(u32::from_le_bytes).filter(|baud| *baud != 0).unwrap_or(named);
        // 0: memory, 1: ports. An address of 0 means that redirection is off.
        let known = table.starts_with(b"SPCR") && kind <= 1 && address != 0;
        known.then_some(Self { address, in_memory: kind == 0, baud })
    }
}

impl std::fmt::Display for Named {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:#x}", if self.in_memory { "address" } else { "port" }, self.address)
    }
}

/// The kernel's name of a port.
fn terminal(class: &Path, named: &Named) -> Option<String> {
    let file = if named.in_memory { "iomem_base" } else { "port" };
    fs::read_dir(class).ok()?.filter_map(Result::ok).find_map(|entry| {
        let text = fs::read_to_string(entry.path().join(file)).ok()?;
        let at = u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok()?;
        (at == named.address).then(|| entry.file_name().to_string_lossy().into_owned())
    })
}

/// Whether `/proc/consoles` has it.
fn prints_on(consoles: &str, name: &str) -> bool {
    consoles.lines().any(|line| line.split_whitespace().next() == Some(name))
}

/// Opens it raw: what comes in neither stops what goes out (XON, XOFF) nor is sent back, and no modem lines are waited for.
fn open(path: &Path, baud: u32) -> io::Result<File> {
    let port = OpenOptions::new().write(true).custom_flags(OFlag::O_NOCTTY.bits()).open(path)?;
    let mut modes = tcgetattr(&port)?;
    modes.make_raw();
    modes.control_modes.insert(ControlModes::CLOCAL);
    modes.control_modes.remove(ControlModes::CRTSCTS);
    modes.set_speed(baud)?;
    tcsetattr(&port, OptionalActions::Now, &modes)?;
    Ok(port)
}

/// Copies from the boot's first line on, for ever.
fn copy(mut port: File, shared: &Shared, mut woken: UnixStream) -> io::Result<()> {
    let mut log = Records::open()?;
    loop {
        let asked = shared.flushes().0;
        while let Some(line) = log.next()? {
            port.write_all(line.as_bytes())?;
        }
        rustix::io::retry_on_intr(|| tcdrain(&port))?;
        shared.flushes().1 = asked;
        shared.changed.notify_all();
        let mut ready = [PollFd::new(log.as_fd(), PollFlags::POLLIN), PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        match poll(&mut ready, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        // Empty: the log woke it.
        woken.read(&mut [0; 64]).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(kind: u8, address: u64, baud: u8) -> Vec<u8> {
        let mut table = vec![0; 80];
        table[..4].copy_from_slice(b"SPCR");
        (table[40], table[58]) = (kind, baud);
        table[44..52].copy_from_slice(&address.to_le_bytes());
        table
    }

    #[test]
    fn a_table_names_a_port_and_its_speed() {
        let com2 = |baud| Some(Named { address: 0x2f8, in_memory: false, baud });
        for (code, baud) in [(0, USUAL_BAUD), (3, 9600), (4, 19_200), (6, 57_600), (7, 115_200)] {
            assert_eq!(Named::of(&table(1, 0x2f8, code)), com2(baud));
        }
        assert!(Named::of(&table(0, 0xfe03_0000, 7)).unwrap().in_memory);
        assert_eq!(Named::of(&table(1, 0, 7)), None, "redirection is off");
        assert_eq!(Named::of(&table(2, 0x2f8, 7)), None, "a port on PCI's configuration space");
        for length in 0..59 {
            assert_eq!(Named::of(&table(1, 0x2f8, 7)[..length]), None);
        }
        for (revision, precise, baud) in
            [(3, 38_400, 115_200), (4, 38_400, 38_400), (4, 1_500_000, 1_500_000), (4, 0, 115_200)]
        {
            let mut whole = table(1, 0x2f8, 7);
            whole.resize(88, 0);
            whole[8] = revision;
            whole[80..84].copy_from_slice(&u32::to_le_bytes(precise));
            assert_eq!(Named::of(&whole), com2(baud), "{revision} {precise}");
            assert_eq!(Named::of(&whole[..83]), com2(115_200), "cut short");
        }
    }

    #[test]
    fn a_port_is_found_by_its_address() {
        let class = tempfile::tempdir().unwrap();
        for (name, port, base) in [("ttyS0", "0x3F8\n", "0x0\n"), ("ttyS1", "0x2F8\n", "0xFE030000\n")] {
            let directory = class.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("port"), port).unwrap();
            fs::write(directory.join("iomem_base"), base).unwrap();
        }
        fs::create_dir(class.path().join("tty1")).unwrap();
        let of = |kind, address| terminal(class.path(), &Named::of(&table(kind, address, 7)).unwrap());
        assert_eq!(of(1, 0x2f8).as_deref(), Some("ttyS1"));
        assert_eq!(of(0, 0xfe03_0000).as_deref(), Some("ttyS1"));
        assert_eq!(of(1, 0x3e8), None);
        assert!(prints_on("tty0  -WU (EC p)  4:1\nttyS1  -W- (E  p)  4:65\n", "ttyS1"));
        assert!(!prints_on("ttyS10  -W- (E  p)  4:74\n", "ttyS1"));
    }

    #[test]
    fn a_flush_ends_with_the_copier_or_its_limit() {
        let (wake, _woken) = UnixStream::pair().unwrap();
        let shared = Arc::new(Shared { flushes: Mutex::default(), changed: Condvar::new(), wake });
        let copier = Copier(shared.clone());
        copier.flush(Duration::from_millis(1));
        assert_eq!(*shared.flushes(), (1, 0), "it did not answer");
        shared.flushes().1 = u64::MAX;
        copier.flush(Duration::MAX);
    }
}
