//! When a machine reached which stage, from what was seen of it: the servers' log, its console, its workflow.

use std::time::{Duration, Instant};

use landfall_api::{ActionState, Workflow};
use landfall_lab::Line;

/// The stages in order, each with the moment it was reached.
pub(super) struct Stages {
    power_on: Instant,
    dhcp: Option<Instant>,
    tftp: Option<Instant>,
    kernel: Option<Instant>,
    enrolled: Option<Instant>,
    written: Option<Instant>,
    reboot: Option<Instant>,
    os_up: Option<Instant>,
    phone_home: Option<Instant>,
}

impl Stages {
    pub(super) const fn new(power_on: Instant) -> Self {
        Self {
            power_on,
            dhcp: None,
            tftp: None,
            kernel: None,
            enrolled: None,
            written: None,
            reboot: None,
            os_up: None,
            phone_home: None,
        }
    }

    /// Takes note of a workflow's state when it is first seen.
    pub(super) fn observe(&mut self, workflow: &Workflow, now: Instant) {
        let Some(status) = &workflow.status else { return };
        let first = |slot: &mut Option<Instant>, reached: bool| {
            if reached {
                slot.get_or_insert(now);
            }
        };
        first(&mut self.written, status.actions.first().is_some_and(|a| a.state == ActionState::Succeeded));
        first(&mut self.reboot, status.rebooted_at.is_some());
        first(&mut self.phone_home, status.phoned_home_at.is_some());
    }

    /// Fills in what the logs show.
    pub(super) fn complete(&mut self, log: &[Line], serial: &[Line], mac: &str, enrolled_boottime_ms: Option<u64>) {
        let at = |words: &[&str]| log.iter().find(|line| names(&line.text, words)).map(|line| line.at);
        self.dhcp = at(&["service=dhcp", mac]);
        self.tftp = at(&["service=tftp", mac]);
        self.kernel = serial.iter().find(|line| line.text.contains("Linux version")).map(|line| line.at);
        // The agent's own clock since boot, counted from the kernel's first line.
        self.enrolled = self.kernel.zip(enrolled_boottime_ms).map(|(at, ms)| at + Duration::from_millis(ms));
        let after = self.reboot.or(self.written);
        let up = |line: &&Line| {
            after.is_some_and(|after| line.at > after)
                && ["login:", "mini: booted"].iter().any(|word| line.text.contains(word))
        };
        self.os_up = serial.iter().find(up).map(|line| line.at);
    }

    /// Name and seconds since the stage before, for every stage that was reached; the last one is the whole.
    pub(super) fn table(&self) -> Vec<(String, f64)> {
        let named = [
            ("dhcp", self.dhcp),
            ("tftp", self.tftp),
            ("kernel", self.kernel),
            ("enrolled", self.enrolled),
            ("image written", self.written),
            ("reboot", self.reboot),
            ("os up", self.os_up),
            ("phone home", self.phone_home),
        ];
        let mut before = self.power_on;
        let mut table = Vec::new();
        for (name, at) in named.into_iter().filter_map(|(name, at)| Some((name, at?))) {
            table.push((name.to_owned(), at.saturating_duration_since(before).as_secs_f64()));
            before = at.max(before);
        }
        if let Some(end) = self.phone_home {
            table.push(("power-on to phone home".to_owned(), (end - self.power_on).as_secs_f64()));
        }
        table
    }
}

/// Whether a log line has all these words; quotes around values and colours do not count.
pub(super) fn names(line: &str, words: &[&str]) -> bool {
    let line = landfall_lab::printable(line).replace('"', "");
    words.iter().all(|word| line.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_stage_is_left_out() {
        let t = Instant::now();
        let line = |seconds: u64, text: &str| Line { at: t + Duration::from_secs(seconds), text: text.into() };
        let mut stages = Stages::new(t);
        let log = [line(3, "INFO service=\"dhcp\" mac=52:54:00:00:00:01")];
        let serial = [line(9, "[    0.000000] Linux version 6.1")];
        stages.complete(&log, &serial, "52:54:00:00:00:01", Some(2500));
        assert_eq!(stages.table(), [("dhcp".into(), 3.0), ("kernel".into(), 6.0), ("enrolled".into(), 2.5)]);
    }
}
