//! Giving a machine whose network card brings an iPXE of its own ours instead.
//!
//! Such an iPXE is of any age and was built with any set of features; the one from `boot.bootloaders` is the one this
//! product is tested with. Which is running shows in the name of its network driver: ours drive the card through the
//! firmware (`undionly`, `SNP`), a card's own drives it natively.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use landfall_api::MacAddr;

use crate::arch::Arch;
use crate::dhcp::bootfile::{ARM64_LOADER, BIOS_LOADER, UEFI_LOADER};

/// A machine that got our iPXE and still requests with another iPXE within this time would loop for ever, such as when
/// `boot.bootloaders` holds a build with native drivers. It gets its script instead.
const ONCE_IN: Duration = Duration::from_secs(180);
/// Machines remembered at one time; beyond that, machines keep the iPXE they have.
const MAX_REMEMBERED: usize = 4096;

/// Who was given our iPXE lately.
#[derive(Debug)]
pub struct OwnIpxe {
    tftp: Option<IpAddr>,
    arm64: bool,
    given: Mutex<HashMap<MacAddr, Instant>>,
}

impl OwnIpxe {
    /// `tftp` is where loaders are served; without it all machines keep their iPXE. `arm64`: whether [`ARM64_LOADER`] is
    /// among them; without it arm64 machines do.
    pub fn new(tftp: Option<IpAddr>, arm64: bool) -> Self {
        Self { tftp, arm64, given: Mutex::default() }
    }

    /// The URL of the loader to chain into; `None` for one that is ours already, or does not say what it is.
    pub fn loader_for(&self, mac: MacAddr, platform: &str, arch: Option<Arch>, chip: &str) -> Option<String> {
        let server = self.tftp?;
        // An iPXE too old to fill in a setting sends nothing, or the setting's name.
        if chip.is_empty() || chip.starts_with('$') {
            return None;
        }
        let (loader, ours) = match platform {
            "pcbios" => (BIOS_LOADER, chip.eq_ignore_ascii_case("undionly")),
            "efi" => {
                let loader = match arch? {
                    Arch::X86_64 => UEFI_LOADER,
                    Arch::Arm64 if self.arm64 => ARM64_LOADER,
                    Arch::Arm64 => return None,
                };
                (loader, chip.eq_ignore_ascii_case("snp") || chip.eq_ignore_ascii_case("nii"))
            }
            _ => return None,
        };
        let now = Instant::now();
        // Each change of the map is complete in itself.
        let mut given = self.given.lock().unwrap_or_else(PoisonError::into_inner);
        given.retain(|_, at| now.duration_since(*at) < ONCE_IN);
        if ours {
            // It arrived: the next power-on starts from the card again.
            given.remove(&mac);
            return None;
        }
        if given.contains_key(&mac) || given.len() >= MAX_REMEMBERED {
            return None;
        }
        given.insert(mac, now);
        Some(match server {
            IpAddr::V4(server) => format!("tftp://{server}/{loader}"),
            IpAddr::V6(server) => format!("tftp://[{server}]/{loader}"),
        })
    }
}
