//! What a disk supports, and the method that a request gets.

use std::{io, iter};

use landfall_api::WipeLevel;
use nix::libc;

use super::method::{Abilities, Method};
use super::{ata, nvme, scsi};
use crate::commands::kernel::takes_discards;
use crate::commands::{Commands, Refused};
use crate::{RealDevice, WipeRequest, WriteError, pipeline::device_io};

/// By which method this disk is wiped.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) method: Method,
    /// Why the level that was asked for is not reached, in words; empty if it is.
    pub(super) limits: Vec<String>,
}

/// The method by which this disk gets to a level that will do.
///
/// # Errors
/// [`WriteError::LevelUnsupported`] with the levels that it supports; [`WriteError::DeviceIo`] if it does not answer what it
/// supports: that is no reason to take a lesser level.
pub(super) fn choose(device: &RealDevice, request: &WipeRequest, name: &str) -> Result<Chosen, WriteError> {
    of(device, request, takes_discards(&request.disk), name)
}

fn of(disk: &dyn Commands, request: &WipeRequest, discards: bool, name: &str) -> Result<Chosen, WriteError> {
    let mut found = Abilities { methods: vec![Method::Signatures, Method::Zero], limits: Vec::new() };
    found.methods.extend(discards.then_some(Method::Discard));
    let mut wanted = iter::once(request.level).chain(request.fallback.iter().copied());
    // A disk is asked only if an answer can matter.
    let first = wanted.find(|level| {
        matches!(level, WipeLevel::Secure | WipeLevel::Cryptographic) || found.choose(*level, &[]).is_some()
    });
    if matches!(first, None | Some(WipeLevel::Secure | WipeLevel::Cryptographic)) {
        own(disk, &request.disk.transport, &mut found)
            .map_err(device_io(name, "ask which ways of erasing itself it supports of"))?;
    }
    let Some(method) = found.choose(request.level, &request.fallback) else {
        return Err(WriteError::LevelUnsupported {
            device: name.into(),
            level: request.level,
            supported: found.levels(),
            limits: found.limits,
        });
    };
    if method.level() == request.level {
        found.limits.clear();
    } else if found.limits.is_empty() {
        found.limits.push(format!("the disk reports no command for level {}", request.level));
    }
    Ok(Chosen { method, limits: found.limits })
}

/// Adds the disk's own commands. An error: it did not answer.
fn own(disk: &dyn Commands, transport: &str, found: &mut Abilities) -> io::Result<()> {
    let asked = match transport {
        "nvme" => nvme::abilities(disk, found),
        "sata" => ata::abilities(disk, found),
        "scsi" => scsi::abilities(disk, found).and_then(|()| behind_scsi(disk, found)),
        other => {
            found.limits.push(format!("Landfall knows no commands by which a disk behind {other} erases itself"));
            Ok(())
        }
    };
    match asked {
        Ok(()) => Ok(()),
        Err(Refused::Answer(words)) => {
            found.limits.push(format!("it was asked what it supports, and {words}"));
            Ok(())
        }
        // There is no way to its commands: they will not be there in a minute either.
        Err(Refused::Io(error))
            if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EOPNOTSUPP | libc::EINVAL)) =>
        {
            found.limits.push(format!("the kernel passes it no commands ({error})"));
            Ok(())
        }
        Err(Refused::Io(error)) => Err(error),
    }
}

