//! The computer behind the BMC.

use std::time::Instant;

use crate::quirks::Quirks;

/// A start of the computer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Start {
    /// What it booted from: `Pxe`, `UefiHttp` or `Hdd`.
    pub from: String,
    /// In that mode.
    pub mode: String,
}

/// The power, and the boot device that is set.
#[derive(Debug, Clone)]
pub struct Computer {
    /// It has power.
    pub is_on: bool,
    /// A change of power to come: when, and to what.
    pub(crate) pending: Option<(Instant, bool)>,
    /// `BootSourceOverrideTarget`.
    pub target: String,
    /// `BootSourceOverrideEnabled`.
    pub enabled: String,
    /// `BootSourceOverrideMode`.
    pub mode: String,
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
            target: "None".into(),
            enabled: "Disabled".into(),
            mode: "UEFI".into(),
            starts: Vec::new(),
            shutdowns: 0,
            cuts: 0,
            version: 1,
        }
    }
}

impl Computer {
    /// Makes a change of power that is due.
    pub(crate) fn settle(&mut self, quirks: &Quirks) {
        if let Some((at, on)) = self.pending
            && Instant::now() >= at
        {
            self.pending = None;
            self.switch(on, quirks);
        }
    }

    /// A reset was asked for; whether the computer can do it.
    pub(crate) fn reset(&mut self, kind: &str, quirks: &Quirks) -> bool {
        let on = match kind {
            "On" | "ForceOn" if quirks.stays_off => return true,
            "On" | "ForceOn" => true,
            "ForceOff" if !self.is_on && quirks.off_is_error => return false,
            "ForceOff" => {
                self.cuts += 1;
                false
            }
            "GracefulShutdown" | "PushPowerButton" if quirks.refuses_shutdown => return false,
            "GracefulShutdown" | "PushPowerButton" => {
                self.shutdowns += 1;
                if quirks.ignores_shutdown {
                    return true;
                }
                false
            }
            _ => return false,
        };
        self.pending = Some((Instant::now() + quirks.power_lag, on));
        self.settle(quirks);
        true
    }

    fn switch(&mut self, on: bool, quirks: &Quirks) {
        if on && !self.is_on {
            let followed = self.enabled == "Continuous" || self.enabled == "Once" && !quirks.ignores_once;
            let from = if followed { self.target.clone() } else { "Hdd".into() };
            self.starts.push(Start { from, mode: self.mode.clone() });
            if self.enabled == "Once" {
                (self.target, self.enabled) = ("None".into(), "Disabled".into());
            }
        }
        self.is_on = on;
        self.version += 1;
    }
}
