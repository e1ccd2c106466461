//! Erasing what is between signatures, and looking whether it is gone.

use std::cell::Cell;
use std::ops::Range;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use landfall_api::Progress;

use super::follow::Follow;
use super::marks::{Marks, distinct};
use super::method::Method;
use super::{ata, nvme, scsi};
use crate::commands::{Commands, Refused};
use crate::pipeline::{Zeroes, device_io, is_zero};
use crate::{BlockDevice, LogLevel, Observer, Order, RECEIPT_PLACE, WriteError, exact};

/// Discarded or zeroed between two looks whether this may go on, bytes. The slowest disks take less than a second for it.
const STEP: u64 = 32 << 20;
/// Both ends are zero before and after every erasure: by them a disk is recognised, and what it returns for what it has erased or
/// discarded is its own matter. Bytes.
const ENDS: u64 = 1 << 20;

/// Between looks at a disk that erases itself.
const LOOK: Duration = Duration::from_secs(1);
/// Between reports while one command erases the whole disk: half of what makes a workflow look stuck.
const TICK: Duration = Duration::from_secs(60);

/// Erases the disk, but for the receipt; how many places were looked at afterwards.
///
/// # Errors
/// [`WriteError::EraseFailed`], [`WriteError::NotErased`], and those of the device and of the order's checks.
pub(super) fn erase(
    device: &dyn BlockDevice, commands: &dyn Commands, method: Method, order: &Order<'_>, observer: &dyn Observer,
) -> Result<u32, WriteError> {
    let size = whole_sectors(device);
    let says = Says { observer, method, size, said: Cell::new(None) };
    let ends = ENDS.min(size / 2);
    let flush = || device.flush().map_err(device_io(order.device, "flush the erasure of"));
    match method {
        Method::Signatures => Ok(0),
        Method::Discard => {
            // Not the ends: zeroes are there already, and may not be afterwards.
            in_steps(ends..size - ends, order, &says, |range| {
                let failed =
                    device_io(order.device, format!("discard {} bytes at {} of", range.end - range.start, range.start));
                commands.discard(range).map_err(failed)
            })?;
            flush()?;
            // What the disk returns now is its own matter, so that nothing can be judged by it.
            Ok(0)
        }
        Method::Zero => {
            let zeroes = Zeroes::new(device, order.device);
            in_steps(0..size, order, &says, |range| zeroes.make(range).map(drop))?;
            flush()?;
            zeroed(device, size, order)
        }
        itself => {
            let marks = Marks::put(device, &(ends..size - ends), order)?;
            observer.cannot_stop(true);
            let erased = by_itself(commands, itself, order, &says);
            observer.cannot_stop(false);
            let failed = |refused: Refused| WriteError::EraseFailed {
                device: order.device.into(),
                method: itself.words(),
                reason: refused.to_string(),
            };
            erased.map_err(failed)?;
            for range in [0..ends, size - ends..size].into_iter().flat_map(around_receipt) {
                exact::zero(device, range).map_err(device_io(order.device, "clear both ends of"))?;
            }
            flush()?;
            marks.gone(device, order, itself.words())
        }
    }
}

/// Waits until a sanitize that is under way since before a restart has ended: until then the disk neither reads nor writes.
///
/// # Errors
/// Those of `may_act`; the disk goes on all the same.
pub(super) fn wait_for_running(
    commands: &dyn Commands, transport: &str, may_act: &dyn Fn() -> Result<(), WriteError>, observer: &dyn Observer,
) -> Result<(), WriteError> {
    while let Some(part) = under_way(commands, transport) {
        let progress = Progress { raw_bytes: part, raw_total: 1 << 16, ..Progress::default() };
        observer.progress(&Progress { stage: "an earlier sanitize".into(), ..progress });
        may_act()?;
        thread::sleep(LOOK);
    }
    Ok(())
}

