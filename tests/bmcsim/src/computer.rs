//! The computer behind the BMC.

use std::sync::Arc;
use std::time::Instant;

use crate::hardware::{Hardware, Switch};
use crate::quirks::Quirks;

/// A start of the computer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What it booted from: `Pxe`, `UefiHttp`, `Cd` or `Hdd`.
    pub from: String,
    /// In that mode.
    pub mode: String,
}

/// The power, and the boot device that is set.
#[derive(Debug, Clone)]
pub struct Computer {
    /// It has power.
    pub is_on: bool,
    /// A change of power to come: when, and which.
    pub(crate) pending: Option<(Instant, Switch)>,
    /// What is switched; absent: nothing, and what is asked for is so.
    pub(crate) hardware: Option<Arc<dyn Hardware>>,
    /// `BootSourceOverrideTarget`.
    pub target: String,
    /// `BootSourceOverrideEnabled`.
    pub enabled: String,
    /// `BootSourceOverrideMode`.
    pub mode: String,
    /// How far its firmware got (`BootProgress`).
    pub progress: Option<String>,
    /// The BMC's event log: when, by its clock, how severe, and what.
    pub log: Vec<[String; 3]>,
    /// The same of IPMI: records of 16 bytes, numbered from 1.
    pub sel: Vec<[u8; 16]>,
    /// A medium is in its virtual CD drive.
    pub has_medium: bool,
    /// Every start so far.
    pub starts: Vec<Start>,
    /// Requests to shut down.
    pub shutdowns: u32,
    /// Times the power was cut.
    pub cuts: u32,
    /// Rises with every change, for the entity tag.
    pub(crate) version: u32,
}

impl Default for Computer {
    fn default() -> Self {
        Self {
            is_on: false,
            pending: None,
            hardware: None,
            target: "None".into(),
            enabled: "Disabled".into(),
            mode: "UEFI".into(),
            progress: None,
            log: Vec::new(),
            sel: Vec::new(),
            has_medium: false,
            starts: Vec::new(),
            shutdowns: 0,
            cuts: 0,
            version: 1,
        }
    }
}

impl Computer {
    /// Makes a change of power that is due, and reads the power where it is real.
    pub(crate) fn settle(&mut self, quirks: &Quirks) {
        let due = self.pending.take_if(|(at, _)| Instant::now() >= *at).map(|(_, switch)| switch);
        let on = match (&self.hardware, due) {
            (None, due) => due.map(|switch| switch == Switch::On),
            (Some(hardware), due) => {
                if let Some(switch) = due {
                    hardware.switch(switch);
                }
                Some(hardware.is_on()).filter(|on| *on != self.is_on)
            }
        };
        if let Some(on) = on {
            self.switch(on, quirks);
        }
    }

    /// A reset was asked for; whether the computer can do it.
    pub(crate) fn reset(&mut self, kind: &str, quirks: &Quirks) -> bool {
        let switch = match kind {
            "On" | "ForceOn" if quirks.stays_off => return true,
            "On" | "ForceOn" => Switch::On,
            "ForceOff" if !self.is_on && quirks.off_is_error => return false,
            "ForceOff" => {
                self.cuts += 1;
                Switch::Off
            }
            "GracefulShutdown" | "PushPowerButton" if quirks.refuses_shutdown => return false,
            "GracefulShutdown" | "PushPowerButton" => {
                self.shutdowns += 1;
                if quirks.ignores_shutdown {
                    return true;
                }
                Switch::Button
            }
            _ => return false,
        };
        self.pending = Some((Instant::now() + quirks.power_lag, switch));
        self.settle(quirks);
        true
    }

    /// The boot device was changed; a computer that is real has it from now on.
    pub(crate) fn set_boot(&self, quirks: &Quirks) {
        let ignored = self.enabled == "Once" && quirks.ignores_once;
        if let Some(hardware) = &self.hardware {
            let (target, enabled) = if ignored { ("None", "Disabled") } else { (&*self.target, &*self.enabled) };
            hardware.set_boot(target, enabled);
        }
    }

    /// The boot device is lost.
    pub(crate) fn forget_boot(&mut self, quirks: &Quirks) {
        (self.target, self.enabled) = ("None".into(), "Disabled".into());
        self.set_boot(quirks);
    }

    fn switch(&mut self, on: bool, quirks: &Quirks) {
        if on && !self.is_on {
            let followed = self.enabled == "Continuous" || self.enabled == "Once" && !quirks.ignores_once;
            let is_there = self.target != "Cd" || self.has_medium;
            let from = if followed && is_there { self.target.clone() } else { "Hdd".into() };
            self.starts.push(Start { from, mode: self.mode.clone() });
            if self.enabled == "Once" {
                (self.target, self.enabled) = ("None".into(), "Disabled".into());
            }
        }
        self.is_on = on;
        self.version += 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// It does what it is asked when the test says so.
    #[derive(Debug, Default)]
    struct Slow {
        is_on: Mutex<bool>,
        asked: Mutex<Vec<String>>,
    }

    impl Hardware for Slow {
        fn is_on(&self) -> bool {
            *self.is_on.lock().unwrap()
        }

        fn switch(&self, switch: Switch) {
            self.asked.lock().unwrap().push(format!("{switch:?}"));
        }

        fn set_boot(&self, target: &str, enabled: &str) {
            self.asked.lock().unwrap().push(format!("{target} {enabled}"));
        }
    }

    #[test]
    fn the_power_is_that_of_a_computer_that_is_there() {
        let (slow, quirks) = (Arc::new(Slow::default()), Quirks::default());
        let mut computer = Computer { hardware: Some(slow.clone()), ..Computer::default() };
        (computer.target, computer.enabled) = ("Pxe".into(), "Once".into());
        computer.set_boot(&quirks);
        assert!(computer.reset("On", &quirks) && !computer.is_on, "it has no power yet");
        *slow.is_on.lock().unwrap() = true;
        computer.settle(&quirks);
        assert!(computer.is_on);
        assert_eq!((computer.starts.len(), computer.target.as_str()), (1, "None"), "the device counts once");
        computer.reset("GracefulShutdown", &quirks);
        computer.reset("ForceOff", &quirks);
        assert_eq!(*slow.asked.lock().unwrap(), ["Pxe Once", "On", "Button", "Off"]);
    }

    #[test]
    fn an_ignored_device_is_kept_from_the_computer_alone() {
        let slow = Arc::new(Slow::default());
        let computer = Computer {
            hardware: Some(slow.clone()),
            target: "Pxe".into(),
            enabled: "Once".into(),
            ..Computer::default()
        };
        computer.set_boot(&Quirks { ignores_once: true, ..Quirks::default() });
        assert_eq!((slow.asked.lock().unwrap()[0].as_str(), computer.target.as_str()), ("None Disabled", "Pxe"));
    }
}
