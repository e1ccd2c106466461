//! Which accelerator runs the machines.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::{Firmware, LabError, Network, baseline};

/// Where the kernel lists the processor's flags.
pub const CPUINFO: &str = "/proc/cpuinfo";
/// How long a machine may take from power-on to the first line of user space in the proof of KVM: two to three seconds
/// where KVM works.
const PROOF_LIMIT: Duration = Duration::from_secs(30);

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

    /// What to use here, and why: `LANDFALL_ACCEL` if it is set; else KVM if the processor's flags in `cpuinfo`
    /// ([`CPUINFO`]) have `vmx` or `svm`, and a machine of each firmware then proves it by reaching the user space of
    /// `kernel`. Logs go below `dir`.
    ///
    /// The flags come first because a paravirtual KVM (`kvm-pvm`) lacks them: SeaBIOS and a Linux kernel run on it, OVMF
    /// stands still for ever.
    ///
    /// # Errors
    /// [`LabError`] if `LANDFALL_ACCEL` is neither `kvm` nor `tcg`, or no network can be made.
    pub async fn choose(kernel: &Path, cpuinfo: &Path, dir: &Path) -> Result<(Self, String), LabError> {
        match std::env::var("LANDFALL_ACCEL").as_deref() {
            Ok("kvm") => return Ok((Self::Kvm, "LANDFALL_ACCEL says so".to_owned())),
            Ok("tcg") => return Ok((Self::Tcg, "LANDFALL_ACCEL says so".to_owned())),
            Err(std::env::VarError::NotPresent) | Ok("") => {}
            other => {
                let value = other.map_or_else(|error| error.to_string(), |value| format!("\"{value}\""));
                return Err(LabError::Accelerator { value });
            }
        }
        let flags = std::fs::read_to_string(cpuinfo).map_err(LabError::file("cannot read", cpuinfo))?;
        if !has_virtualisation(&flags) {
            return Ok((Self::Tcg, "the processor's flags have neither vmx nor svm".to_owned()));
        }
        if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
            return Ok((Self::Tcg, format!("/dev/kvm cannot be opened: {error}")));
        }
        let network = Network::create()?;
        let proof = Firmware::ALL.map(|firmware| proof(kernel, firmware, &network, dir));
        Ok(match futures::future::try_join_all(proof).await {
            Ok(_) => (Self::Kvm, "a machine of each firmware reached user space".to_owned()),
            Err(why) => (Self::Tcg, why),
        })
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

/// Whether Intel's or AMD's virtualisation is among the flags of a processor.
fn has_virtualisation(cpuinfo: &str) -> bool {
    let flags = cpuinfo.lines().filter(|line| line.starts_with("flags")).filter_map(|line| line.split_once(':'));
    flags.flat_map(|(_, flags)| flags.split_whitespace()).any(|flag| matches!(flag, "vmx" | "svm"))
}

/// Boots a machine of that firmware to user space under KVM; the error says why KVM is not used.
async fn proof(kernel: &Path, firmware: Firmware, network: &Network, dir: &Path) -> Result<(), String> {
    let dir = dir.join(format!("kvm-{firmware}"));
    std::fs::create_dir_all(&dir).map_err(|error| format!("cannot make {}: {error}", dir.display()))?;
    let proved = baseline::reaches_user_space(kernel, firmware, network, &dir, PROOF_LIMIT).await;
    proved.map(drop).map_err(|error| {
        tracing::info!(%firmware, %error, "KVM is not used");
        format!("a machine with {firmware} firmware did not reach user space under KVM; logs in {}", dir.display())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kvm_needs_vmx_or_svm_among_the_flags() {
        for (cpuinfo, has) in [
            ("processor\t: 0\nflags\t\t: fpu vmx sse2\n", true),
            ("flags\t\t: fpu svm\n", true),
            ("flags\t\t: fpu sse2 hypervisor\n", false),
            ("vmx flags\t: ept vpid\nflags\t\t: fpu\n", false),
            ("model name\t: vmx svm\nflags\t\t: fpu svm_lock\n", false),
            ("", false),
        ] {
            assert_eq!(has_virtualisation(cpuinfo), has, "{cpuinfo}");
        }
    }
}
