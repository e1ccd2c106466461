//! What a disk says of its own health: NVMe's SMART log, ATA's SMART, SCSI's informational exceptions. Nothing decides by it.
//!
//! Sources: NVM Express base specification 2.0, figure 207; ATA Command Set 4 (ACS-4), section 7.43; SCSI Primary Commands 5
//! (SPC-5), section 7.3.10. ATA's attributes have no standard; the numbers used here are those that most vendors share, read as smartmontools does by default.

use std::time::Duration;

use landfall_api::{DiskFacts, DiskHealth};

use crate::commands::ata::{Protocol, Registers, returned_lba, send};
use crate::commands::sense::without_fault;
use crate::commands::{Commands, NvmeAdmin, Refused, Transfer};
use crate::{DiskError, RealDevice, device_path};

/// The kernel resets the controller of a disk that does not answer in that time, so it is the kernel's own for NVMe, and no less. Who asks
/// does not wait for it.
const ASK: Duration = Duration::from_secs(60);
/// The vendor of a SATA disk behind a SAS adapter (SAT-4). Nothing else gets ATA's commands: some RAID controllers answer them badly.
const TRANSLATED: &str = "ATA";
const KELVIN: i16 = 273;

/// What a disk says of its health; nothing if its kind says nothing, as a virtual disk. **Blocking**: a disk that hangs answers when the
/// kernel gives it up.
///
/// # Errors
/// [`DiskError::Read`]: the disk cannot be opened.
pub fn read_health(disk: &DiskFacts) -> Result<Option<DiskHealth>, DiskError> {
    if !["nvme", "sata", "scsi"].contains(&disk.transport.as_str()) {
        return Ok(None);
    }
    let path = device_path(disk);
    let device = RealDevice::open_read_only(&path).map_err(|source| DiskError::Read { path, source })?;
    Ok(health(&device, &disk.transport, disk.vendor.trim()))
}

/// A disk that refuses a question says nothing of its health: it has no such command, or has it turned off.
fn health(disk: &dyn Commands, transport: &str, vendor: &str) -> Option<DiskHealth> {
    let asked = match transport {
        "nvme" => nvme(disk),
        "sata" => ata(disk),
        _ if vendor == TRANSLATED => ata(disk).or_else(|_| scsi(disk)),
        _ => scsi(disk),
    };
    asked.inspect_err(|refused| tracing::debug!("the disk says nothing of its health: {refused}")).ok()
}

fn nvme(disk: &dyn Commands) -> Result<DiskHealth, Refused> {
    /// Get Log Page.
    const GET_LOG_PAGE: u8 = 0x02;
    /// Bits of Critical Warning. Bit 1 is the temperature, which passes.
    const WARNINGS: [(u8, &str); 4] = [
        (0, "its spare capacity is below the threshold"),
        (2, "it is degraded by errors of its medium"),
        (3, "it has become read-only"),
        (4, "the backup of its volatile memory has failed"),
    ];
    let mut log = [0; 512];
    // Log page 02h; the number of double words, minus one, in the upper half.
    let dwords = [0x02 | (log.len() as u32 / 4 - 1) << 16, 0];
    let status = disk.nvme(NvmeAdmin { opcode: GET_LOG_PAGE, namespace: u32::MAX, dwords }, &mut log, ASK)?;
    if status != 0 {
        return Err(Refused::Answer(format!("the controller refuses its SMART log with status {status:#x}")));
    }
    let reasons: Vec<_> = WARNINGS.iter().filter(|(bit, _)| log[0] >> bit & 1 == 1).map(|(_, words)| *words).collect();
    // Its counters have 128 bits.
    let counter = |at: usize| log[at..at + 8].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
    let kelvin = u16::from_le_bytes([log[1], log[2]]);
    Ok(DiskHealth {
        failing: !reasons.is_empty(),
        reason: reasons.join("; "),
        used_percent: Some(log[5]),
        temperature_celsius: i16::try_from(kelvin).ok().filter(|kelvin| *kelvin > 0).map(|kelvin| kelvin - KELVIN),
        power_on_hours: Some(counter(128)),
        media_errors: Some(counter(160)),
    })
}

fn ata(disk: &dyn Commands) -> Result<DiskHealth, Refused> {
    /// SMART, and its features.
    const SMART: u8 = 0xB0;
    const READ_DATA: u16 = 0xD0;
    const RETURN_STATUS: u16 = 0xDA;
    /// The two upper registers as they must be, and as a disk that fails returns them.
    const SIGNATURE: u64 = 0xC2_4F00;
    const FAILS: u64 = 0x2C_F400;
    let smart = |features, count| Registers { command: SMART, features, count, lba: SIGNATURE };
    let end = send(disk, smart(RETURN_STATUS, 0), &mut [], Protocol::ShortAnswer, ASK)?;
    let Some(lba) = returned_lba(&end.sense) else {
        return Err(Refused::Answer("the adapter does not pass the disk's SMART status on".into()));
    };
    let failing = match lba & 0xFF_FF00 {
        SIGNATURE => false,
        FAILS => true,
        other => return Err(Refused::Answer(format!("its SMART status is {other:#x}"))),
    };
    let mut found = DiskHealth { failing, ..DiskHealth::default() };
    if failing {
        "a value of its SMART data is beyond its threshold".clone_into(&mut found.reason);
    }
    let mut page = [0; 512];
    // The page sums up to zero; one that does not is none.
    if send(disk, smart(READ_DATA, 1), &mut page, Protocol::PioIn, ASK).is_ok()
        && page.iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) == 0
    {
        // 30 entries from byte 2: number, flags, value, worst, raw value of six bytes, reserved.
        for entry in page[2..2 + 30 * 12].chunks_exact(12) {
            let raw = u32::from_le_bytes([entry[5], entry[6], entry[7], entry[8]]);
            match entry[0] {
                // Some use the upper bytes for minutes.
                9 => found.power_on_hours = Some((raw & 0xFF_FFFF).into()),
                194 if entry[5] != 0 => found.temperature_celsius = Some(i16::from(entry[5].cast_signed())),
                // Sectors that could not be read, and wait to be written.
                197 => found.media_errors = Some(raw.into()),
                _ => {}
            }
        }
    }
    Ok(found)
}

