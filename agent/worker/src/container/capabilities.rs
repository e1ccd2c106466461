//! What root may do in a container. None of these lets a program find a disk or a directory that was not named: none mounts, makes a
//! device file, or reaches hardware. (capabilities(7); the usual ones are those of `podman run`.)

use landfall_api::ContainerCapability;
use rustix::io;
use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities,
};

/// Those of every container.
const USUAL: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SYS_CHROOT);

/// The usual ones, and those that a template names; as bits.
pub(super) fn of(named: &[ContainerCapability]) -> u64 {
    let of_one = |one: &ContainerCapability| match one {
        ContainerCapability::IpcLock => CapabilitySet::IPC_LOCK,
        ContainerCapability::LinuxImmutable => CapabilitySet::LINUX_IMMUTABLE,
        ContainerCapability::NetAdmin => CapabilitySet::NET_ADMIN,
        ContainerCapability::NetRaw => CapabilitySet::NET_RAW,
        ContainerCapability::SysNice => CapabilitySet::SYS_NICE,
        ContainerCapability::SysPtrace => CapabilitySet::SYS_PTRACE,
        ContainerCapability::Syslog => CapabilitySet::SYSLOG,
    };
    named.iter().fold(USUAL, |all, one| all.union(of_one(one))).bits()
}

/// From here on no program of this process ever has others: the kernel keeps a bound over everything that it starts. Also those are
/// taken away whose names came after this code.
pub(super) fn bound(allowed: u64) -> io::Result<()> {
    for bit in (0..u64::BITS).map(|number| 1 << number).filter(|bit| allowed & bit == 0) {
        let one = CapabilitySet::from_bits_retain(bit);
        match capability_is_in_bounding_set(one) {
            Ok(true) => remove_capability_from_bounding_set(one)?,
            Ok(false) => {}
            // The kernel has no more.
            Err(Errno::INVAL) => break,
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// This process has no others itself, either; one that is not root's has none.
pub(super) fn keep(allowed: u64) -> io::Result<()> {
    let allowed = CapabilitySet::from_bits_retain(allowed);
    clear_ambient_capability_set()?;
    let sets = CapabilitySets { effective: allowed, permitted: allowed, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets)
}
