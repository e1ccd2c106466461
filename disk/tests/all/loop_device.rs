//! The real thing: loop devices with sectors of 512 and of 4096 bytes. Skipped, loudly, where there are none.

use std::process::Command;

use crate::common::{MIB, MemorySource, digest, gpt_image, mark, order::order, tools::Loop};
use landfall_disk::judge::Findings;
use landfall_disk::{BlockDevice, Expectation, ReadAt, RealDevice, Unobserved, disk_at, install, read_receipt};

/// A loop device of so many bytes, and its file.
fn of(size: u64, sector: u32) -> Option<(Loop, tempfile::NamedTempFile)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    Some((Loop::over(file.path(), sector)?, file))
}

#[test]
fn a_real_block_device_is_installed_at_both_sector_sizes() {
    for sector in [512, 4096] {
        let size = 24 * MIB;
        let Some((device, _file)) = of(size, sector) else { continue };
        let facts = disk_at(&device.0).unwrap();
        assert_eq!((facts.id.size_bytes, facts.logical_sector_bytes), (size, sector));
        let s = u64::from(sector);
        let image = gpt_image(16 * MIB, sector, &[(MIB / s, 3 * MIB / s), (4 * MIB / s, 14 * MIB / s)], 4);
        let stored = zstd::encode_all(&image[..], 1).unwrap();
        let real = RealDevice::open(&device.0).unwrap();
        assert!(RealDevice::open(&device.0).is_err(), "opened exclusively");
        // Old content everywhere, so that zeroes must really be made.
        for at in (0..size).step_by(MIB as usize) {
            real.write_at(at, &[0xa5; MIB as usize]).unwrap();
        }
        let order = order(Expectation::Stored(digest(&stored)), mark(&stored, size));
        let installed = install(&real, &mut MemorySource::new(&stored), &order, &Unobserved).unwrap();
        assert!(installed.receipt.is_some());
        let found = Findings::of(&real, sector).unwrap();
        assert!(found.uefi_boots() && found.primary.is_some() && found.backup.is_some());
        drop(real);
        assert_eq!(read_receipt(&device.0).unwrap().unwrap().state, landfall_api::ReceiptState::Done);
        let disk = std::fs::read(&device.0).unwrap();
        assert!(disk[MIB as usize..3 * MIB as usize] == image[MIB as usize..3 * MIB as usize]);
        assert!(disk[4 * MIB as usize..14 * MIB as usize] == image[4 * MIB as usize..14 * MIB as usize]);
    }
}

#[test]
fn a_disk_that_is_gone_is_named_so() {
    let Some((device, file)) = of(4 * MIB, 512) else { return };
    let real = RealDevice::open(&device.0).unwrap();
    real.write_at(0, &[1; 4096]).unwrap();
    file.as_file().set_len(0).unwrap();
    assert!(Command::new("losetup").arg("--set-capacity").arg(&device.0).status().unwrap().success());
    let errors = [real.write_at(0, &[2; 4096]), real.read_at(0, &mut [0; 4096]), real.zero_range(0, 4096).map(drop)];
    for error in errors.map(Result::unwrap_err) {
        assert!(error.to_string().contains("the disk is gone"), "{error}");
    }
}
