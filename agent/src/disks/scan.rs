//! Whether every bus has been scanned: a pure state machine over what the kernel announces and what sysfs says.
//!
//! No bus says that it is complete. A scan counts as ended once the drivers are loaded, the kernel has announced no device
//! of a storage bus for [`QUIET`], and no controller says of itself that it is still coming up. A controller that never
//! comes up keeps it open for [`LIMIT`] at most.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use landfall_api::DiskId;

/// The kernel has announced no storage device for this long. A SCSI target that is being probed, a USB hub that counts its
/// ports and an NVMe controller that lists its namespaces announce something more often than this.
pub(super) const QUIET: Duration = Duration::from_secs(3);
/// The longest scan. A SAS expander with many slow disks takes tens of seconds.
pub(super) const LIMIT: Duration = Duration::from_secs(60);
/// A USB storage device may be probed this much later than its own delay says: the kernel's thread has to be scheduled.
const USB_SLACK: Duration = Duration::from_secs(2);

/// What sysfs says of the buses at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Buses {
    /// NVMe controllers that are not live yet, and their state.
    pub(super) nvme: Vec<(String, String)>,
    /// USB storage hosts on which no target was found yet.
    pub(super) usb: Vec<String>,
    /// After this the kernel looks for a target on a USB storage host (`usb_storage.delay_use`).
    pub(super) usb_delay: Duration,
    /// Drivers that may hide disks, and why, for people: one that is being loaded, one that crashed.
    pub(super) drivers: Vec<String>,
}

/// The set of disks, and whether it is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Scan {
    generation: u64,
    complete: bool,
    /// What it gave up to wait for.
    gave_up: Arc<[String]>,
    /// When this scan began.
    began: Instant,
    /// When the kernel last announced a storage device.
    announced: Instant,
    drivers_loaded: bool,
    /// When each USB storage host without a target was first seen.
    usb: BTreeMap<String, Instant>,
    disks: Vec<DiskId>,
}

/// What a look at the buses changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing: it goes on as before.
    Same,
    /// It goes on, and these are what it waits for, for people.
    Waits(Vec<String>),
    /// Every disk is known.
    Complete,
    /// It took too long: what it waited for is left out.
    GaveUp(Vec<String>),
}

impl Scan {
    /// A scan that begins now. `running`: the system has been up for long, and its buses were scanned before.
    pub(super) fn new(now: Instant, running: bool) -> Self {
        Self {
            generation: 1,
            complete: running,
            gave_up: Arc::default(),
            began: now,
            announced: now,
            drivers_loaded: running,
            usb: BTreeMap::new(),
            disks: Vec::new(),
        }
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.complete
    }

    /// What it gave up to wait for, for people.
    pub(super) fn gave_up(&self) -> Arc<[String]> {
        self.gave_up.clone()
    }

    pub(super) const fn generation(&self) -> u64 {
        self.generation
    }

    /// The drivers of every device that was there at the start are loaded.
    pub(super) fn drivers_loaded(&mut self, now: Instant) {
        if !self.drivers_loaded {
            self.drivers_loaded = true;
            self.announced = now;
        }
    }

    /// The kernel announced a device of a storage bus: the set is open again.
    pub(super) fn announced(&mut self, now: Instant) {
        if self.complete {
            self.complete = false;
            self.began = now;
        }
        self.announced = now;
    }

    /// Takes in what is there now.
    pub(super) fn look(&mut self, now: Instant, disks: Vec<DiskId>, buses: &Buses) -> Verdict {
        if disks != self.disks {
            if !self.disks.is_empty() {
                self.generation += 1;
                self.announced(now);
            }
            self.disks = disks;
        }
        let waits = self.waits(now, buses);
        if self.complete {
            return Verdict::Same;
        }
        if self.drivers_loaded && waits.is_empty() && now.duration_since(self.announced) >= QUIET {
            (self.complete, self.gave_up) = (true, Arc::default());
            return Verdict::Complete;
        }
        if now.duration_since(self.began) >= LIMIT {
            let waits =
                if waits.is_empty() { vec!["the kernel announces devices again and again".into()] } else { waits };
            (self.complete, self.gave_up) = (true, waits.as_slice().into());
            return Verdict::GaveUp(waits);
        }
        if waits.is_empty() { Verdict::Same } else { Verdict::Waits(waits) }
    }

    /// When to look again without another announcement; `None` once it is complete.
    pub(super) fn look_again(&self, now: Instant) -> Option<Duration> {
        let quiet = (self.announced + QUIET).saturating_duration_since(now);
        (!self.complete).then(|| quiet.clamp(Duration::from_millis(50), Duration::from_millis(500)))
    }

