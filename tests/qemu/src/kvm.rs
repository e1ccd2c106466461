//! Whether KVM works here.

use std::path::Path;
use std::time::Duration;

use crate::{Accel, Firmware, LabError, Network, baseline};

/// Where the kernel lists the processor's flags.
pub const CPUINFO: &str = "/proc/cpuinfo";
/// How long a machine may take from power-on to the first line of user space in the proof of KVM: two to three seconds
/// where KVM works.
const PROOF_LIMIT: Duration = Duration::from_secs(30);

/// What to use here, and why: `LANDFALL_ACCEL` if it is set; else KVM if the processor's flags in `cpuinfo`
/// ([`CPUINFO`]) have `vmx` or `svm`, and a machine of each firmware then proves it by reaching the user space of
/// `kernel`. Logs go below `dir`.
///
/// The flags come first because a paravirtual KVM (`kvm-pvm`) lacks them: SeaBIOS and a Linux kernel run on it, OVMF
/// stands still for ever.
///
/// # Errors
/// [`LabError`] if `LANDFALL_ACCEL` is neither `kvm` nor `tcg`, or no network can be made.
pub async fn choose_accel(kernel: &Path, cpuinfo: &Path, dir: &Path) -> Result<(Accel, String), LabError> {
    match std::env::var("LANDFALL_ACCEL").as_deref() {
        Ok("kvm") => return Ok((Accel::Kvm, "LANDFALL_ACCEL says so".to_owned())),
        Ok("tcg") => return Ok((Accel::Tcg, "LANDFALL_ACCEL says so".to_owned())),
        Err(std::env::VarError::NotPresent) | Ok("") => {}
        other => {
            let value = other.map_or_else(|error| error.to_string(), |value| format!("\"{value}\""));
            return Err(LabError::Accelerator { value });
        }
    }
    let flags = std::fs::read_to_string(cpuinfo).map_err(LabError::file("cannot read", cpuinfo))?;
    if !has_virtualisation(&flags) {
        return Ok((Accel::Tcg, "the processor's flags have neither vmx nor svm".to_owned()));
    }
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/kvm") {
        return Ok((Accel::Tcg, format!("/dev/kvm cannot be opened: {error}")));
    }
    let network = Network::create()?;
    let proof = Firmware::ALL.map(|firmware| proof(kernel, firmware, &network, dir));
    Ok(match futures::future::try_join_all(proof).await {
        Ok(_) => (Accel::Kvm, "a machine of each firmware reached user space".to_owned()),
        Err(why) => (Accel::Tcg, why),
    })
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
