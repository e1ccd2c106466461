//! Which accelerator runs the machines.

use std::sync::atomic::{AtomicBool, Ordering};

/// A machine of this process stood still under KVM and was started again under TCG.
static STOOD_STILL: AtomicBool = AtomicBool::new(false);

/// An accelerator of QEMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The kernel's KVM.
    Kvm,
    /// Emulation: correct, and about ten times slower.
    Tcg,
}

impl Accel {
    /// The word used in reports and in `LANDFALL_ACCEL`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg",
        }
    }

    /// How much longer than under a working KVM a wait may take: multiply limits by it.
    pub fn patience(self) -> u32 {
        match self {
            Self::Kvm if !STOOD_STILL.load(Ordering::Relaxed) => 1,
            Self::Kvm | Self::Tcg => 4,
        }
    }

    /// From now on waits have the patience of emulation, see [`crate::Machine::power_on`].
    pub(crate) fn stood_still() {
        STOOD_STILL.store(true, Ordering::Relaxed);
    }

    pub(crate) fn qemu_args(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // With ERMS a kernel clears pages byte by byte, and where one held code before, QEMU 7.2 looks for that code at each byte:
            // a guest stood still for minutes.
            Self::Tcg => ["-accel", "tcg,thread=multi", "-cpu", "max,-erms"],
        }
    }
}