    fn waits(&mut self, now: Instant, buses: &Buses) -> Vec<String> {
        let mut waits: Vec<String> =
            buses.nvme.iter().map(|(name, state)| format!("NVMe controller {name} is {state}")).collect();
        self.usb.retain(|host, _| buses.usb.contains(host));
        for host in &buses.usb {
            let since = *self.usb.entry(host.clone()).or_insert(now);
            if now.duration_since(since) < buses.usb_delay + USB_SLACK {
                waits.push(format!("USB storage on {host} is not probed yet"));
            }
        }
        waits.extend_from_slice(&buses.drivers);
        if !self.drivers_loaded && waits.is_empty() {
            waits.push("drivers are being loaded".into());
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str) -> DiskId {
        DiskId { name: name.into(), serial: name.into(), size_bytes: 1 << 30, ..DiskId::default() }
    }

    fn after(start: Instant, milliseconds: u64) -> Instant {
        start + Duration::from_millis(milliseconds)
    }

    /// Drivers loaded at once, one disk there.
    fn begun() -> (Scan, Instant) {
        let start = Instant::now();
        let mut scan = Scan::new(start, false);
        scan.drivers_loaded(start);
        assert_eq!(scan.look(start, vec![disk("sda")], &Buses::default()), Verdict::Same);
        (scan, start)
    }

    #[test]
    fn a_scan_ends_after_quiet_and_not_before() {
        let (mut scan, start) = begun();
        let disks = || vec![disk("sda")];
        assert_eq!(scan.look(after(start, 2999), disks(), &Buses::default()), Verdict::Same);
        scan.announced(after(start, 2999));
        assert_eq!(scan.look(after(start, 3000), disks(), &Buses::default()), Verdict::Same);
        assert_eq!(scan.look(after(start, 5999), disks(), &Buses::default()), Verdict::Complete);
        assert!(scan.is_complete() && scan.look_again(after(start, 6000)).is_none());
    }

    #[test]
    fn nothing_is_complete_before_the_drivers_are_loaded() {
        let start = Instant::now();
        let mut scan = Scan::new(start, false);
        let Verdict::Waits(waits) = scan.look(after(start, 20_000), vec![], &Buses::default()) else { panic!() };
        assert!(waits[0].contains("drivers"), "{waits:?}");
        scan.drivers_loaded(after(start, 20_000));
        scan.look(after(start, 22_999), vec![], &Buses::default());
        assert!(!scan.is_complete());
        assert_eq!(scan.look(after(start, 23_000), vec![], &Buses::default()), Verdict::Complete);
    }

    #[test]
    fn a_disk_that_appears_later_is_another_generation() {
        let (mut scan, start) = begun();
        assert_eq!(scan.look(after(start, 3000), vec![disk("sda")], &Buses::default()), Verdict::Complete);
        let both = || vec![disk("sda"), disk("sdb")];
        assert_eq!(scan.look(after(start, 9000), both(), &Buses::default()), Verdict::Same);
        assert!(!scan.is_complete() && scan.generation() == 2, "also where no announcement came");
        assert_eq!(scan.look(after(start, 12_000), both(), &Buses::default()), Verdict::Complete);
        let grown = vec![disk("sda"), DiskId { size_bytes: 2 << 30, ..disk("sdb") }];
        scan.look(after(start, 13_000), grown, &Buses::default());
        assert_eq!((scan.is_complete(), scan.generation()), (false, 3));
    }

    #[test]
    fn a_controller_that_comes_up_keeps_the_scan_open() {
        let (mut scan, start) = begun();
        let coming = Buses { nvme: vec![("nvme0".into(), "connecting".into())], ..Buses::default() };
        let waits = vec!["NVMe controller nvme0 is connecting".to_owned()];
        assert_eq!(scan.look(after(start, 30_000), vec![disk("sda")], &coming), Verdict::Waits(waits.clone()));
        assert_eq!(scan.look(after(start, 60_000), vec![disk("sda")], &coming), Verdict::GaveUp(waits.clone()));
        assert!(scan.is_complete() && *scan.gave_up() == *waits, "a disk may be missing");
        // It comes after all: a scan that ends knows every disk.
        let both = || vec![disk("sda"), disk("nvme0n1")];
        scan.look(after(start, 70_000), both(), &Buses::default());
        assert_eq!(scan.look(after(start, 73_000), both(), &Buses::default()), Verdict::Complete);
        assert!(scan.gave_up().is_empty());
    }

    #[test]
    fn a_crashed_driver_may_hide_disks() {
        let (mut scan, start) = begun();
        let waits = vec!["driver mpt3sas crashed while it was loaded".to_owned()];
        let crashed = Buses { drivers: waits.clone(), ..Buses::default() };
        let disks = || vec![disk("sda")];
        assert_eq!(scan.look(after(start, 59_999), disks(), &crashed), Verdict::Waits(waits.clone()));
        assert_eq!(scan.look(after(start, 60_000), disks(), &crashed), Verdict::GaveUp(waits.clone()));
        assert!(scan.is_complete() && *scan.gave_up() == *waits, "a person is to decide");
    }

    #[test]
    fn usb_storage_is_waited_for_as_long_as_its_delay() {
        let (mut scan, start) = begun();
        let usb = Buses { usb: vec!["host6".into()], usb_delay: Duration::from_secs(5), ..Buses::default() };
        for second in [1, 4, 7] {
            let verdict = scan.look(after(start, second * 1000), vec![disk("sda")], &usb);
            assert!(matches!(verdict, Verdict::Waits(_)), "{second}: {verdict:?}");
        }
        assert_eq!(scan.look(after(start, 8000), vec![disk("sda")], &usb), Verdict::Complete);
    }

    #[test]
    fn endless_announcements_end_at_the_limit() {
        let (mut scan, start) = begun();
        for second in 1..60 {
            scan.announced(after(start, second * 1000));
            assert_eq!(scan.look(after(start, second * 1000), vec![disk("sda")], &Buses::default()), Verdict::Same);
        }
        let verdict = scan.look(after(start, 60_000), vec![disk("sda")], &Buses::default());
        assert!(matches!(&verdict, Verdict::GaveUp(why) if why[0].contains("again and again")), "{verdict:?}");
    }

    #[test]
    fn a_running_system_was_scanned_before() {
        let start = Instant::now();
        let mut scan = Scan::new(start, true);
        assert!(scan.is_complete());
        scan.look(start, vec![disk("sda")], &Buses::default());
        assert_eq!((scan.is_complete(), scan.generation()), (true, 1));
    }
}