/// A SATA disk behind a SAS adapter is a SCSI disk to the kernel; the adapter translates, but for sanitize.
fn behind_scsi(disk: &dyn Commands, found: &mut Abilities) -> Result<(), Refused> {
    if found.methods.iter().any(|method| matches!(method, Method::ScsiSanitize(_))) {
        return Ok(());
    }
    match ata::abilities(disk, found) {
        // A SCSI disk refuses ATA commands.
        Err(Refused::Answer(_)) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::scripted::Scripted;
    use crate::wipe::method::{NvmeFormat, Sanitize};

    fn abilities(disk: &Scripted, transport: &str) -> Abilities {
        let mut found = Abilities::default();
        own(disk, transport, &mut found).unwrap();
        found
    }

    fn chosen(
        disk: &Scripted, transport: &str, level: WipeLevel, fallback: &[WipeLevel],
    ) -> Result<Chosen, WriteError> {
        let mut request = WipeRequest::of_tests();
        request.disk.transport = transport.into();
        (request.level, request.fallback) = (level, fallback.to_vec());
        of(disk, &request, false, "vda")
    }

    #[test]
    fn a_virtio_disk_has_what_every_disk_has() {
        let disk = Scripted::default();
        let refused = chosen(&disk, "virtio", WipeLevel::Secure, &[WipeLevel::Discard]).unwrap_err();
        let words = "does not support level secure; it supports signatures, zero (Landfall knows no commands by which a disk \
                     behind virtio erases itself)";
        assert!(refused.to_string().contains(words), "{refused}");
        let zero = chosen(&disk, "virtio", WipeLevel::Zero, &[]).unwrap();
        assert_eq!(zero, Chosen { method: Method::Zero, limits: Vec::new() });
    }

    #[test]
    fn a_silent_disk_is_no_reason_for_a_fallback() {
        for transport in ["nvme", "sata", "scsi"] {
            let silent = Scripted::default().silent();
            let failed = chosen(&silent, transport, WipeLevel::Secure, &[WipeLevel::Zero]).unwrap_err();
            assert!(matches!(failed, WriteError::DeviceIo { .. }), "{failed}");
            let zero = chosen(&silent, transport, WipeLevel::Zero, &[WipeLevel::Secure]).unwrap();
            assert_eq!(zero.method, Method::Zero, "it is not even asked");
        }
    }

    #[test]
    fn a_fallback_says_why_it_was_taken() {
        let frozen = Scripted::ata(0, 0b1001);
        let zero = chosen(&frozen, "sata", WipeLevel::Secure, &[WipeLevel::Cryptographic, WipeLevel::Zero]).unwrap();
        assert!(zero.method == Method::Zero && zero.limits[0].contains("frozen"), "{zero:?}");
        let plain = chosen(&Scripted::ata(0, 0), "sata", WipeLevel::Secure, &[WipeLevel::Zero]).unwrap();
        assert_eq!(plain.limits, ["the disk reports no command for level secure"]);
    }

    #[test]
    fn nvme_erases_by_sanitize_where_it_harms_no_other_namespace() {
        let disk = Scripted::nvme(0b10, 0b100, 0b111, &[1]);
        let found = abilities(&disk, "nvme");
        let of = |level| found.choose(level, &[]);
        assert_eq!(of(WipeLevel::Secure), Some(Method::NvmeSanitize(Sanitize::Block)));
        assert_eq!(of(WipeLevel::Cryptographic), Some(Method::NvmeSanitize(Sanitize::Crypto)));

        let shared = Scripted::nvme(0b10, 0b100, 0b111, &[1, 2]);
        let found = abilities(&shared, "nvme");
        let keep = 0x1 | 1 << 5;
        assert_eq!(
            found.choose(WipeLevel::Secure, &[]),
            Some(Method::NvmeFormat(NvmeFormat { crypto: false, keep })),
            "a format of this namespace alone"
        );
        assert!(found.limits[0].contains("other namespaces (2)"), "{:?}", found.limits);

        let other = Scripted::nvme(0b1010, 0b100, 0b111, &[1]).with_namespaces_elsewhere(&[7]);
        let found = abilities(&other, "nvme");
        assert!(found.limits[0].contains("other namespaces (7)"), "of another controller: {:?}", found.limits);
        let unseen = Scripted::nvme(0b10, 0b100, 0b111, &[1]).with_controllers(0b10);
        let found = abilities(&unseen, "nvme");
        assert!(matches!(found.choose(WipeLevel::Secure, &[]), Some(Method::NvmeFormat(_))), "{found:?}");
        assert!(found.limits[0].contains("another controller"), "{:?}", found.limits);

        let all_at_once = Scripted::nvme(0b10, 0b110, 0b111, &[1, 2]);
        let found = abilities(&all_at_once, "nvme");
        assert_eq!(found.choose(WipeLevel::Secure, &[]), None, "a format would erase namespace 2");
    }

    #[test]
    fn a_frozen_disk_says_what_to_do() {
        let found = abilities(&Scripted::ata(0, 0b10_0001), "sata");
        assert_eq!(found.choose(WipeLevel::Secure, &[]), Some(Method::AtaErase { enhanced: true, minutes: 30 }));
        let found = abilities(&Scripted::ata(0, 0b10_1001), "sata");
        assert_eq!(found.choose(WipeLevel::Secure, &[]), None);
        assert!(found.limits[0].contains("frozen"), "{:?}", found.limits);
        let found = abilities(&Scripted::ata(0b1111 << 12, 0b10_1001), "sata");
        assert_eq!(found.choose(WipeLevel::Secure, &[]), Some(Method::AtaSanitize(Sanitize::Block)), "not frozen");
    }

    #[test]
    fn a_sanitize_whose_end_cannot_be_seen_is_not_offered() {
        let whole = || Scripted::ata(0b1111 << 12, 0);
        assert_eq!(abilities(&whole(), "sata").methods.len(), 3);
        for (disk, why) in [(whole().with_frozen_sanitize(), "frozen"), (whole().without_registers(), "adapter")] {
            let found = abilities(&disk, "sata");
            assert!(found.methods.is_empty() && found.limits[0].contains(why), "{found:?}");
        }
    }

    #[test]
    fn a_sata_disk_behind_a_sas_adapter_erases_itself() {
        let found = abilities(&Scripted::ata(0, 0b10_0001), "scsi");
        assert_eq!(found.choose(WipeLevel::Secure, &[]), Some(Method::AtaErase { enhanced: true, minutes: 30 }));
        let found = abilities(&Scripted::scsi(&[]), "scsi");
        assert!(found.methods.is_empty() && found.limits.is_empty(), "{found:?}");
    }

    #[test]
    fn a_scsi_disk_reports_its_commands() {
        let found = abilities(&Scripted::scsi(&[1, 3]), "scsi");
        assert_eq!(found.choose(WipeLevel::Secure, &[]), Some(Method::ScsiSanitize(Sanitize::Overwrite)));
        assert_eq!(found.choose(WipeLevel::Cryptographic, &[]), Some(Method::ScsiSanitize(Sanitize::Crypto)));
    }
}
