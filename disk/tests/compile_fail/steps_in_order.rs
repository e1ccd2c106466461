use landfall_disk::{BlockDevice, Verified, place_lba0, place_table};

fn skips_the_backup(device: &dyn BlockDevice, verified: Verified) {
    let _ = place_table(device, "disk", verified, || Ok(()));
}

fn goes_straight_to_lba0(device: &dyn BlockDevice, verified: Verified) {
    let _ = place_lba0(device, "disk", verified);
}

fn main() {}