fn scsi(disk: &dyn Commands) -> Result<DiskHealth, Refused> {
    /// LOG SENSE, its cumulative values, and the page of informational exceptions.
    const LOG_SENSE: u8 = 0x4D;
    const CUMULATIVE: u8 = 1 << 6;
    const EXCEPTIONS: u8 = 0x2F;
    /// Additional sense code: failure prediction threshold exceeded. With this qualifier it is a test.
    const PREDICTED: u8 = 0x5D;
    const TEST: u8 = 0xFF;
    let mut page = [0; 64];
    let command = [LOG_SENSE, 0, CUMULATIVE | EXCEPTIONS, 0, 0, 0, 0, 0, page.len() as u8, 0];
    let end = disk.scsi(&command, Transfer::In(&mut page), ASK)?;
    // The page's number, and its first parameter, 0000h, with four bytes at least.
    if !without_fault(&end) || page[0] & 0x3F != EXCEPTIONS || page[4..6] != [0, 0] || page[7] < 3 {
        return Err(Refused::Answer("it has no log of informational exceptions".into()));
    }
    let (code, qualifier, celsius) = (page[8], page[9], page[10]);
    let failing = code == PREDICTED && qualifier != TEST;
    Ok(DiskHealth {
        failing,
        reason: if failing {
            format!("it predicts its failure: code {code:#04x}/{qualifier:#04x}")
        } else {
            String::new()
        },
        // FFh: it does not know.
        temperature_celsius: (![0, 0xFF].contains(&celsius)).then(|| celsius.into()),
        ..DiskHealth::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::scripted::Scripted;

    #[test]
    fn an_nvme_disk_names_each_warning() {
        let mut log = vec![0; 512];
        (log[1], log[2], log[5]) = (0x3B, 0x01, 103);
        log[128..132].copy_from_slice(&70_000_u32.to_le_bytes());
        log[160] = 9;
        let well = health(&Scripted::with_health(&log), "nvme", "").unwrap();
        let numbers = (well.used_percent, well.temperature_celsius, well.power_on_hours, well.media_errors);
        assert_eq!((well.failing, numbers), (false, (Some(103), Some(42), Some(70_000), Some(9))));
        for (warning, failing) in [(0b10, false), (0b1, true), (0b100, true), (0b1000, true), (0b1_0000, true)] {
            log[0] = warning;
            let seen = health(&Scripted::with_health(&log), "nvme", "").unwrap();
            assert_eq!((seen.failing, seen.reason.is_empty()), (failing, !failing), "{warning:#b}");
        }
    }

    #[test]
    fn an_ata_disk_states_that_it_fails() {
        let mut data = vec![0; 512];
        for (at, (number, raw)) in
            [(9_u8, [0x10, 0x27, 0, 0]), (194, [35, 0, 20, 60]), (197, [8, 0, 0, 0])].iter().enumerate()
        {
            data[2 + 12 * at] = *number;
            data[2 + 12 * at + 5..2 + 12 * at + 9].copy_from_slice(raw);
        }
        data[511] = data.iter().fold(0_u8, |sum, byte| sum.wrapping_sub(*byte));
        let well = health(&Scripted::with_health(&data), "sata", "").unwrap();
        let numbers = (well.temperature_celsius, well.power_on_hours, well.media_errors);
        assert_eq!((well.failing, numbers), (false, (Some(35), Some(10_000), Some(8))));
        // Behind a SAS adapter.
        let fails = health(&Scripted::with_health(&data).failing(), "scsi", "ATA").unwrap();
        assert!(fails.failing && !fails.reason.is_empty() && fails.power_on_hours == Some(10_000), "{fails:?}");
        data[100] = 1;
        let broken = health(&Scripted::with_health(&data).failing(), "sata", "").unwrap();
        assert!(broken.failing && broken.power_on_hours.is_none(), "data whose sum is wrong do not count: {broken:?}");
    }

    #[test]
    fn a_scsi_disk_predicts_its_failure() {
        let of = |code: u8, qualifier: u8, celsius: u8| [0x2F, 0, 0, 8, 0, 0, 3, 4, code, qualifier, celsius, 0];
        let page = |code, celsius| of(code, 0x10, celsius);
        let well = health(&Scripted::with_exceptions(&page(0, 33)), "scsi", "SEAGATE").unwrap();
        assert_eq!((well.failing, well.temperature_celsius), (false, Some(33)));
        let fails = health(&Scripted::with_exceptions(&page(0x5D, 0xFF)), "scsi", "SEAGATE").unwrap();
        assert!(
            fails.failing && fails.reason.contains("0x5d/0x10") && fails.temperature_celsius.is_none(),
            "{fails:?}"
        );
    }

    #[test]
    fn a_disk_that_refuses_or_hangs_has_no_health() {
        for (disk, transport) in [
            (Scripted::nvme(0, 0, 0, &[1]).refusing(0x02), "nvme"),
            (Scripted::ata(0, 0).refusing(0xB0), "sata"),
            (Scripted::scsi(&[]).refusing(0x4D), "scsi"),
            (Scripted::scsi(&[]), "scsi"),
            (Scripted::default().silent(), "nvme"),
        ] {
            assert_eq!(health(&disk, transport, "ATA"), None, "{disk:?}");
        }
    }
}