/// How much is done of a sanitize that is under way, of 65536. (A disk that does not answer fails at the first read.)
pub(super) fn under_way(commands: &dyn Commands, transport: &str) -> Option<u64> {
    let of_ata = || ata::under_way(commands).ok().flatten();
    match transport {
        "nvme" => nvme::under_way(commands).ok().flatten(),
        "sata" => of_ata(),
        "scsi" => scsi::under_way(commands).ok().flatten().or_else(of_ata),
        _ => None,
    }
}

/// Looks whether a disk reads as zeroes; at how many places.
///
/// # Errors
/// [`WriteError::NotErased`], and those of the device and of the order's checks.
pub(super) fn all_zero(device: &dyn BlockDevice, order: &Order<'_>) -> Result<u32, WriteError> {
    zeroed(device, whole_sectors(device), order)
}

fn whole_sectors(device: &dyn BlockDevice) -> u64 {
    device.size() / u64::from(device.logical_sector()) * u64::from(device.logical_sector())
}

/// Looks whether the disk reads as zeroes; at how many places.
fn zeroed(device: &dyn BlockDevice, size: u64, order: &Order<'_>) -> Result<u32, WriteError> {
    let places = distinct(&(0..size));
    for place in &places {
        (order.may_act)()?;
        let mut bytes = vec![0; (place.end - place.start) as usize];
        let failed = device_io(order.device, format!("read {} bytes at {} of", bytes.len(), place.start));
        device.read_at(place.start, &mut bytes).map_err(failed)?;
        if !is_zero(&bytes) {
            let (device, method) = (order.device.into(), Method::Zero.words());
            return Err(WriteError::NotErased { device, method, offset: place.start });
        }
    }
    Ok(u32::try_from(places.len()).unwrap_or(u32::MAX))
}

/// The erasures that the disk does on its own. None of them can be stopped.
fn by_itself(commands: &dyn Commands, method: Method, order: &Order<'_>, says: &Says<'_>) -> Result<(), Refused> {
    let heard = |part: u64| says.progress(part.min(u64::from(u16::MAX)) * (says.size >> 16));
    let follow = Follow { pause: LOOK, heard: &heard };
    says.progress(0);
    match method {
        Method::NvmeSanitize(kind) => nvme::sanitize(commands, kind, &follow),
        Method::AtaSanitize(kind) => ata::sanitize(commands, kind, &follow),
        Method::ScsiSanitize(kind) => scsi::sanitize(commands, kind, &follow),
        Method::NvmeFormat(format) => says.meanwhile(0, TICK, || nvme::format(commands, format)),
        Method::AtaErase { enhanced, minutes } => {
            if minutes > 0 {
                says.line(&format!("{} says that it takes about {minutes} minutes", order.device));
            }
            says.meanwhile(minutes, TICK, || ata::erase(commands, enhanced))
        }
        Method::Signatures | Method::Discard | Method::Zero => Ok(()),
    }
}

/// Does a range of the disk in steps, but for the receipt.
fn in_steps(
    within: Range<u64>, order: &Order<'_>, says: &Says<'_>, act: impl Fn(Range<u64>) -> Result<(), WriteError>,
) -> Result<(), WriteError> {
    let mut at = within.start;
    while at < within.end {
        (order.may_act)()?;
        let step = at..(at + STEP).min(within.end);
        at = step.end;
        around_receipt(step).try_for_each(&act)?;
        says.progress(at);
    }
    Ok(())
}

/// What of the range is not the receipt's place.
fn around_receipt(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let before = range.start..range.end.min(RECEIPT_PLACE.start);
    let after = range.start.max(RECEIPT_PLACE.end)..range.end;
    [before, after].into_iter().filter(|part| part.start < part.end)
}

/// Between two reports of progress, as [`Observer::progress`] says.
const THINNED: Duration = Duration::from_millis(250);

/// Reports how far it is.
struct Says<'a> {
    observer: &'a dyn Observer,
    method: Method,
    size: u64,
    said: Cell<Option<Instant>>,
}

