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

/// ACPI's Serial Port Console Redirection table, as the kernel shows it.
const TABLE: &str = "/sys/firmware/acpi/tables/SPCR";
/// Of a table that leaves the speed as it was, and nothing tells which: most BMCs' default.
const USUAL_BAUD: u32 = 115_200;
/// The port's driver may be a module: it is looked for so often, a second apart.
const TRIES: u32 = 15;
/// One record of the kernel's log: at most CONSOLE_EXT_LOG_MAX bytes (Linux, `kernel/printk/internal.h`).
const RECORD: usize = 8192;
/// What proves this machine to its coordinator.
const TOKEN: &str = "landfall.token=";

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
    /// Reads a table (Microsoft, "Serial Port Console Redirection Table", revisions 1 to 4, whose fields up to here are the same).
    fn of(table: &[u8]) -> Option<Self> {
        // The register's address is a Generic Address Structure of ACPI at 40: kind, three bytes of its shape, the address.
        let kind = *table.get(40)?;
        let address = u64::from_le_bytes(table.get(44..52)?.try_into().ok()?);
        let baud = match table.get(58)? {
            3 => 9600,
            4 => 19_200,
            6 => 57_600,
            _ => USUAL_BAUD,
        };
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
    let mut log = OpenOptions::new().read(true).custom_flags(OFlag::O_NONBLOCK.bits()).open("/dev/kmsg")?;
    let mut record = vec![0; RECORD];
    loop {
        let asked = shared.flushes().0;
        while let Some(line) = next(&mut log, &mut record)? {
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

/// The next record that is shown; nothing once all are read.
fn next(log: &mut File, record: &mut [u8]) -> io::Result<Option<String>> {
    loop {
        match log.read(record) {
            Ok(length) => {
                if let Some(line) = shown(&record[..length]) {
                    return Ok(Some(line));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
            // The kernel has overwritten what was to be read next.
            Err(error) if error.raw_os_error() == Some(Errno::EPIPE as i32) => {
                return Ok(Some("landfall: this console is too slow: lines are left out\r\n".to_owned()));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A record (Linux, `Documentation/ABI/testing/dev-kmsg`) as a console shows it, but for a token; nothing of what is for debugging.
fn shown(record: &[u8]) -> Option<String> {
    let record = std::str::from_utf8(record).ok()?;
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    let (priority, _, micros): (u64, _, u64) =
        (fields.next()?.parse().ok()?, fields.next()?, fields.next()?.parse().ok()?);
    let text = without_tokens(&plain(text.lines().next()?)).replace('\n', "\r\n");
    (priority % 8 < 7).then(|| format!("[{:5}.{:06}] {text}\r\n", micros / 1_000_000, micros % 1_000_000))
}

/// A text without the kernel's escapes, `\x` and two digits, and without control characters but the ends of lines.
fn plain(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("\\x") {
        bytes.extend_from_slice(before.as_bytes());
        let byte = after.get(..2).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.extend(byte);
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    bytes.extend_from_slice(rest.as_bytes());
    String::from_utf8_lossy(&bytes).chars().filter(|c| !c.is_control() || *c == '\n').collect()
}

/// The command line is in the log, and this port has other readers than the screen.
fn without_tokens(text: &str) -> String {
    let mut pieces = text.split(TOKEN);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |shown, piece| {
        // A quote may stand before it, in it or behind it (the kernel takes quotes away).
        let end = piece.find(' ').unwrap_or(piece.len());
        format!("{shown}{TOKEN}…{}", &piece[end..])
    })
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
    fn records_are_shown_as_a_console_shows_them() {
        let shown = |record: &str| shown(record.as_bytes());
        for (record, line) in [
            ("6,339,5140900,-;NET: family 10\n SUBSYSTEM=net\n", "[    5.140900] NET: family 10\r\n"),
            (
                "14,1,12000007,-;landfall: up to 71 \\xc2\\xb0C, \\x5cx41\n",
                "[   12.000007] landfall: up to 71 °C, \\x41\r\n",
            ),
            ("6,2,3,-;two\\x0alines\\x1b[2J\n", "[    0.000003] two\r\nlines[2J\r\n"),
            ("6,2,3,-;a=1 landfall.token=secret quiet\n", "[    0.000003] a=1 landfall.token=… quiet\r\n"),
            (
                "6,2,3,-;\"landfall.token=secret\" landfall.token=more\n",
                "[    0.000003] \"landfall.token=… landfall.token=…\r\n",
            ),
            ("6,2,3,-;landfall.token=\"secret\" quiet\n", "[    0.000003] landfall.token=… quiet\r\n"),
        ] {
            assert_eq!(shown(record).as_deref(), Some(line));
        }
        for record in ["7,340,5690716,-;udevd: starting\n", "", "6,1;no time\n", "x,1,2,-;no priority\n"] {
            assert_eq!(shown(record), None, "{record}");
        }
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