impl Says<'_> {
    fn progress(&self, done: u64) {
        if self.said.get().is_some_and(|said| said.elapsed() < THINNED) {
            return;
        }
        self.said.set(Some(Instant::now()));
        self.observer.progress(&shown(self.method, done, self.size));
    }

    /// Reports after each `tick` while `act` blocks: by the `minutes` that the disk says it takes, or 0 if it does not say.
    fn meanwhile<T>(&self, minutes: u32, tick: Duration, act: impl FnOnce() -> T) -> T {
        let (observer, method, size) = (self.observer, self.method, self.size);
        let expected = Duration::from_secs(u64::from(minutes) * 60);
        let (ended, wait) = channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let began = Instant::now();
                while wait.recv_timeout(tick) == Err(RecvTimeoutError::Timeout) {
                    // What a disk says is a guess: the last twentieth lasts until it has ended.
                    let part = began.elapsed().as_secs_f64() / expected.as_secs_f64().max(1.0);
                    let part = if expected.is_zero() { 0.0 } else { part.min(0.95) };
                    observer.progress(&shown(method, (part * size as f64) as u64, size));
                }
            });
            let done = act();
            drop(ended);
            done
        })
    }

    fn line(&self, text: &str) {
        self.observer.log(LogLevel::Info, text);
    }
}

fn shown(method: Method, done: u64, total: u64) -> Progress {
    Progress {
        stage: method.level().as_str().to_owned(),
        raw_bytes: done,
        raw_total: total,
        written_bytes: done,
        ..Progress::default()
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;
    use std::sync::mpsc::Sender;

    use landfall_api::{DiskReceipt, ReceiptState};

    use super::*;
    use crate::commands::scripted::{Scripted, Step};
    use crate::commands::{NvmeAdmin, ScsiEnd, Transfer};
    use crate::receipt::tests::mark;
    use crate::wipe::method::{NvmeFormat, Sanitize};
    use crate::{ReadAt, Unobserved};

    const SIZE: usize = 8 << 20;

    /// What a disk returns for sectors that it has erased.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Leaves {
        Bytes(u8),
        /// It erases nothing.
        Everything,
    }

    struct Disk {
        bytes: Mutex<Vec<u8>>,
        script: Scripted,
        leaves: Leaves,
        /// Neither read nor written.
        bad: Range<u64>,
    }

    impl Disk {
        fn new(leaves: Leaves) -> Self {
            let script = Scripted::nvme(0b10, 0b100, 0b111, &[1]).with_steps(&[Step::Done]);
            Self { bytes: Mutex::new(vec![7; SIZE]), script, leaves, bad: 0..0 }
        }

        fn refuses(&self, offset: u64, length: usize) -> io::Result<usize> {
            let within = offset < self.bad.end && offset + length as u64 > self.bad.start;
            if within { Err(io::Error::other("medium error")) } else { Ok(usize::try_from(offset).unwrap()) }
        }

        fn erase(&self, method: Method) -> Result<u32, WriteError> {
            let order = Order::plain("/dev/vda", mark(ReceiptState::Intent, 0));
            erase(self, self, method, &order, &Unobserved)
        }

        fn holds(&self, range: Range<u64>, byte: u8) -> bool {
            self.bytes.lock().unwrap()[range.start as usize..range.end as usize].iter().all(|it| *it == byte)
        }
    }

    impl ReadAt for Disk {
        fn size(&self) -> u64 {
            SIZE as u64
        }
        fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
            let at = self.refuses(offset, buffer.len())?;
            buffer.copy_from_slice(&self.bytes.lock().unwrap()[at..at + buffer.len()]);
            Ok(())
        }
    }

    impl BlockDevice for Disk {
        fn logical_sector(&self) -> u32 {
            512
        }
        fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
            let at = self.refuses(offset, data.len())?;
            self.bytes.lock().unwrap()[at..at + data.len()].copy_from_slice(data);
            Ok(())
        }
        fn zero_range(&self, offset: u64, length: u64) -> io::Result<bool> {
            self.write_at(offset, &vec![0; length as usize]).map(|()| false)
        }
        fn flush(&self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Commands for Disk {
        fn nvme(&self, command: NvmeAdmin, data: &mut [u8], limit: Duration) -> io::Result<u16> {
            let status = self.script.nvme(command, data, limit)?;
            if let (0x80 | 0x84, Leaves::Bytes(byte)) = (command.opcode, self.leaves) {
                self.bytes.lock().unwrap().fill(byte);
            }
            Ok(status)
        }
        fn scsi(&self, command: &[u8], data: Transfer<'_>, limit: Duration) -> io::Result<ScsiEnd> {
            self.script.scsi(command, data, limit)
        }
        fn discard(&self, range: Range<u64>) -> io::Result<()> {
            self.bytes.lock().unwrap()[range.start as usize..range.end as usize].fill(0x55);
            self.script.discard(range)
        }
        fn namespace(&self) -> io::Result<u32> {
            self.script.namespace()
        }
    }

    const METHODS: [Method; 2] =
        [Method::NvmeSanitize(Sanitize::Block), Method::NvmeFormat(NvmeFormat { crypto: false, keep: 0 })];

    #[test]
    fn an_erased_disk_may_return_any_pattern() {
        for (method, byte) in METHODS.into_iter().flat_map(|method| [0, 0xFF].map(|byte| (method, byte))) {
            let disk = Disk::new(Leaves::Bytes(byte));
            // The second time it returned the same before.
            for _ in 0..2 {
                assert!(disk.erase(method).unwrap() > 30, "{method:?}");
            }
            let size = SIZE as u64;
            assert!(disk.holds(0..RECEIPT_PLACE.start, 0) && disk.holds(size - ENDS..size, 0), "both ends are zero");
            assert!(disk.holds(ENDS..size - ENDS, byte));
        }
    }

    #[test]
    fn a_disk_that_erased_nothing_is_found_out() {
        for method in METHODS {
            let disk = Disk::new(Leaves::Everything);
            let found = disk.erase(method).unwrap_err();
            assert!(matches!(found, WriteError::NotErased { offset, .. } if offset >= ENDS), "{found}");
        }
    }

    #[test]
    fn a_disk_with_a_bad_sector_erases_itself() {
        let disk = Disk { bad: 4 << 20..5 << 20, ..Disk::new(Leaves::Bytes(0)) };
        let places = disk.erase(METHODS[0]).unwrap();
        assert!((20..30).contains(&places), "{places}");
        let disk = Disk { bad: 4 << 20..5 << 20, ..Disk::new(Leaves::Everything) };
        disk.erase(METHODS[0]).unwrap_err();
        let dead = Disk { bad: 0..SIZE as u64, ..Disk::new(Leaves::Bytes(0)) };
        assert!(matches!(dead.erase(METHODS[0]), Err(WriteError::DeviceIo { .. })));
    }

    #[test]
    fn a_discard_leaves_both_ends_alone() {
        let disk = Disk::new(Leaves::Everything);
        assert_eq!(disk.erase(Method::Discard).unwrap(), 0);
        let size = SIZE as u64;
        assert!(disk.holds(0..ENDS, 7) && disk.holds(ENDS..size - ENDS, 0x55) && disk.holds(size - ENDS..size, 7));
        let parts = disk.script.discarded.lock().unwrap();
        assert_eq!((parts.first().unwrap().start, parts.last().unwrap().end), (ENDS, size - ENDS));
    }

    /// Hands on how far each report says that it is.
    struct Hears(Mutex<Sender<u64>>);

    impl Observer for Hears {
        fn progress(&self, progress: &Progress) {
            self.0.lock().unwrap().send(progress.raw_bytes).unwrap();
        }
        fn receipt_written(&self, _: &DiskReceipt) {}
        fn log(&self, _: LogLevel, _: &str) {}
    }

    #[test]
    fn a_lasting_command_is_reported_and_its_result_kept() {
        let (send, reports) = channel();
        let hears = Hears(Mutex::new(send));
        let says = Says { observer: &hears, method: METHODS[1], size: 1 << 30, said: Cell::new(None) };
        // The disk ends once two reports were made.
        let act = || [(); 2].map(|()| reports.recv_timeout(Duration::from_secs(60)).unwrap());
        let [first, second] = says.meanwhile(3, Duration::from_millis(20), act);
        assert!(0 < first && first < second && second < 1 << 30, "{first}, then {second}");
    }
}
